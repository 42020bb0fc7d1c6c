"""Rows that a fit leaves out: those to judge it by, and those that cannot be true."""
