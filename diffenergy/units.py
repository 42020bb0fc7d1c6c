"""Multipliers that turn a number into SI: `1.98 * GHz`, `40 * MiB`, `0.4 * pJ`."""

MHz = 1e6
GHz = 1e9
us = 1e-6
ms = 1e-3
KiB = 2.0**10
MiB = 2.0**20
GiB = 2.0**30
pJ = 1e-12
