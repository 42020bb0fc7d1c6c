"""Descents from many starts, fronts, and what holds a design back."""
