"""Fourier transforms: a kernel class as a newcomer would add it, for
`tests/kernels/test_added_class.py`. As `diffenergy/kernels/fft.py` it is complete.

A transform of n complex numbers has 5 n log2 n FLOP on CUDA cores and reads and writes
each number once.
"""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from diffenergy.corrections import Corrections
from diffenergy.hardware import GpuSpec
from diffenergy.kernels import Context, Field, Op
from diffenergy.kernels import _rates as rates
from diffenergy.kernels._launch import Fields, Launches, with_candidates
from diffenergy.kernels._ops import Row, TraceClass
from diffenergy.physics import Demand, make_demand
from diffenergy.records import Record, as_float

_BYTES: Final = 8.0
"""Of a complex number in single precision."""


def _flop(row: Row) -> float:
    return 5.0 * row["batch"] * row["n"] * float(np.log2(row["n"]))


OPS: Final = (
    Op("fft", (Field("batch", default=1.0), Field("n", minimum=2.0)), model_flop=_flop),
)
TRACE: Final = TraceClass("fft", {0: "vkfft|cufft"}, shares=(0.0, 0.4, 0.3, 0.6))


class Transform(Record):
    """Transforms as columns."""

    batch: Float[Array, "*k"] = eqx.field(converter=as_float)
    n: Float[Array, "*k"] = eqx.field(converter=as_float)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row."""
    columns = {name: fields[name] for name in ("batch", "n")}
    moved = 2 * _BYTES * fields["batch"] * fields["n"]
    return [Launches(Transform, columns, moved, host="matrix")]


def demand(shape: Transform, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work of the transforms, a CTA each; shape (kernels, 1)."""
    s = with_candidates(shape)
    moved = 2 * _BYTES * s.batch * s.n
    peak, efficiency = rates.fma_rate(gpu, c)
    return make_demand(
        fma=5.0 * s.batch * s.n * jnp.log2(s.n),
        fma_peak=peak,
        fma_efficiency=efficiency,
        l2=moved,
        dram=moved,
        feed=c.stream_feed,
        ctas=s.batch,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
    )
