"""Plans where a change of clocks costs time or energy."""
