"""Kernels and operators of a trace -> rows of a listing."""
