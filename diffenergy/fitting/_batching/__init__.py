"""Measured rows as workloads, each row a phase."""
