"""Wire family `openai_responses`: the Responses API of OpenAI, xAI, Meta and others, with no state on the server (wire 3)."""
