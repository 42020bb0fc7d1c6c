"""The board: clocks that are set and restored, sensors that are read, time."""
