"""Step costs of a server, as a table that every load reads."""
