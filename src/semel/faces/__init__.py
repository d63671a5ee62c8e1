"""What people and programs touch: the Python API and the command line."""
