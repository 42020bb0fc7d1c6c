"""diffenergy: time, power and energy of GPU kernels as one differentiable function.

Public names load on first use, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .compiling import compiler_options
    from .corrections import Corrections, read_corrections
    from .estimator import Estimate, estimate
    from .hardware import GpuSpec, OperatingPoint, load_gpu
    from .workload import Workload, load_model, load_workload

__version__: Final = "0.1.0"

_HOMES: Final = {
    "Corrections": "corrections",
    "Estimate": "estimator",
    "GpuSpec": "hardware",
    "OperatingPoint": "hardware",
    "Workload": "workload",
    "compiler_options": "compiling",
    "estimate": "estimator",
    "load_gpu": "hardware",
    "load_model": "workload",
    "load_workload": "workload",
    "read_corrections": "corrections",
}

__all__ = [
    "Corrections",
    "Estimate",
    "GpuSpec",
    "OperatingPoint",
    "Workload",
    "compiler_options",
    "estimate",
    "load_gpu",
    "load_model",
    "load_workload",
    "read_corrections",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diffenergy' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
