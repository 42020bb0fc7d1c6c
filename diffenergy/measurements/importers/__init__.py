"""Readers of other people's tables and logs: each file here is one format.

A module with `NAME`, `ABOUT` and `read(path)` is an importer; adding a file adds it.
`read` returns tables by file stem, in the columns of our measurement files.
"""

import functools
import importlib
import pkgutil
from types import ModuleType

from .base import check_texts, notes_of

__all__ = ["check_texts", "importers", "notes_of"]

_SUPPORT = ("base", "tables")


@functools.cache
def importers() -> dict[str, ModuleType]:
    """Importer modules by `NAME`, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [
        importlib.import_module(f"{__name__}.{name}")
        for name in names
        if name not in _SUPPORT and not name.startswith("_")
    ]
    return {module.NAME: module for module in modules}
