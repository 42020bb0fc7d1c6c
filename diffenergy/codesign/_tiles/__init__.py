"""Tiles of matrix products: legal ones, their costs, the best."""
