"""State mixers: gated delta rule, KDA, Mamba2 and short convolutions, in chunks
(prefill) or position by position (decode).

`scan`: gated delta rule (Qwen3-Next, Qwen3.5), KDA (Kimi Linear), Mamba2 and the short
convolutions before them. A head keeps a state of dk x dv (`head_dim` x `v_head_dim`;
Mamba2: N x P); g `groups` share q and k (Mamba2: C and B). Below, h heads, B sequences,
q positions, C = `chunk`, e bytes of `dtype`, S = B h dk dv the states' elements.

**Up to 8 positions** (decode, drafted tokens) the kernel steps from one to the next,
and the state's bytes bound it:

    FLOP  = 7 dk dv a position and head, on CUDA cores (decay, error, update, output);
            6 dk dv of Mamba2, which has no error
    bytes = 2 S e_state + B q (2 g dk e + 2 h dv e + gates)
            a gate is fp32: 2 a head; dk + 1 of KDA; 1 of Mamba2
    dram  = 2 S e_state miss(max(state + operands, pass), l2_share)
            + operands miss(operands, l2_producer_share)
    ctas  = B h ceil(dv/8)       path = q l2_latency + dram_latency
            as a stream: stream_feed, sharpness_stream

**More positions** run in c = ceil(q/C) chunks, the last one in full, as two launch
records:

*All chunks at once*, 5 launches (FLA; mamba_ssm: 4):

    FLOP  = 2 dk dv + C (6 dk + 4 dv) + 2/3 C^2 a position and head
            (Mamba2: 4 N P + 2 C P + 2 C N g/h)
    bytes = a position: q, k, v, o, gates; h (dk + 2 dv) e of w, u, new values;
                        2 h C (4 + e) of K K^T and its inverse
            (Mamba2: x, y, B, C, gates; 2 g C 4 of C B^T; 2 h 4 of sums of the decay)
            + c S e of chunk states (Mamba2: c S (e + 4), fp32 as made)
    ctas  = B h c        path = step_cycles (2 dk + C) e/128 + dram_latency

*In turn with the state*, 1 launch:

    FLOP  = 4 dk dv a position and head, of W S and K^T V
            (Mamba2: 2 N P/C, on CUDA cores)
    bytes = h (dk + 2 dv) e + g dk e a position (Mamba2: none)
            + the same of chunk states + 2 S e_state
    ctas  = B h ceil(dv/64)                     (Mamba2: B h ceil(N P/1024))
    path  = c (step_cycles (dk + C) e/128 + 2 dram_latency)
                                                (Mamba2: c dram_latency)

Bytes are l2_moved of L2 (q and k by every head) and, x miss at `l2_producer_share`, of
DRAM. Products run in tiles of C x 64 at `tensor_efficiency` with the operand feed of
GEMM, two CTAs an SM. A sequence of few heads fills few SMs, and its time is chunks x
path. *2 dram_latency*: w, then keys and values wait for memory in each chunk; the 2 was
chosen in view of FLA's published times on an H100 (flashinfer pull requests 3788, 3866,
3902: 8 and 64 heads, 2,048 to 65,536 positions), which these equations then meet at
priors to 15 % (8 heads) and 30 % (64, too fast). There is no constant of its own:
prefill shares those of GEMM and streams.

**Short convolution** (`short_conv`): `num_heads` channels with `head_dim` taps K: 2 K
FLOP an element on CUDA cores, input and output once, K - 1 positions of each channel
kept; one CTA per 16 KiB, as streams.
"""

from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ..corrections import Corrections
from ..dtypes import BYTES
from ..hardware import GpuSpec
from ..physics import Demand, make_demand
from ..records import Record, as_float, as_index
from . import _rates
from ._launch import Context, Fields, Launches, take_rows, with_candidates
from ._ops import Field, Op, TraceClass, same_as
from ._residency import missed, missed_when_new
from .gemm._operands import fragments
from .stream import CTA_BYTES

KINDS: Final = ("gated_delta", "kda", "mamba2", "short_conv")


def _either(fields: Mapping[str, Any], conv: Any, other: Any) -> Any:
    """`conv` where the kind is a short convolution, else `other` (scalars, columns)."""
    value = np.where(np.asarray(fields["kind"]) == "short_conv", conv, other)
    return value if value.ndim else value.item()


