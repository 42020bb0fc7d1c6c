"""Collectives on any topology: schedules as multi-commodity flow, bounds, energy."""
