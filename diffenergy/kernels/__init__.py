"""Kernel classes: each file holds the ops it reads and its shape -> `Demand` formula.

A module of this package that defines `OPS` is a kernel class; adding a file adds it.
"""

import functools
import importlib
import pkgutil
from types import ModuleType

from ._shared.ops import Op


@functools.cache
def classes() -> dict[str, ModuleType]:
    """Kernel-class modules by name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    return {
        name: importlib.import_module(f"{__name__}.{name}")
        for name in names
        if not name.startswith("_")
    }


@functools.cache
def ops() -> dict[str, tuple[Op, ModuleType]]:
    """Every op of the listing format, with the class that reads it."""
    return {op.name: (op, module) for module in classes().values() for op in module.OPS}
