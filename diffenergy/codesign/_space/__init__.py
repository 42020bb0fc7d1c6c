"""Varied fields of a search, and the numbers that follow them."""
