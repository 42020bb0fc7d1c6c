"""Views of collective results."""
