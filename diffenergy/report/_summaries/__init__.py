"""Answers as JSON-like dicts."""
