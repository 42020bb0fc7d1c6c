"""What a search may change, and what changes with it."""
