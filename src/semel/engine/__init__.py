"""Runs decisions: append and sync, then act. asyncio, but no files, sockets or environment."""
