"""Schedules: sends over links, what waits for what, replay at other rates."""
