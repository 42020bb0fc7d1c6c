"""Decoders whose dense layers differ."""
