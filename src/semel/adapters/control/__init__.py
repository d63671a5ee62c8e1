"""Answering and asking over a Unix socket; implements `ports.control`."""
