"""Rows of a listing from the kernels and operators of a trace."""
