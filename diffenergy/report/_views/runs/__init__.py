"""Views of measured and imported programs."""