OPS: Final = (
    Op(
        "scan",
        (
            Field("kind", "text", choices=KINDS),
            Field("batch", default=1.0),
            Field("q_len"),
            Field("num_heads"),
            Field("head_dim"),
            Field("v_head_dim", default=lambda f: _either(f, 1.0, f["head_dim"])),
            Field("groups", default=same_as("num_heads"), divides=("num_heads",)),
            Field("chunk", default=64.0),
            Field("dtype", "dtype"),
            Field("state_dtype", "dtype", lambda f: _either(f, f["dtype"], "fp32")),
        ),
        named=("batch", "q_len", "num_heads", "head_dim"),
        products=True,
        part="attention",
    ),
)
TRACE: Final = TraceClass(
    "scan",
    {
        50: r"selective_scan|causal_conv1d|delta_rule|chunk_scan|ssd_|ssm(?![a-z])|rnn"
        r"|lstm|gru_|mamba"
    },
    shares=(0.1, 0.3, 0.3, 0.4),
    matrix=True,
)

_STEPPED: Final = 8.0
"""Positions up to which servers go one by one (decode, drafted tokens); an estimate."""
_BLOCK: Final = 64.0
"""Columns of the state in a CTA of the chunks in turn (FLA on Hopper)."""
_STEP_BLOCK: Final = 8.0
"""The same of a kernel that steps (FLA, `fused_recurrent`)."""
_WIDE: Final = 4.0
"""Bytes of fp32: gates, sums over a chunk, Mamba2's chunk states."""
_RESIDENT: Final = 2.0
"""CTAs of an SM: 255 registers of 128 threads, half of its register file each."""
_PASSED: Final = 1024.0
"""Elements of a state in a CTA of mamba_ssm's state passing (64 to 2,048, tuned)."""
_WAITS: Final = 2.0
"""Loads of a chunk of a delta rule that wait for DRAM in turn: w before its product
with the state, then keys and values. Chosen in view of FLA's times of 8 heads and 2,048
to 65,536 positions on an H100 (flashinfer pull request 3866), which grow by 1.9 us a
chunk, all kernels together."""
_IN_LANES: Final = 128.0
"""The same of a core with systolic arrays, whose vector unit has parts of so many
states side by side in its lanes; set."""


class Chunks(Record):
    """Kernels over chunks: all of them at once, or in turn with the state."""

    flop: Float[Array, "*k"] = eqx.field(converter=as_float)  # matrix products
    fma: Float[Array, "*k"] = eqx.field(converter=as_float)  # FLOP on CUDA cores
    moved: Float[Array, "*k"] = eqx.field(converter=as_float)  # B, each once
    l2_moved: Float[Array, "*k"] = eqx.field(converter=as_float)
    """B of L2: every head loads the q and k of its group."""
    ctas: Float[Array, "*k"] = eqx.field(converter=as_float)
    steps: Float[Array, "*k"] = eqx.field(converter=as_float)  # chunks of a CTA
    waits: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Loads of a CTA that wait for DRAM, one after the other."""
    depth: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Elements that the products of a chunk reduce over, one after the other."""
    chunk: Float[Array, "*k"] = eqx.field(converter=as_float)  # positions
    launches: Float[Array, "*k"] = eqx.field(converter=as_float)
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)


class Steps(Record):
    """A pass over a state, position by position, or a short convolution."""

    fma: Float[Array, "*k"] = eqx.field(converter=as_float)  # FLOP
    moved: Float[Array, "*k"] = eqx.field(converter=as_float)  # B beside the state
    l2_moved: Float[Array, "*k"] = eqx.field(converter=as_float)  # these, of L2
    state: Float[Array, "*k"] = eqx.field(converter=as_float)  # B, read and written
    ctas: Float[Array, "*k"] = eqx.field(converter=as_float)
    steps: Float[Array, "*k"] = eqx.field(converter=as_float)  # positions in turn
    distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes touched between two uses of the state."""
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch that steps, or two of chunks: at once and in turn."""
    f = dict(fields) | {"pass_bytes": context.pass_bytes}
    f["kind"] = f["kind"].astype(str)
    conv = f["kind"] == "short_conv"
    stepped = conv | (f["q_len"] <= _STEPPED)
    launches = []
    for part, rows in ((_steps, stepped), (_chunks, ~stepped)):
        index = np.flatnonzero(rows)
        if index.size:
            launches += part(take_rows(f, index), index)
    return launches


