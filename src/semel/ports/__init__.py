"""Protocols with numbered contracts; adapters implement them, the engine uses them."""
