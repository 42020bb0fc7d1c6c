"""Readers of files, one a format: launches of a trace, or rows of a graph."""
