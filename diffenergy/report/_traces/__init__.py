"""Answers as timelines, launch by launch."""
