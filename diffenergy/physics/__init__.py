"""Class-free formulas: demand, timeline, power, governor, instruments."""
