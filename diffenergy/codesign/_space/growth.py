"""A GPU that grows out of another one: what else changes when a number does."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from jax import Array

from ...hardware._spec import GpuSpec

TENSOR_RATES: Final = tuple(
    f"tensor_flop_per_cycle_{dtype}"
    for dtype in ("bf16", "fp16", "tf32", "fp8", "int8", "fp4")
)
FOLLOWERS: Final = {
    "num_sms": ("l2_bytes_per_cycle",),
    "smem_per_sm": ("l1_capacity",),
    "dram_bandwidth": ("dram_capacity",),
    "tdp": ("power_limit_max",),
    **{rate: TENSOR_RATES for rate in TENSOR_RATES},
}
"""Numbers that change in proportion with another one unless they are varied themselves:
every SM brings its port to L2 (A100 35.6, H100 34.5 B/cycle a SM), shared memory and L1
are one array, a stack or channel of DRAM brings its capacity, and a tensor core of
twice the rate has it in every type (the first varied type leads)."""


def grown(base: GpuSpec, values: Mapping[str, Array]) -> GpuSpec:
    """`base` with `values` (SI) and what follows them; without static power."""
    changes = dict(values)
    for lead, value in values.items():
        for name in FOLLOWERS.get(lead, ()):
            if name not in changes:
                changes[name] = getattr(base, name) * value / getattr(base, lead)
    return dataclasses.replace(base, **changes)
