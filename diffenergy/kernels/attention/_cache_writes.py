"""Kernels that write new keys and values beside attention.

Frameworks named `vllm/0.24..` also write the new keys and values to the cache and round
fp8 queries (not FlashInfer, Triton, FlashAttention 2: they widen instead) inside the
timed region. A CTA of min(kv/2, 512) threads writes a token, kv elements, behind a
chain of loads (its place in the cache, its data, their scale):

    kernels = 1 + (fp8 queries) + (fp8, d = 128, FlashAttention 3)     0: TensorRT-LLM
    waves   = max(tokens/(N resident CTAs), 1)
    fixed   = 0.8 us kernels + 4,000 cycles waves
    issue   = 37 lane instructions an element of K and V (x 2 at fp8), 16 of fp8 Q

No `launch` beside: 0.8 us is what one more kernel takes in a replayed graph. Read off
1,400 shapes that the public AIConfigurator tables of an H200 have twice, with and
without these kernels. That fp8 of d = 128 takes one more, at all lengths, is measured,
its cause unknown. Kernels of TensorRT-LLM start before the one ahead ends: on a B200
fp8 takes 0.1 to 0.2 us more than bf16 in short calls, where an H100 takes 0.7.
"""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ... import smooth
from ...corrections import Corrections
from ...dtypes import BYTES
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import Record, as_float
from .._launch import Fields, Launches, take_rows
from .._residency import missed_when_new
from ._kernel import FP8
from ._shape import pair

_WRITES: Final = "vllm/0.24"
_KERNEL: Final = 0.8e-6
"""Time of one more kernel in a replayed graph (s)."""
_CHAIN: Final = 4000.0
"""Latency of a CTA that writes a token (cycles): what it reads lies in L2."""
_THREADS: Final = 512.0
"""Most threads of a CTA (vLLM's `reshape_and_cache_flash`)."""
_WRITE: Final = 37.0
"""Lane instructions to write one element of K or V to the cache (twice at fp8)."""
_WRITE_FP8: Final = 2.0
"""Cost of an element at fp8 / at 16 bits."""
_ROUND: Final = 16.0
"""Lane instructions to round one element of Q to fp8."""
_WIDENED: Final = ("fiprefill", "fidecode", "triton", "fa2")
"""Kernels that widen fp8 keys and values instead (parts of `family`)."""
_OVERLAPPED: Final = "trtllm"
"""Part of `family` of kernels that start before the one ahead ends."""
_AGAIN: Final = ("fa3", 128)
"""Part of `family`, and head size, of fp8 kernels that take one more."""


class CacheWrite(Record):
    """New keys and values of a cache, and queries that are rounded beside them."""

    tokens: Float[Array, "*k"] = eqx.field(converter=as_float)
    pair: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Elements of a token in the cache, K and V of all heads."""
    queries: Float[Array, "*k"] = eqx.field(converter=as_float)  # rounded elements
    size: Float[Array, "*k"] = eqx.field(converter=as_float)  # B of a cached element
    kernels: Float[Array, "*k"] = eqx.field(converter=as_float)


def cache_writes(columns: dict[str, np.ndarray], fields: Fields) -> list[Launches]:
    """The kernels that write new keys and values to the cache and round fp8 queries, as
    one launch, where the framework runs them in the timed region."""
    rows = np.flatnonzero(np.char.startswith(fields["framework"].astype(str), _WRITES))
    if not rows.size:
        return []
    new = take_rows(columns, rows)
    fp8 = new["kv_cache_dtype"] == FP8
    tokens = new["batch"] * new["q_len"]
    elements = new["num_kv_heads"] * pair(new)
    family = fields["family"][rows].astype(str)
    widened = np.any([np.char.find(family, name) >= 0 for name in _WIDENED], axis=0)
    rounded = fp8 & ~widened
    queries = rounded * tokens * new["num_heads"] * new["head_dim"]
    part, size = _AGAIN
    early = np.char.find(family, _OVERLAPPED) >= 0
    again = fp8 & (np.char.find(family, part) >= 0) & (new["head_dim"] == size)
    size = np.asarray(BYTES)[new["kv_cache_dtype"]]
    written = {
        "tokens": tokens,
        "pair": elements,
        "queries": queries,
        "size": size,
        "kernels": np.where(early, 0.0, 1.0 + rounded + again),
    }
    moved = (2 + size) * (tokens * elements + queries)
    return [Launches(CacheWrite, written, moved, host="none", rows=rows)]


def write(s: CacheWrite, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work of the kernels; no candidates but one, shape (kernels, 1)."""
    elements = s.tokens * s.pair
    threads = jnp.minimum(s.pair / 2, _THREADS)
    resident = jnp.minimum(gpu.max_threads_per_sm / threads, gpu.max_ctas_per_sm)
    waves = smooth.at_least_one(s.tokens / (gpu.num_sms * resident))
    once = (2 + s.size) * (elements + s.queries)
    fp8 = s.size < 2
    return make_demand(
        issue=_WRITE * elements * jnp.where(fp8, _WRITE_FP8, 1.0) + _ROUND * s.queries,
        l2=once,
        dram=once * missed_when_new(once, gpu, c),
        feed=c.stream_feed,
        ctas=s.tokens,
        resident=resident,
        quantization=0.0,
        launches=0.0,
        fixed_seconds=_KERNEL * s.kernels,
        fixed_cycles=_CHAIN * waves,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
    )
