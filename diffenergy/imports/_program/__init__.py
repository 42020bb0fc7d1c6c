"""A JAX function, from its jaxpr, -> rows of a listing."""
