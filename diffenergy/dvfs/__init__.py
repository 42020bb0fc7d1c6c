"""Frequency schedules: clocks for every kernel, phase or iteration."""
