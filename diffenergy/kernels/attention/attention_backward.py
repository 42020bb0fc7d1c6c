"""Gradients of fused attention: FlashAttention's backward kernel.

It recomputes the scores tile by tile and makes five products where the forward kernel
makes two (S = Q K^T, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q; arXiv
2307.08691, algorithm 2), three of them as deep as keys, two as values. Tiles, masks and
constants are those of the forward kernel, no campaign has measured the backward one
apart.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from ...corrections import Corrections
from ...dtypes import BYTES
from ...hardware import GpuSpec
from ...physics import Demand
from .. import _rates, attention
from .._launch import Context, Fields, Launches, with_candidates
from .._ops import Op
from .._residency import missed_when_new
from ..stream import stream_launches


def _wrong(kernel: Mapping[str, Any]) -> str:
    """Why a forward kernel has no backward one here."""
    if kernel["shared_kv"]:
        return "`shared_kv` is true; a cache has no gradients, write false"
    return ""


OPS: Final = (
    Op(
        "attention_backward",
        attention.OPS[0].fields,
        attention.NAMED,
        wrong=_wrong,
        model_flop=lambda k: 2 * attention.forward_flop(k),  # scores not made again
    ),
)

_EFFICIENCY: Final = 0.63 / 0.73
"""Rate of the products, backward / forward: 63 and 73 % of an A100's peak at best
(arXiv 2307.08691, section 1)."""
_LOADS: Final = 3.0
"""Bytes between L2 and the SMs, backward / forward: a pair of tiles moves Q, dO (two
16-bit tiles, like K and V) and adds to dQ (read and write in fp32, twice as many)."""
_ACCUMULATED: Final = 4.0
"""Bytes of an element of dQ while it is summed (fp32)."""


class Backward(attention.Prefill):
    """Gradients of attention of many query positions."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """The kernel, and as one launch those around it: dO times O summed by row, the
    zeros of dQ's sums before, and their rounding after."""
    forward, *_ = attention.lower("context_attention", fields, context)  # no cache
    size = np.asarray(BYTES)[fields["dtype"]]
    positions = fields["batch"] * fields["num_heads"] * fields["q_len"]
    queries = positions * fields["head_dim"]
    outputs = positions * fields["v_head_dim"]
    around = stream_launches(
        outputs * 2 * size + queries * _ACCUMULATED,
        queries * (size + _ACCUMULATED),
        host="none",
        issue=(queries + outputs) * 4.0,
    )
    touched = 2 * forward.bytes
    touched += queries * (size + _ACCUMULATED) + outputs * 2 * size
    return [dataclasses.replace(forward, shape=Backward, bytes=touched), around]


def demand(shape: Backward, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work of the kernel; shape (kernels, 1)."""
    forward = attention.demand(shape, gpu, c)
    s = with_candidates(shape)
    e = _rates.bytes_of(s.dtype)
    d, d_v = s.head_dim, s.v_head_dim
    products = (3 * d + 2 * d_v) / (d + d_v)  # backward / forward
    positions = s.batch * s.num_heads * s.q_len
    queries, outputs = positions * d, positions * d_v
    keys = s.batch * s.num_kv_heads * s.kv_len * (d + d_v)
    once = (queries + outputs) * e + queries * _ACCUMULATED + 2 * keys * e
    miss = missed_when_new(once, gpu, c)
    stored = queries * _ACCUMULATED + keys * e
    return dataclasses.replace(
        forward,
        tensor=products * forward.tensor,
        tensor_efficiency=_EFFICIENCY * forward.tensor_efficiency,
        smem=products * forward.smem,
        l2=_LOADS * forward.l2,
        dram=(queries + outputs + keys) * e * miss,
        store_l2=keys * e,
        store_dram=stored * miss,
        own_cycles=products * forward.own_cycles,
        launches=jnp.ones_like(forward.launches),
    )
