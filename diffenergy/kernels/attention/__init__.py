"""Fused attention: prefill (context) and decode (generation) with split KV.

Rows of a tile are (position, group member) pairs, so one read of K and V serves a group
of G = num_heads/num_kv_heads queries. FlashAttention 2 (`family` has `fa2`) packs them
for single queries without a window alone; else G = 1 there, and every query head reads
K and V itself. Below, heads = batch num_heads/G and d = head_dim. A window of at least
the KV length runs the plain kernel. An fp8 cache means fp8 math on wgmma and later;
mma.sync widens it. d_v = `v_head_dim` is the width of values (d if not said). With
`shared_kv` the values are the first d_v of the keys (MLA in its absorbed form: one KV
head, d = 576, d_v = 512): kv = d elements of a token and KV head are stored and read,
else kv = d + d_v. A sink (`sinks`) is a term of a row's sum and costs nothing.

Rules and constants are fitted by this project on the public AIConfigurator attention
tables (five GPUs).
"""

from typing import Final

import numpy as np

from ...corrections import Corrections
from ...dtypes import BYTES
from ...hardware import GpuSpec
from ...physics import Demand
from .._launch import Context, Fields, Launches, as_floats, take_rows, with_candidates
from .._ops import Field, Op, Row, TraceClass, same_as
from ._cache_writes import CacheWrite, cache_writes, write
from ._decode import decode
from ._prefill import prefill
from ._shape import Attention, Decode, Prefill, pair


def _fields(prefill: bool) -> tuple[Field, ...]:
    return (
        Field("batch", default=1.0),
        Field("q_len") if prefill else Field("q_len", default=1.0),
        Field("kv_len", default=same_as("q_len")) if prefill else Field("kv_len"),
        Field("num_heads"),
        Field("num_kv_heads", default=same_as("num_heads"), divides=("num_heads",)),
        Field("head_dim"),
        Field("v_head_dim", default=same_as("head_dim")),
        Field("window_size", default=0.0, minimum=0.0),
        Field("causal", "bool", True),
        Field("shared_kv", "bool", False),
        Field("sinks", "bool", False),
        Field("dtype", "dtype"),
        Field("kv_cache_dtype", "dtype", same_as("dtype")),
    )


def forward_flop(k: Row) -> float:
    """FLOP of both products of the pairs that mask and window leave."""
    visible = k["kv_len"]
    if k["causal"]:
        visible = k["kv_len"] - (k["q_len"] - 1) / 2
    if k["window_size"]:
        visible = min(visible, k["window_size"])
    pairs = k["batch"] * k["num_heads"] * k["q_len"] * visible
    return 2.0 * pairs * (k["head_dim"] + k["v_head_dim"])


NAMED: Final = ("batch", "q_len", "kv_len", "num_heads", "head_dim")
OPS: Final = tuple(
    Op(
        name,
        _fields(name == "context_attention"),
        NAMED,
        products=True,
        part="attention",
        model_flop=forward_flop,
    )
    for name in ("context_attention", "generation_attention")
)
TRACE: Final = TraceClass(
    "attention",
    {
        30: r"flash(?!infer)|(?:prefill|decode)_?with|fmha|attn|attention|paged"
        r"|mha(?![a-z])"
    },
    shares=(0.35, 0.25, 0.3, 0.25),
    matrix=True,
)

_EARLY: Final = "fa1"
_TORCH: Final = "sdpa"
"""Parts of `family` of older kernels of training programs."""
_UNPACKED: Final = "fa2"
"""Part of `family` of the kernels whose tiles hold rows of one query head."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row; queries of several positions go to the prefill kernel. A sink
    is one more term of a row's sum of exponentials, and costs nothing."""
    columns = {
        name: fields[name]
        for name in Attention.__dataclass_fields__
        if name not in ("causal", "distance", "unpacked", "early", "torch")
    }
    columns["shared_kv"] = as_floats(columns["shared_kv"])
    family = fields["family"].astype(str)
    for name, word in (("unpacked", _UNPACKED), ("early", _EARLY), ("torch", _TORCH)):
        columns[name] = as_floats(np.char.find(family, word) >= 0)
    columns["causal"] = as_floats(fields["causal"])
    columns["distance"] = context.pass_bytes
    decode = (
        np.full(len(columns["q_len"]), False)
        if op == "context_attention"
        else columns["q_len"] == 1
    )
    size = np.asarray(BYTES)[columns["kv_cache_dtype"]]
    kv = columns["batch"] * columns["num_kv_heads"] * columns["kv_len"]
    touched = kv * pair(columns) * size
    launches = []
    for shape, rows in ((Prefill, ~decode), (Decode, decode)):
        index = np.flatnonzero(rows)
        if index.size:
            launches.append(
                Launches(
                    shape,
                    take_rows(columns, index),
                    touched[index],
                    "matrix",
                    rows=index,
                )
            )
    launches += cache_writes(columns, fields)
    return launches


def demand(shape: Attention | CacheWrite, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work of the kernel that the shape runs; shape (kernels, 1)."""
    s = with_candidates(shape)
    if isinstance(s, CacheWrite):
        return write(s, gpu, c)
    return decode(s, gpu, c) if isinstance(shape, Decode) else prefill(s, gpu, c)
