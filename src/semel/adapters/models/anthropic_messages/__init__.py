"""Wire family `anthropic_messages`: the Messages API of Anthropic and of servers compatible with it (wire 1)."""
