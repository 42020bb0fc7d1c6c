"""`Stream`: kernels that pass over memory. No op of its own: other classes lower to it.

Element-wise kernels, copies, casts, gathers, norms and softmax pass over memory:

    l2   = read + write (+ read x reduction_reads for reductions)
    dram = (read + write) miss(read + write, l2_producer_share, l2_sharpness)
           (gather: all of it)
    time = pnorm over SM side (stream_feed B/cycle/SM) and DRAM, sharpness_stream

An element-wise kernel has one CTA per 16 KiB moved and no wave quantization; 4 lane
instructions an element, one special function for gelu, silu, tanh, exp, pow. Where an
operand is broadcast (selections, sums and products of one read, scalars in memory) each
element finds its own address: `strided_issue` instructions more, found by this project
in eager passes of GPT-2, which are 8 to 10 % too fast without it at 1,024 tokens on
A100 and H100 alike. Passes and streaming kernels alone move `stream_feed`: those beside
attention are too short to tell it. A reduction has one CTA a row (four rows where cols
<= 1024), cols/4 threads (128-1024), up to 16 resident, a critical path of
`reduction_latency` x `dram_latency`, and 8 (RMS norm) or 12 lane instructions an
element. The prior of `stream_feed` reproduces the copy rates published with EnergAIzer
for an A100, 825 GB/s at 510 MHz and 1,270 GB/s at 1,410 MHz.

An element that is read or written alone, by an access of its own width, takes the issue
slots of 42 instructions: as many requests are under way as of 16 B each. Such are the
elements of maps called `strided_...` (one access an operand; 1.45 times as long in
`cat`, whose kernel half fills an SM) and of softmax over whole rows of more than 1,024
elements that are no multiple of 16 B (three reads and a write). Traces of an H100 show
84 to 90 instructions an element of a copy and 180 of a softmax.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import Record, as_float, as_index
from .. import _rates
from .._launch import Host, Launches, with_candidates
from .._residency import missed_when_new


class Stream(Record):
    """Bytes and operations of streaming kernels."""

    is_light = True
    """Whether more of them cost hardly any time: one candidate each."""
    read: Float[Array, "*k"] = eqx.field(converter=as_float)  # B, each datum once
    write: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    cold: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where the data come from a large table (gather) and L2 never holds them."""
    ctas: Float[Array, "*k"] = eqx.field(converter=as_float)
    """CTAs of a reduction over rows, 0 for element-wise kernels."""
    threads: Float[Array, "*k"] = eqx.field(converter=as_float)  # per CTA
    fma: Float[Array, "*k"] = eqx.field(converter=as_float)  # FLOP, depthwise layers
    sfu: Float[Array, "*k"] = eqx.field(converter=as_float)
    issue: Float[Array, "*k"] = eqx.field(converter=as_float)  # lane instructions
    strided: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Elements with an operand that is broadcast: each finds its own address."""
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    makes: Int[Array, "*k"] = eqx.field(converter=as_index)
    """Type that operands of a product are made of here; nothing runs where the GPU has
    no products in it (bf16: always)."""


SCALAR_ACCESS = 42.0
"""Lane instructions' time of an element that is read or written alone, by a load of its
own width: as many requests are under way as of 16 B each, so that each costs as much.
PyTorch's kernels on an H100 take 84 to 90 an element of a strided copy (2 accesses, 9
and 19 million elements alike) and 180 of a softmax over odd rows (4): traces of Qwen1.5
and TimeSformer of AMD-AGI/TraceLens."""
CTA_BYTES = 16384.0
"""Bytes that a CTA of an element-wise kernel moves (256 threads, 4 x 16 B each)."""


def stream_launches(
    read: np.ndarray,
    write: np.ndarray,
    *,
    host: Host = "stream",
    rows: np.ndarray | None = None,
    **columns: np.ndarray | float,
) -> Launches:
    """`Stream` launches from columns; those not given are 0 (`threads`: 256, `makes`:
    bf16)."""
    defaults = {name: 0.0 for name in Stream.__dataclass_fields__}
    defaults |= {"threads": 256.0, "makes": float(_rates.BF16)}
    filled = {**defaults, **columns, "read": read, "write": write}
    size = np.shape(read)
    return Launches(
        Stream,
        {n: np.broadcast_to(np.asarray(v, float), size) for n, v in filled.items()},
        np.asarray(read + write, float),
        host=host,
        rows=rows,
    )


def demand(shape: Stream, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1).

    The SM side pulls `stream_feed` bytes a cycle (fits 825-1,270 GB/s of an A100 over
    510-1,410 MHz), DRAM gives its rate to what L2 does not hold of a producer's output.
    """
    s = with_candidates(shape)
    once, rows = s.read + s.write, s.ctas
    reduction = jnp.where(rows > 0, 1.0, 0.0)
    reread = s.read * c.reduction_reads * reduction
    away = missed_when_new(once, gpu, c)
    away = jnp.maximum(away, s.cold)
    ctas = jnp.where(rows > 0, rows, smooth.at_least_one(once / CTA_BYTES))
    resident = jnp.minimum(gpu.max_threads_per_sm / s.threads, gpu.max_ctas_per_sm)
    resident = (
        smooth.at_least_one(jnp.minimum(resident, 16.0)) * reduction + 1 - reduction
    )
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    there = jnp.where(_rates.arithmetic(gpu, s.makes) == s.makes, 1.0, 0.0)
    return make_demand(
        fma=s.fma,
        sfu=s.sfu,
        issue=there * (s.issue + c.strided_issue * s.strided),
        l2=there * (once + reread),
        dram=there * once * away,
        fma_peak=fma_peak,
        fma_efficiency=jnp.where(s.fma > 0, c.depthwise_efficiency, fma_efficiency),
        feed=c.stream_feed,
        ctas=jnp.where(there > 0, ctas, 1.0),
        resident=resident,
        launches=there,
        quantization=0.0,
        path_seconds=there * reduction * c.reduction_latency * gpu.dram_latency,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        training=c.training_stream,
        aging=c.training_progress,
        activity=_rates.activity(c, s.zero_share),
    )
