"""The log as one directory of files."""
