"""GPUs: their numbers, the files they are read from, voltage and idle power.

Names load on first use, so that importing this package does not import JAX.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fields import ARCHITECTURES, MMA_KINDS
    from .files import GpuCard, gpu_names, load_gpu, read_gpu, with_fields
    from .spec import (
        GpuSpec,
        OperatingPoint,
        default_point,
        idle_power,
        relative_voltage,
        voltage,
    )
    from .writing import gpu_toml

__all__ = [
    "ARCHITECTURES",
    "MMA_KINDS",
    "GpuCard",
    "GpuSpec",
    "OperatingPoint",
    "default_point",
    "gpu_names",
    "gpu_toml",
    "idle_power",
    "load_gpu",
    "read_gpu",
    "relative_voltage",
    "voltage",
    "with_fields",
]

_HOMES = {
    **dict.fromkeys(("ARCHITECTURES", "MMA_KINDS"), "fields"),
    **dict.fromkeys(
        ("GpuCard", "gpu_names", "load_gpu", "read_gpu", "with_fields"), "files"
    ),
    "gpu_toml": "writing",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = _HOMES.get(name, "spec")
    return getattr(importlib.import_module(f"{__name__}.{room}"), name)
