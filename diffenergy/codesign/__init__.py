"""Hardware, clocks and tiles together: search by gradient, exact legal answers.

Public names load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .axes import Range
    from .engine import Effort
    from .found import Found
    from .mixing import Part, build
    from .searching import search
    from .tuning import tune

_HOMES: Final = {
    "Effort": "engine",
    "Found": "found",
    "Part": "mixing",
    "Range": "axes",
    "build": "mixing",
    "search": "searching",
    "tune": "tuning",
}

__all__ = ["Effort", "Found", "Part", "Range", "build", "search", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diffenergy.codesign' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
