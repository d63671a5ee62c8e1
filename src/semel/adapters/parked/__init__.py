"""Ways to tell a person that a session waits: a command, a webhook; each waiting once."""
