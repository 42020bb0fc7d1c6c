"""Decoders with routed experts."""
