"""How programs that ran, or were brought, read."""
