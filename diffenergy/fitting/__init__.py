"""Measured rows against predicted ones: batches, prediction, fitting."""
