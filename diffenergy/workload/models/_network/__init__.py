"""Operators of decoders with the kernels of their forward and backward passes, and the
training step that they make up."""
