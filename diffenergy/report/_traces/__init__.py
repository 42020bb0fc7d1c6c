"""Results as timelines, launch by launch."""
