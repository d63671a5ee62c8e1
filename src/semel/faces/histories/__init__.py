"""Conversations in the formats of providers, read as the neutral history that a session can start from."""
