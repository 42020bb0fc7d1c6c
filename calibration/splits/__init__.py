"""The splits of the accuracy table: what is fitted, what is left out, what is scored.

A module of this package with `SPLITS` adds its lines; goals and the figures of earlier
studies are time, power, energy in percent.
"""

import importlib
import pkgutil

from .base import Data, Split

_ORDER = ("passes", "kernels", "five")


def _modules() -> list[str]:
    """Modules of splits: those of the table's first lines, then the others by name."""
    names = {m.name for m in pkgutil.iter_modules(__path__)} - {"base"}
    return [*_ORDER, *sorted(names - set(_ORDER))]


SPLITS: tuple[Split, ...] = tuple(
    split
    for name in _modules()
    for split in getattr(importlib.import_module(f"{__name__}.{name}"), "SPLITS", ())
)

__all__ = ["SPLITS", "Data", "Split"]
