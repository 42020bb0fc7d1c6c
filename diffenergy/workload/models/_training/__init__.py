"""Training steps of decoders: operators with the kernels of their forward and backward
passes, and the optimizer step that they make up."""
