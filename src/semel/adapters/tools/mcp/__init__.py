"""Tools of MCP servers that run beside us and speak over their standard input and output (decision 0023)."""
