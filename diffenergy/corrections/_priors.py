"""Priors by tag of a GPU, and the measurement models of known campaigns."""

import math
from collections.abc import Mapping
from typing import Any, Final

from ._sensors import SENSOR_CONSTANTS

_NEWER_HOST: Final = {
    f"dispatch_{what}": (0.55, 0.3) for what in ("stream", "matrix", "module", "pass")
}
"""Hosts of H100 boards need 17 us for a listed operator, those of the A100 33 us."""
ACTIVITY_CONSTANTS: Final[Mapping[str, float]] = {
    "activity_sharpness": 0.2,
    "memory_knee": 0.5,
    "activity_dram": 0.4,
    "activity_fp64": 0.5,
    "activity_branch": 0.5,
    **dict.fromkeys(("energy_fma", "energy_issue", "energy_l2", "energy_smem"), 1.0),
    "energy_sfu": 2.0,
    "energy_dram": 0.4,
    "sm_clock_energy": 0.7,
    "leakage": 0.7,
    "idle_scale": 0.4,
    "memory_idle": 1.0,
    "voltage_knee": 0.25,
    "voltage_slope": 0.7,
    "voltage_curvature": 0.7,
}
"""What rows of op `activity` move, with the sd of a GPU's own factor: a busy cycle of a
unit, as counters see it, costs something else on every GPU than work known from shapes.
These rows move nothing that other GPUs share."""
_COUNTED: Final = {name: (1.0, sd) for name, sd in ACTIVITY_CONSTANTS.items()}
_KNOWN_BY_COUNTERS: Final = (
    "v100-pcie-16gb",
    "quadro-rtx-8000",
    "gtx-1080-ti",
    "gtx-980",
    "titan-x-maxwell",
    "titan-xp",
    "k40c",
)
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
    **{f"gpu:{name}": _COUNTED for name in _KNOWN_BY_COUNTERS},
    "architecture:Kepler": {"tiled_l1": (0.83, 0.7)},  # its read-only path
    "architecture:GCN": {"tiled_l1": (1.67, 0.7), "tiled_smem": (1.0, 0.5)},
    "architecture:Pascal": {"simt_issue": (1.3, 0.1)},  # two instructions at once
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
_PRODUCT_CALLS: Final[Mapping[str, tuple[float, float]]] = {
    "p100-pcie-16gb": (44e-6, 45e-6),
    "v100-pcie-32gb": (32e-6, 26e-6),
    "t4": (26e-6, 25e-6),
    "a100-pcie-40gb": (24e-6, 22.5e-6),
    "h100-sxm": (22.5e-6, 24.5e-6),
}
"""Host of NeuSight's campaign by GPU, s: what a call of a batched product adds to its
kernel (2 % quantile of the readings less the 8 us that the shortest kernels run), and
what `nn.Linear` adds to that (difference of the 2 % quantiles; H100, where no linear
product is short: mean of A100, V100, T4)."""
_VECTOR_CALLS: Final[Mapping[str, tuple[float, float, float, float]]] = {
    "p100-pcie-16gb": (45e-6, 53.5e-6, 61.5e-6, 46.5e-6),
    "v100-pcie-32gb": (32.5e-6, 37.5e-6, 41e-6, 58.5e-6),
    "t4": (26e-6, 30.5e-6, 33.5e-6, 50e-6),
    "a100-pcie-40gb": (26.5e-6, 31.5e-6, 33.5e-6, 46.5e-6),
    "mi100": (16.5e-6, 20.5e-6, 22.5e-6, 29e-6),
}
"""Shortest reading of a call, s: two tensors, tensor and scalar, softmax, layer norm
(medians of the smallest add, mul, div; addu, mulu, divu; softmax; ln)."""
_EVENTS: Final = 12e-6
"""What such a reading adds to the kernel, s: 16 us of launch and events in large calls,
of which a launch is modelled already."""


def _calls() -> dict[str, dict[str, Any]]:
    """Measurement models of NeuSight's campaign: the host of a product adds to its
    kernel; of other operators the longer of host and kernel counts."""
    models: dict[str, dict[str, Any]] = {}
    for gpu, (product, linear) in _PRODUCT_CALLS.items():
        models[f"neusight:gemm@{gpu}"] = {
            "call_seconds": product,
            "call_seconds_linear": product + linear,
        }
    models["neusight:gemm@t4"]["burst"] = math.inf  # at its 70 W from the start
    for gpu, (tensors, scalar, softmax, norm) in _VECTOR_CALLS.items():
        own = {"softmax": softmax, "layernorm": norm, "elementwise": tensors}
        for op, shortest in own.items():
            models[f"neusight:{op}@{gpu}"] = {
                "call_seconds": _EVENTS,
                "loop_seconds": shortest - _EVENTS,
            }
        models[f"neusight:elementwise@{gpu}"] |= {
            f"loop_seconds_{word}u": scalar - _EVENTS
            for word in ("add", "mul", "div", "pow")
        }
    return models


INSTRUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "neusight": {"burst": 1.0},  # A100: 0.96 of its peak below 8 ms, 0.89 above 16
    **_calls(),
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
