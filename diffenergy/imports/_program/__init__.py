"""Rows of a listing from the jaxpr of a JAX function."""
