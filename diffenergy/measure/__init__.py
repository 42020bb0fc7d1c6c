"""Running kernels on a GPU of this machine and reading time, power, clocks and heat."""
