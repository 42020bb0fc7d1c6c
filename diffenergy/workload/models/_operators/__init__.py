"""Operators of networks: what each launches forward and backward, its weights and what
it keeps."""
