"""Wire family `openai_chat`: chat completions as OpenAI and the many servers compatible with it speak them (wire 2)."""
