"""Collectives among the GPUs of one machine: all-reduce, all-gather, ... (NCCL)."""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ..corrections import Corrections
from ..dtypes import BYTES
from ..hardware import GpuSpec
from ..physics import (
    LINK_KINDS,
    LINK_TAU,
    Demand,
    link_candidates,
    link_costs,
    link_kind,
    make_demand,
)
from ..records import Record, as_float, as_index
from ._launch import Context, Fields, Launches
from ._ops import Field, Op, TraceClass

OPS: Final = (
    Op(
        "collective",
        (
            Field("collective", "text"),
            Field("bytes"),
            Field("num_gpus"),
            Field("dtype", "dtype", "bf16"),
            Field("link_rate", default=0.0, minimum=0.0, whole=False),
            Field("axis", "text", "", quiet=True),  # of a plan; no kernel's matter
        ),
        part="communication",
    ),
)
TRACE: Final = TraceClass(
    "collective",
    {
        10: r"nccl|rccl|multimem|all_?reduce|all_?gather|reduce_?scatter"
        r"|cross_device_reduce|nvshmem"
    },
    shares=(0.0, 0.05, 0.1, 0.15),
)
_KINDS: Final = tuple(LINK_KINDS)
_CTAS: Final = 24.0
"""CTAs (NCCL: channels) of a collective: estimate; NCCL takes up to 32."""
_PASSES: Final = 2.0
"""DRAM bytes of a GPU per byte on its link: what leaves is read, what comes is
written."""
_SHARP: Final = 24.0
"""Sharpness of link and DRAM: the fitted times hold the memory's part already."""


class Collective(Record):
    """Collectives as columns."""

    kind: Int[Array, "*k"] = eqx.field(converter=as_index)  # into `LINK_KINDS`
    size: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    ranks: Float[Array, "*k"] = eqx.field(converter=as_float)
    narrow: Float[Array, "*k"] = eqx.field(converter=as_float)  # 1: 8 bits or fewer
    rate: Float[Array, "*k"] = eqx.field(converter=as_float)
    """B/s of a slower link on the way; 0: all are the GPU's."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row."""
    named = zip(fields["collective"], fields["family"], strict=True)
    kinds = [_KINDS.index(link_kind(str(name), str(family))) for name, family in named]
    columns = {
        "kind": np.array(kinds, int),
        "size": np.asarray(fields["bytes"], float),
        "ranks": np.asarray(fields["num_gpus"], float),
        "rate": np.asarray(fields["link_rate"], float),
        "narrow": (np.asarray(BYTES)[fields["dtype"]] < 2.0).astype(float),
    }
    return [Launches(Collective, columns, columns["size"], host="stream")]


def demand(shape: Collective, gpu: GpuSpec, c: Corrections) -> Demand:
    """Candidates are algorithms and protocols (`physics.links`); shape (kernels, 4).

    No clock changes the fitted times, which hold the launch.
    """
    costs = link_costs(gpu, shape.kind)
    rate = jnp.where(shape.rate > 0, shape.rate, gpu.link_bandwidth)
    candidates = link_candidates(
        shape.kind, shape.size, shape.ranks, shape.narrow, rate, costs
    )
    stored = _PASSES * candidates.traffic
    return make_demand(
        link=candidates.traffic,
        dram=stored,
        l2=stored,
        l2_sharing=1e3,
        ctas=jnp.minimum(_CTAS, gpu.num_sms),
        path_seconds=candidates.time,
        launches=0.0,
        sharpness_memory=_SHARP,
        choice=candidates.choice,
        illegal=candidates.illegal,
        tau=LINK_TAU,
    )
