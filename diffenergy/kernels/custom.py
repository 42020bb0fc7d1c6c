"""Kernels of which only FLOP and bytes are known.

A `custom` kernel is a roofline: FLOP at half of their peak beside bytes like those of a
stream.
"""

from typing import Final

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec
from ..physics import Demand, make_demand
from ..records import Record, as_float, as_index
from . import _rates
from ._launch import Context, Fields, Launches, as_floats, with_candidates
from ._ops import Field, Op, on_tensor_cores
from ._residency import missed_when_new
from .stream import CTA_BYTES

OPS: Final = (
    Op(
        "custom",
        (
            Field("flop", minimum=0.0, whole=False),
            Field("bytes", minimum=0.0, whole=False),
            Field("dtype", "dtype"),
            Field("tensor_core", "bool", on_tensor_cores),
            Field("fn", "text", ""),
        ),
        products=True,
        wrong=lambda x: (
            ""
            if x["flop"] + x["bytes"] > 0
            else "`flop` and `bytes` are both 0; give at least one of them"
        ),
    ),
)
_REACHED: Final = 0.5
"""Share of a math peak that a kernel of unknown make reaches: an estimate between hand
written kernels (0.2-0.4) and library products (0.6-0.9)."""
_CTA_FLOP: Final = 2.0 * 128 * 128 * 512
"""FLOP of a CTA of a kernel that computes: a tile of 128 x 128, 512 deep."""


class Custom(Record):
    """Work of kernels that no class knows."""

    flop: Float[Array, "*k"] = eqx.field(converter=as_float)
    bytes: Float[Array, "*k"] = eqx.field(converter=as_float)  # B, each once
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    tensor_core: Float[Array, "*k"] = eqx.field(converter=as_float)
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row."""
    columns = {
        "flop": fields["flop"],
        "bytes": fields["bytes"],
        "dtype": fields["dtype"],
        "tensor_core": as_floats(fields["tensor_core"]),
        "zero_share": fields["zero_share"],
    }
    return [Launches(Custom, columns, np.asarray(fields["bytes"]), host="matrix")]


def demand(shape: Custom, gpu: GpuSpec, c: Corrections) -> Demand:
    """The roofline t = max(FLOP/rate, bytes/bandwidth) with half the peak of the math;
    enough CTAs that no wave is half empty; shape (kernels, 1)."""
    s = with_candidates(shape)
    compute = _rates.arithmetic(gpu, s.dtype)
    tensor = s.tensor_core * _rates.on_tensor_cores(gpu, s.dtype)
    away = missed_when_new(s.bytes, gpu, c)
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    ctas = smooth.at_least_one(s.bytes / CTA_BYTES + s.flop / _CTA_FLOP)
    return make_demand(
        tensor=tensor * s.flop,
        fma=(1 - tensor) * s.flop,
        l2=s.bytes,
        dram=s.bytes * away,
        tensor_peak=_rates.tensor_peak(gpu, compute),
        tensor_efficiency=_REACHED * _rates.dtype_efficiency(c, compute),
        fma_peak=fma_peak,
        fma_efficiency=_REACHED * fma_efficiency,
        feed=c.stream_feed,
        ctas=ctas,
        quantization=0.0,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        tensor_energy=_rates.tensor_energy(c, compute),
        activity=_rates.activity(c, s.zero_share),
    )
