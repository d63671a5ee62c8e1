"""semel: a runtime for LLM agents whose tools do real things. A crash neither repeats an action nor loses a word."""
