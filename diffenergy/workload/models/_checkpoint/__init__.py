"""Checkpoints: config, number formats, quantised layers."""
