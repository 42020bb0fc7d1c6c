"""Priors by tag of a GPU, and the measurement models of known campaigns."""

from collections.abc import Mapping
from typing import Any, Final

from .sensors import SENSOR_CONSTANTS

_NEWER_HOST: Final = {
    f"dispatch_{what}": (0.55, 0.3) for what in ("stream", "matrix", "module", "pass")
}
"""Hosts of H100 boards need 17 us for a listed operator, those of the A100 33 us."""
PRIOR_FACTORS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "mma:wgmma": {
        "operand_half_tile": (0.3, 0.4),
        "gemm_cycles": (0.5, 0.3),
        "stream_feed": (1.4, 0.2),
        "store_exposed": (0.17, 0.6),
    },
    "mma:tcgen05": {  # beyond wgmma
        "gemm_cycles": (0.8, 0.3),
        "stream_feed": (1.3, 0.2),
        "store_exposed": (0.6, 0.5),
    },
    "memory:HBM2e": {"energy_dram": (0.95, 0.1)},
    "memory:HBM3": {"energy_dram": (0.85, 0.1)},
    "memory:HBM3e": {"energy_dram": (0.8, 0.1)},
    "memory:GDDR5": {"energy_dram": (1.8, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR5X": {"energy_dram": (1.6, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR6": {"energy_dram": (1.3, 0.15), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR6X": {"energy_dram": (1.4, 0.2), "dram_efficiency": (0.64, 0.4)},
    "memory:GDDR7": {"energy_dram": (1.0, 0.3), "dram_efficiency": (0.64, 0.4)},
    "node:28nm": {"core_energy": (2.5, 0.3)},
    "node:16nm": {"core_energy": (1.5, 0.2)},
    "node:12nm": {"core_energy": (1.25, 0.2)},
    "node:8nm": {"core_energy": (1.15, 0.2)},
    "node:5nm": {"core_energy": (0.7, 0.2)},
    "node:4N": {"core_energy": (0.65, 0.2)},
    "node:4NP": {"core_energy": (0.6, 0.2)},
    "architecture:Ada": {"core_energy": (1.2, 0.3), "tensor_efficiency": (1.0, 0.8)},
    "architecture:Hopper": {
        "sm_clock_energy": (1.4, 0.3),
        "leakage": (0.2, 0.5),
        **_NEWER_HOST,
    },
    "architecture:Blackwell": {
        "sm_clock_energy": (1.4, 0.4),
        "leakage": (0.2, 0.5),
        **_NEWER_HOST,
    },
}
"""Prior factors of tags: (centre, sd of the log); see `docs/physics.md`, Constants:
newer matrix instructions, memory types per byte, process nodes per core operation."""

_PASSES: Final = {"startup_seconds": 1.65, "startup_power": 60.0}
_BURSTS: Final = {"burst": 72.0, "floor_seconds": 3e-6}
_BLOCK_SOURCES: Final = {
    "loop_seconds_CutlassFp8BlockScaledMMKernel": 178e-6,
    "loop_seconds_DeepGemmFp8BlockScaledMMKernel": 89e-6,
    "loop_seconds_FlashInferFp8BlockScaledMMKernel": 59e-6,
    "loop_seconds_TritonFp8BlockScaledMMKernel": 330e-6,
    "floor_seconds_fp8_block": 500e-6,
}
_COPIES: Final = {
    "weight_copies": 6.0,
    "weight_copies_fp8_block": 1.0,
    "weight_copies_nvfp4": 1.0,
}
_ATTENTION: Final = {
    "power_seconds": 333e-6,
    "loop_body": 70e-6,
    "background": 150.0,
    "gap": 0.3,
    "gap_sequence": 1e-4,
    "gap_byte": 3e-11,
}
INSTRUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "a100": _PASSES,
    "a100_dvfs": _PASSES,
    "a10": {"startup_seconds": 1.1, "startup_power": 60.0},
    "h100": _PASSES,
    "sglang/0.5.10": _BURSTS,
    "sglang/0.5.10:gemm": _COPIES,
    "vllm/0.24.0": _BURSTS,
    "vllm/0.24.0:gemm": {**_COPIES, **_BLOCK_SOURCES},
    "vllm/0.24.0:gemm@b200-sxm": {
        "loop_seconds_CutlassFp8BlockScaledMMKernel": 164e-6,
        "loop_seconds_DeepGemmFp8BlockScaledMMKernel": 226e-6,
    },
    "vllm/0.22.0": {"floor_seconds": 3e-6, "power_seconds": 1e9},
    "vllm/0.22.0:gemm": {
        **_COPIES,
        "loop": 6.0,
        "loop_fp8_block": 1.0,
        "loop_body": 270e-6,
        "loop_body_fp8_block": 70e-6,
        "loop_seconds_fp8_block": 74e-6,
        "floor_seconds_fp8_block": 100e-6,
        "power_seconds": 20e-6,
        "power_seconds_fp8_block": 100e-6,
        **{
            name: field.default
            for name, field in SENSOR_CONSTANTS.items()
            if not name.startswith("gap")
        },
    },
    "vllm/0.22.0:context_attention": {
        **_ATTENTION,
        "first_q_len": 16384.0,
        "first_length": 3.0,
    },
    "vllm/0.22.0:generation_attention": _ATTENTION,
    "vllm/0.22.0:moe": {**_ATTENTION, "background": 140.0, "gap": 0.02},
}
"""Measurement models by campaign, campaign:op or campaign:op@gpu; a key may end in a
dtype or kernel source. Passes: the window holds the start of the worker process
(`docs/physics.md`, Instruments; h100 taken to be like a100). Kernel campaigns: sets of
weights cycled through, kernels in a burst, the launch loop's own time, the shortest
kernel that is fitted and the shortest whose power is, how power runs were planned, and
the constants of their `Sensor`."""
