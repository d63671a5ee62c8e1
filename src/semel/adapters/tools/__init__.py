"""Tools from Python functions and from commands."""
