"""Verification, which shares nothing with what makes schedules."""
