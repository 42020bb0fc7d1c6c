"""Kernels at other clocks, each known by three numbers."""
