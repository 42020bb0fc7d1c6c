"""Kernels of a layer of experts that pass over its rows.

Paid once: `moe_cycles` (`moe_cycles_fp8`, `moe_cycles_block`: small kernels of a
layer), `moe_sorting` cycles, and `moe_align` R + `moe_expert` experts seconds. Where
4 R <= experts and all experts are here, nothing is sorted (vLLM's `fused_moe.py`) and
`moe_sorting` falls away. The kernels over rows pull `moe_stream` B/cycle/SM, except
that a byte of quantisation takes `moe_quantise` (`moe_quantise_block`) times as long;
DRAM takes what L2 misses, as in streams.
"""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...dtypes import DTYPES
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import Record, as_float, as_index
from .. import _rates
from .._residency import missed_when_new
from ..stream import CTA_BYTES

_FP8_BLOCK: Final = DTYPES.index("fp8_block")


class Rows(Record):
    """A kernel over the rows of a layer (token x choice): all, on this rank or not, or
    those that were sent to it."""

    is_light = True
    """Whether more of them cost hardly any time: one candidate each."""
    read: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    write: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    quantised: Float[Array, "*k"] = eqx.field(converter=as_float)
    """B of these in the quantisation of activations."""
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    sfu: Float[Array, "*k"] = eqx.field(converter=as_float)
    issue: Float[Array, "*k"] = eqx.field(converter=as_float)  # lane instructions
    first: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for the first kernel of a layer, which carries what is paid once."""
    sorts: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where rows are sorted by expert."""
    sorted: Float[Array, "*k"] = eqx.field(converter=as_float)  # rows
    experts: Float[Array, "*k"] = eqx.field(converter=as_float)  # of all ranks
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)


def of_width(dtype: Array, wide: Array, narrow: Array, blocks: Array) -> Array:
    """A constant by dtype: 16 bits and more, narrower, 8 bits with block scales."""
    of_narrow = jnp.where(dtype == _FP8_BLOCK, blocks, narrow)
    return jnp.where(_rates.bytes_of(dtype) < 2, of_narrow, wide)


def rows_demand(s: Rows, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1)."""
    compute = _rates.arithmetic(gpu, s.dtype)
    quantised = jnp.where(compute == s.dtype, s.quantised, 0.0)
    once = s.read + s.write - (s.quantised - quantised)
    # bytes in quantisation take longer (or shorter) than others
    slower = of_width(compute, as_float(1.0), c.moe_quantise, c.moe_quantise_block)
    effort = (once + (slower - 1) * quantised + 1) / (once + 1)
    away = missed_when_new(once, gpu, c)
    paid = of_width(compute, c.moe_cycles, c.moe_cycles_fp8, c.moe_cycles_block)
    paid = paid + c.moe_sorting * s.sorts
    sorting = c.moe_align * s.sorted + c.moe_expert * s.experts
    return make_demand(
        sfu=s.sfu,
        issue=s.issue,
        l2=once,
        dram=once * away,
        feed=c.moe_stream / effort,
        ctas=smooth.at_least_one(once / CTA_BYTES),
        quantization=0.0,
        launches=s.first,
        fixed_cycles=s.first * paid,
        fixed_seconds=sorting,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        activity=_rates.activity(c, s.zero_share),
    )
