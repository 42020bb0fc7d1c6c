"""`Demand` of a row, field by field, against hand arithmetic.

Constants are round numbers, and L2 is made all too small (`COLD`) or all too large
(`WARM`), so that misses are 1 or 0 and every expected value is a product of the shape.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.corrections import Corrections
from diffenergy.hardware import load_gpu
from diffenergy.physics import Demand

H200, A100 = load_gpu("h200-sxm"), load_gpu("a100-pcie-40gb")
V5E = load_gpu("tpu-v5e")
"""One core with four systolic arrays of 128 x 128."""
H200_SMS, A100_SMS = 132, 108
COLD = dict(l2_share=1e-6, l2_producer_share=1e-6, l2_sharpness=50.0)
WARM = dict(l2_share=1e6, l2_producer_share=1e6, l2_sharpness=50.0)
NO_WAVES = dict(wave_traffic=0.0)
"""No traffic beyond reading each datum once."""
ONCE = compiler_options(once=True)


@functools.cache
def lowered(module: Any) -> Callable[..., Demand]:
    """`demand` of a class, compiled once for all tests."""
    return jax.jit(module.demand, compiler_options=ONCE)


def shape_of(phases, kind: type, *rows: dict[str, Any]) -> Any:
    """The shape record of a class that rows of one phase lower to."""
    work = phases(list(rows))
    (group,) = [i for i, shape in enumerate(work.shapes) if type(shape) is kind]
    real = work.groups[group].count > 0
    return jax.tree.map(lambda x: x[real], work.shapes[group])


def demand_of(module: Any, shape: Any, gpu: Any, **constants: Any) -> Demand:
    return lowered(module)(shape, gpu, Corrections(**constants))


def check(demand: Demand, row: int = 0, **expected: float) -> None:
    """Every given field of the first candidate."""
    got = {name: float(getattr(demand, name)[row, 0]) for name in expected}
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-20)


ATTENTION = dict(
    prefill_efficiency=0.5, prefill_exp=2.0, prefill_mask=0.5, prefill_feed=64.0,
    prefill_own=1000.0, prefill_query=64.0, prefill_query_fast=0.5, prefill_fill=0.25,
    prefill_cycles=7000.0, prefill_schedule=1e-8, fp8_efficiency=0.8,
    transpose_rate=32.0, decode_efficiency=0.8, decode_exp=0.5, decode_own=2000.0,
    decode_own_head=10.0, decode_own_fp8=0.75, decode_own_local=3000.0,
    decode_flow=200.0, decode_cycles=6000.0, decode_cycles_local=1700.0,
    decode_schedule=2e-8, energy_tensor=1e-12, energy_fp8=0.6, prefill_sharpness=4.0,
    prefill_serial=1.5, decode_sharpness=4.5, decode_serial=1.25,
)  # fmt: skip
"""Constants of fused attention, each with a number of its own."""
HEADS = dict(num_heads=32, num_kv_heads=8, head_dim=128)


def decode_row(sample, **options: Any) -> dict[str, Any]:
    """Attention of 16 sequences to their caches of 8,192 positions."""
    return sample(
        "generation_attention", **({"batch": 16, "kv_len": 8192} | HEADS | options)
    )