def _state(f: Fields) -> np.ndarray:
    """Bytes of all states; a convolution keeps the positions before its last tap."""
    deep = np.where(f["kind"] == "short_conv", f["head_dim"] - 1, f["head_dim"])
    size = np.asarray(BYTES)[f["state_dtype"]]
    return f["batch"] * f["num_heads"] * deep * f["v_head_dim"] * size


def _gates(f: Fields) -> np.ndarray:
    """Bytes of gates of a position and head: decay and beta; KDA decays by channel,
    Mamba2's step stands alone, a convolution has none."""
    numbers = {"gated_delta": 2.0, "mamba2": 1.0, "short_conv": 0.0}
    plain = [numbers.get(kind, 0.0) for kind in f["kind"]]
    return _WIDE * np.where(f["kind"] == "kda", 1 + f["head_dim"], plain)


def _operands(f: Fields, groups: np.ndarray) -> np.ndarray:
    """Bytes of a position: q and k (Mamba2: C and B) of `groups`, v and o (x and y)
    and gates of the heads; input and output of a convolution."""
    e = np.asarray(BYTES)[f["dtype"]]
    keys = np.where(f["kind"] == "short_conv", 0.0, 2 * groups * f["head_dim"])
    values = 2 * f["num_heads"] * f["v_head_dim"]
    return (keys + values) * e + f["num_heads"] * _gates(f)


def _steps(f: Fields, rows: np.ndarray) -> list[Launches]:
    """Positions one by one: 7 dk dv FLOP a head (decay, error, update, output), 6 of
    Mamba2, which has no error; 2 taps of a convolution, all positions at once."""
    conv = f["kind"] == "short_conv"
    each = np.where(f["kind"] == "mamba2", 6.0, np.where(conv, 2.0, 7.0))
    tokens = f["batch"] * f["q_len"]
    moved, state = tokens * _operands(f, f["groups"]), _state(f)
    blocks = f["batch"] * f["num_heads"] * np.ceil(f["v_head_dim"] / _STEP_BLOCK)
    columns = {
        "fma": tokens * f["num_heads"] * each * f["head_dim"] * f["v_head_dim"],
        "moved": moved,
        "l2_moved": tokens * _operands(f, f["num_heads"]),
        "state": state,
        "ctas": np.where(conv, np.maximum(moved / CTA_BYTES, 1.0), blocks),
        "steps": np.where(conv, 1.0, f["q_len"]),
        "distance": f["pass_bytes"],
        "zero_share": f["zero_share"],
    }
    return [Launches(Steps, columns, moved + state, "stream", rows=rows)]


def _chunks(f: Fields, rows: np.ndarray) -> list[Launches]:
    """The kernels of FLA (delta rules) and of mamba_ssm. Those of all chunks at once
    are one launch record; the one that takes them in turn is another."""
    e = np.asarray(BYTES)[f["dtype"]]
    mamba = f["kind"] == "mamba2"
    heads, keys, values = f["num_heads"], f["head_dim"], f["v_head_dim"]
    chunk, area = f["chunk"], f["head_dim"] * f["v_head_dim"]
    chunks = np.ceil(f["q_len"] / chunk)
    padded, tokens = f["batch"] * chunks * chunk, f["batch"] * f["q_len"]
    states = f["batch"] * chunks * heads * area  # elements, one for each chunk

    # FLOP of a position and head; W S and K^T V go with the state
    delta = 6 * area + chunk * (6 * keys + 4 * values) + 2 / 3 * chunk**2
    ssd = 4 * area + 2 * chunk * (values + keys * f["groups"] / heads)
    flop = padded * heads * np.where(mamba, ssd, delta)
    in_turn = padded * heads * np.where(mamba, 0.0, 4 * area)

    # written by one kernel and read by another, of a position: products of keys and
    # their inverse, w, u and new values; Mamba2: C B^T, fp32 sums of the decay
    products = heads * chunk * (_WIDE + e)
    between = np.where(mamba, 2 * f["groups"] * chunk * _WIDE, 2 * products)
    between += np.where(mamba, 2 * heads * _WIDE, heads * (keys + 2 * values) * e)
    passed = np.where(mamba, 0.0, heads * (keys + 2 * values) * e)
    summed = np.where(mamba, _WIDE, 0.0)  # chunk states before they are passed on

    def at_once_bytes(groups: np.ndarray) -> np.ndarray:
        return tokens * (_operands(f, groups) + between) + states * (e + summed)

    def in_turn_bytes(groups: np.ndarray) -> np.ndarray:
        each = passed + np.where(mamba, 0.0, groups * keys * e)
        return tokens * each + states * (e + summed) + 2 * _state(f)

    blocks = np.where(mamba, area / _PASSED, values / _BLOCK)
    shared = {"chunk": chunk, "dtype": f["dtype"], "zero_share": f["zero_share"]}
    at_once = shared | {
        "flop": flop - in_turn,
        "fma": np.zeros_like(flop),
        "moved": at_once_bytes(f["groups"]),
        "l2_moved": at_once_bytes(heads),
        "ctas": f["batch"] * chunks * heads,
        "steps": np.ones_like(chunks),
        "waits": np.ones_like(chunks),
        "depth": 2 * keys + chunk,
        "launches": np.where(mamba, 4.0, 5.0),
    }
    turns = shared | {
        "flop": in_turn,
        "fma": np.where(mamba, 2 * states, 0.0),
        "moved": in_turn_bytes(f["groups"]),
        "l2_moved": in_turn_bytes(heads),
        "ctas": f["batch"] * heads * np.ceil(blocks),
        "steps": chunks,
        "waits": chunks * np.where(mamba, 1.0, _WAITS),
        "depth": np.where(mamba, 0.0, keys + chunk),
        "launches": np.ones_like(chunks),
    }
    return [
        Launches(Chunks, at_once, at_once["moved"], "matrix", rows=rows),
        Launches(Chunks, turns, turns["moved"], "none", rows=rows),
    ]


