"""Wire family `bedrock_converse`: Amazon Bedrock's ConverseStream, without an SDK (wire 5)."""
