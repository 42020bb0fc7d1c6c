"""The standard algorithms: rings, trees, doubling, one switch; closed forms."""
