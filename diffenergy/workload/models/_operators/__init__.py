"""Operators of networks: kernels forward and backward, weights, caches."""
