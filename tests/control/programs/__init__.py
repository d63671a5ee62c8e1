"""Processes that hold sessions, and clients with a fault in them."""
