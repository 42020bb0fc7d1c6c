"""Hosts, and what their GPUs exchange."""
