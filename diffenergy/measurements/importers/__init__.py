"""Readers of the logs of other people's tools: each file here is one format.

A module with `NAME`, `ABOUT`, `wrote(lines)` and `read(path)` is an importer; adding a
file adds it. `wrote` knows a log by its first lines; `series(path)`, of a log of power,
has its readings over time; `read` returns tables by file
stem, in the columns of our measurement files. Readers of public data sets, which need
no `wrote`, stand in `calibration/importers` of a checkout.
"""

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType

from .._cells import read_sheet
from .base import check_texts, files_in, finish, name_gpus, notes_of, number, pick, text

__all__ = [
    "check_texts",
    "files_in",
    "finish",
    "importers",
    "importers_in",
    "name_gpus",
    "notes_of",
    "number",
    "pick",
    "read_sheet",
    "text",
]


@functools.cache
def importers() -> dict[str, ModuleType]:
    """Importers of logs by `NAME`, sorted."""
    return importers_in(__name__, __path__)


def importers_in(package: str, folders: Sequence[str]) -> dict[str, ModuleType]:
    """Importer modules of a package with the files in `folders`, by `NAME`, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(folders))
    modules = [
        importlib.import_module(f"{package}.{name}")
        for name in names
        if name != "base" and not name.startswith("_")
    ]
    return {module.NAME: module for module in modules}
