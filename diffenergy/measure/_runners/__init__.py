"""What runs the kernels of a plan: PyTorch or JAX."""
