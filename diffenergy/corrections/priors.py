"""Priors by tag of a GPU, and the measurement models of known campaigns."""

import math
from collections.abc import Mapping
from typing import Final

PRIOR_FACTORS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "mma:wgmma": {
        "operand_half_tile": (0.45, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.4, 0.2),
        "store_exposed": (0.17, 0.6),
    },
    "mma:tcgen05": {
        "operand_half_tile": (0.45, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.8, 0.3),
        "store_exposed": (0.05, 0.6),
    },
    "memory:HBM2e": {"energy_dram": (0.95, 0.1)},
    "memory:HBM3": {"energy_dram": (0.85, 0.1)},
    "memory:HBM3e": {"energy_dram": (0.8, 0.1)},
    "memory:GDDR5": {"energy_dram": (1.8, 0.2)},
    "memory:GDDR5X": {"energy_dram": (1.6, 0.2)},
    "memory:GDDR6": {"energy_dram": (1.3, 0.15)},
    "memory:GDDR6X": {"energy_dram": (1.4, 0.2)},
    "memory:GDDR7": {"energy_dram": (1.0, 0.3)},
    "node:28nm": {"core_energy": (2.5, 0.3)},
    "node:16nm": {"core_energy": (1.5, 0.2)},
    "node:12nm": {"core_energy": (1.25, 0.2)},
    "node:8nm": {"core_energy": (1.15, 0.2)},
    "node:5nm": {"core_energy": (0.7, 0.2)},
    "node:4N": {"core_energy": (0.65, 0.2)},
    "node:4NP": {"core_energy": (0.6, 0.2)},
    "architecture:Hopper": {"sm_clock_energy": (1.4, 0.3), "leakage": (0.2, 0.5)},
    "architecture:Blackwell": {"sm_clock_energy": (1.4, 0.4), "leakage": (0.2, 0.5)},
}
"""Prior factors of tags: (centre, sd of the log); see `docs/physics.md`, Constants:
newer matrix instructions, memory types per byte, process nodes per core operation."""

_PASSES: Final = {"startup_seconds": 1.65, "startup_power": 60.0}
_BURSTS: Final = {
    "burst": 72.0,
    "floor_seconds": 3e-6,
    "floor_seconds_fp8_block": 1e-3,
}
INSTRUMENTS: Final[Mapping[str, Mapping[str, float]]] = {
    "a100": _PASSES,
    "a100_dvfs": _PASSES,
    "a10": {"startup_seconds": 1.1, "startup_power": 60.0},
    "h100": _PASSES,
    "sglang/0.5.10": _BURSTS,
    "vllm/0.24.0": _BURSTS,
    "vllm/0.22.0": {
        "floor_seconds": 3e-6,
        "floor_seconds_fp8_block": 100e-6,
        "settled_seconds": math.inf,
    },
    "sglang/0.5.10:gemm": {"weight_copies": 6.0},
    "vllm/0.24.0:gemm": {"weight_copies": 6.0},
    "vllm/0.22.0:gemm": {"weight_copies": 6.0, "settled_seconds": 1e-3},
    "vllm/0.22.0:moe": {"settled_seconds": 333e-6},
}
"""Measurement models by campaign, or campaign:op. Passes: the window holds the start of
the worker process (`docs/physics.md`, Instruments; h100 taken to be like a100).
Kernel campaigns: sets of weights cycled through, kernels in a burst, the time below
which the launch loop is measured instead, and the time above which the power sensor's
window holds this kernel alone."""
