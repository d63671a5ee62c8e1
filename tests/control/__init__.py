"""Answering others over the socket, with real processes."""
