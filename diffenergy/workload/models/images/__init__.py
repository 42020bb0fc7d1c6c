"""Vision networks."""
