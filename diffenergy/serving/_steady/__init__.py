"""Closed forms of a server in balance."""
