"""The best plan, the whole frontier, baselines, and descent through the model."""