def demand(shape: Chunks | Steps, gpu: GpuSpec, c: Corrections) -> Demand:
    """Demand of chunks, or of a kernel that steps; shape (kernels, 1)."""
    if isinstance(shape, Steps):
        return _steps_demand(with_candidates(shape), gpu, c)
    return _chunks_demand(with_candidates(shape), gpu, c)


def _steps_demand(s: Steps, gpu: GpuSpec, c: Corrections) -> Demand:
    """Demand of streams, whose state comes from DRAM unless the pass fits in L2."""
    l2_bytes = s.l2_moved + 2 * s.state
    near = missed_when_new(s.moved, gpu, c)
    reach = jnp.maximum(s.moved + s.state, s.distance)
    far = missed(reach, gpu, c)
    peak, efficiency = _rates.fma_rate(gpu, c)
    return make_demand(
        fma=s.fma,
        l2=l2_bytes,
        dram=s.moved * near + 2 * s.state * far,
        fma_peak=peak,
        fma_efficiency=efficiency,
        feed=c.stream_feed,
        ctas=s.ctas,
        resident=jnp.where(
            gpu.is_systolic, _IN_LANES, jnp.minimum(gpu.max_ctas_per_sm, 16.0)
        ),
        quantization=0.0,
        path_cycles=s.steps * gpu.l2_latency,  # q, k and v of each position
        path_seconds=gpu.dram_latency,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        activity=_rates.activity(c, s.zero_share),
    )


def _chunks_demand(s: Chunks, gpu: GpuSpec, c: Corrections) -> Demand:
    """Products in tiles of a chunk by 64 columns, on a stream of operands."""
    compute = _rates.arithmetic(gpu, s.dtype)
    tensor = _rates.on_tensor_cores(gpu, compute)
    e = _rates.bytes_of(compute)
    reads = sum(fragments(gpu.mma_kind, s.chunk, jnp.full_like(s.chunk, _BLOCK)))
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    miss = missed_when_new(s.moved, gpu, c)
    return make_demand(
        tensor=s.flop * tensor,
        fma=s.fma + s.flop * (1 - tensor),
        smem=s.flop / 2 * e * reads,
        l2=s.l2_moved,
        dram=s.moved * miss,
        tensor_peak=_rates.tensor_peak(gpu, compute),
        tensor_efficiency=_rates.fed_efficiency(gpu, c, compute, s.chunk, _BLOCK),
        fma_peak=fma_peak,
        fma_efficiency=fma_efficiency,
        feed=c.stream_feed,
        ctas=s.ctas,
        resident=jnp.where(gpu.is_systolic, _IN_LANES, _RESIDENT),
        own_cycles=c.own_cycles,
        path_cycles=s.steps * c.step_cycles * s.depth * e / 128,
        path_seconds=s.waits * gpu.dram_latency,
        launches=s.launches,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        tensor_energy=_rates.tensor_energy(c, compute),
        activity=_rates.activity(c, s.zero_share),
    )
