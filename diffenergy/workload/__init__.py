"""Workloads: kernel listings, models that write them, and their launches as arrays."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .assemble import from_listings, load_workload
    from .listing import Listing, read_listings
    from .models import load_model
    from .workload import Workload

_HOMES: Final = {
    "Listing": "listing",
    "Workload": "workload",
    "from_listings": "assemble",
    "load_model": "models",
    "load_workload": "assemble",
    "read_listings": "listing",
}

__all__ = [
    "Listing",
    "Workload",
    "from_listings",
    "load_model",
    "load_workload",
    "read_listings",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
