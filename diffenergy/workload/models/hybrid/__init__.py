"""Decoders that mix attention with recurrent layers."""
