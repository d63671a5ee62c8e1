"""What became of a call: the one classifier."""
