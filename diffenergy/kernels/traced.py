"""Kernels of a trace of which only the time is known.

A `traced` kernel keeps its time as a path that no clock moves; shares of the peaks of
tensor pipes, instructions, L2 and DRAM by class (`TRACE`, estimates) give its power.
"""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..corrections import Corrections
from ..hardware import GpuSpec, unit_rates
from ..physics import Demand, make_demand
from ..records import Record, as_float
from ..units import us
from . import _rates
from ._launch import Context, Fields, Launches, with_candidates
from ._ops import UNKNOWN_CLASS, Field, Op
from ._registry import trace_classes

_OF_UNKNOWN: Final = (0.15, 0.2, 0.35, 0.4)


def shares() -> dict[str, tuple[float, float, float, float]]:
    """Class -> share of the peak of tensor pipes, instruction slots, L2 and DRAM that
    its kernels keep busy. Estimates: round figures between those that this model gives
    the kernels of an eager BERT, ViT and Qwen pass; they decide power alone."""
    by_class = {name: trace.shares for name, trace in trace_classes().items()}
    return by_class | {UNKNOWN_CLASS: _OF_UNKNOWN}


OPS: Final = (
    Op(
        "traced",
        (
            Field("class", "text", UNKNOWN_CLASS, choices=lambda: tuple(shares())),
            Field("traced_us", minimum=0.0, whole=False),
        ),
    ),
)


class Traced(Record):
    """Time of kernels, and how busy their class keeps the units."""

    time: Float[Array, "*k"] = eqx.field(converter=as_float)  # s
    tensor: Float[Array, "*k"] = eqx.field(converter=as_float)
    issue: Float[Array, "*k"] = eqx.field(converter=as_float)
    l2: Float[Array, "*k"] = eqx.field(converter=as_float)
    dram: Float[Array, "*k"] = eqx.field(converter=as_float)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row, of a time of at least a nanosecond."""
    time = np.maximum(np.asarray(fields["traced_us"], float), 1e-3) * us
    of = shares()
    busy = np.array([of[str(name)] for name in fields["class"]]).reshape(-1, 4)
    columns = {"time": time} | dict(
        zip(("tensor", "issue", "l2", "dram"), busy.T, strict=True)
    )
    return [Launches(Traced, columns, np.zeros_like(time), host="stream")]


def demand(shape: Traced, gpu: GpuSpec, c: Corrections) -> Demand:
    """The traced time as a path that no clock moves, launch included; work = share x
    peak x time at the highest clock, for the power alone."""
    s = with_candidates(shape)
    rates = unit_rates(gpu, gpu.sm_clock_max, gpu.mem_clock)
    bf16 = jnp.full_like(s.time, _rates.BF16, int)
    peak = _rates.tensor_peak(gpu, bf16)
    return make_demand(
        tensor=s.tensor * peak * rates.cycles * s.time,
        issue=s.issue * rates.issue * s.time,
        l2=s.l2 * rates.l2 * s.time,
        dram=s.dram * rates.dram * s.time,
        tensor_peak=peak,
        tensor_efficiency=1e3,  # the time, not the rates, says how long it takes
        issue_efficiency=1e3,
        l2_sharing=1e3,
        ctas=gpu.num_sms,
        quantization=0.0,
        path_seconds=s.time,
        sharpness_memory=24.0,  # beside it memory adds nothing
        launches=0.0,
        tensor_energy=_rates.tensor_energy(c, bf16),
    )
