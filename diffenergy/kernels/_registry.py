"""Which kernel classes there are: modules of the package that define `OPS`."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from ..physics import Demand
from ..records import Record
from ._shared.ops import Op

_PACKAGE: Final = (__name__.rpartition(".")[0], [str(Path(__file__).parent)])


def _modules(folder: str, path: list[str]) -> Iterator[ModuleType]:
    """Modules of a folder and of the folders in it, private ones apart."""
    for found in sorted(pkgutil.iter_modules(path), key=lambda module: module.name):
        if found.name.startswith("_"):
            continue
        module = importlib.import_module(f"{folder}.{found.name}")
        yield module
        if found.ispkg:
            yield from _modules(module.__name__, list(module.__path__))


@functools.cache
def classes() -> dict[str, ModuleType]:
    """Kernel-class modules by name."""
    return {
        module.__name__.rpartition(".")[2]: module
        for module in _modules(*_PACKAGE)
        if hasattr(module, "OPS")
    }


@functools.cache
def ops() -> dict[str, tuple[Op, ModuleType]]:
    """Every op of the listing format, with the class that reads it."""
    return {op.name: (op, module) for module in classes().values() for op in module.OPS}


@functools.cache
def formulas() -> dict[type[Record], Callable[..., Demand]]:
    """`demand` by shape record: that of the module that defines it, else of the folder
    around it."""
    return {
        shape: module.demand
        for module in _modules(*_PACKAGE)
        for shape in vars(module).values()
        if isinstance(shape, type)
        and issubclass(shape, Record)
        and f"{shape.__module__}.".startswith(f"{module.__name__}.")
        and hasattr(module, "demand")
    }
