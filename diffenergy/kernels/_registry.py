"""Which kernel classes there are: modules of the package that define `OPS`."""

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Final

from ..physics import Demand
from ..records import Record
from ._ops import Op, TraceClass

_PACKAGE: Final = __name__.rpartition(".")[0]


def _modules(folder: str = _PACKAGE) -> Iterator[ModuleType]:
    """Modules of a folder and of the folders in it, private ones apart."""
    path = sys.modules[folder].__path__
    for info in sorted(pkgutil.iter_modules(path), key=lambda module: module.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{folder}.{info.name}")
        yield module
        if info.ispkg:
            yield from _modules(module.__name__)


@functools.cache
def classes() -> dict[str, ModuleType]:
    """Kernel-class modules by name."""
    return {
        module.__name__.rpartition(".")[2]: module
        for module in _modules()
        if hasattr(module, "OPS")
    }


@functools.cache
def ops() -> dict[str, tuple[Op, ModuleType]]:
    """Every op of the listing format, with the class that reads it."""
    return {op.name: (op, module) for module in classes().values() for op in module.OPS}


@functools.cache
def trace_classes() -> dict[str, TraceClass]:
    """How traces show kernel classes, by the name that these have there."""
    entries = (vars(module).get("TRACE") for module in _modules())
    return {trace.name: trace for trace in entries if trace is not None}


def trace_class(op: str) -> str:
    """Name of the class of an op in traces: that of its module, of the folder around
    it, else the op's own.

    >>> trace_class("layernorm"), trace_class("attention_backward")
    ('norm', 'attention')
    """
    module = ops()[op][1]
    for owner in (module, _folder(module)):
        if hasattr(owner, "TRACE"):
            return owner.TRACE.name
    return op


def known_as(op: str) -> str:
    """The op whose fitted rows say how well `op` is known."""
    return ops()[op][0].known_as or op


def sharing_formula(names: Iterable[str]) -> set[str]:
    """The ops `names`, and those of other classes that have the formula of the folder
    around them in common with one of these, such as all that stream."""
    shared = {name: _of_folder(module) for name, (_, module) in ops().items()}
    inside = set(names)
    of = {shared[name] for name in inside} - {None}
    return inside | {name for name, formula in shared.items() if formula in of}


def _of_folder(module: ModuleType) -> Callable[..., Demand] | None:
    """Formula of the folder around a class that has none of its own."""
    has_formula = hasattr(module, "demand")
    return None if has_formula else getattr(_folder(module), "demand", None)


def _folder(module: ModuleType) -> ModuleType:
    """The package around a module."""
    return sys.modules[module.__name__.rpartition(".")[0]]


@functools.cache
def formulas() -> dict[type[Record], Callable[..., Demand]]:
    """`demand` by shape record: that of the module that defines it, else of the folder
    around it."""
    return {
        shape: module.demand
        for module in _modules()
        for shape in vars(module).values()
        if isinstance(shape, type)
        and issubclass(shape, Record)
        and f"{shape.__module__}.".startswith(f"{module.__name__}.")
        and hasattr(module, "demand")
    }
