"""Joules of a schedule, and schedules of fewer joules."""
