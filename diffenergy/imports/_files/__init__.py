"""Readers, one a format: files -> launches, or rows of a graph."""
