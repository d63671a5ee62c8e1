"""Ports in memory, held to the same contracts as the real ones."""
