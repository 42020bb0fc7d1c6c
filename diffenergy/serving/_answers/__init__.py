"""Answers by name: figures, their JSON, derivatives, the best point, curves."""
