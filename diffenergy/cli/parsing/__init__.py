"""Flags as fields of dataclasses: how they are declared, typed and read."""
