"""Views of accuracy: errors against measurements, and results of fits."""
