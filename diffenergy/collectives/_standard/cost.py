"""Closed forms: time of a collective by algorithm, and as libraries run it.

`algorithm_time` is the alpha-beta time of a standard algorithm on links that are all
alike; `collective_time` is what NCCL (or an all-reduce kernel of a serving framework)
takes on GPUs of one machine, with the constants fitted to measurements
(`physics.links`, `hardware.link_costs`).
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ...dtypes import BYTES, code
from ...hardware._spec import GpuSpec
from ...physics import _links as links
from ...physics._links import ALGORITHMS, GEOMETRY
from ...records import as_float, as_index


def algorithms(collective: str) -> tuple[str, ...]:
    """Algorithms that have a closed form for `collective`."""
    return tuple(name for name in ALGORITHMS if (name, collective) in GEOMETRY)


def algorithm_time(
    algorithm: str,
    collective: str,
    size: ArrayLike,
    ranks: int,
    rate: ArrayLike,
    latency: ArrayLike,
    *,
    floor: ArrayLike = 0.0,
    reduction: ArrayLike = 0.0,
) -> Array:
    """floor + steps latency + traffic size / rate + reduced size reduction, s.

    Arguments:
        size: S, B: the buffer that a GPU ends (or begins) with, the larger one.
        ranks: n, GPUs, at least 2; each sends to one and receives from one at a time
            at `rate` (B/s), except that `direct` splits its rate among all.
        latency: of a message, s. floor: of the launch, s.
        reduction: gamma, s per byte that a GPU adds up (none in a switch).

    log2 n of trees and doubling is not rounded where n is no power of two.

    Raises `ValueError` for a pair without a closed form, or one GPU.

    >>> round(float(algorithm_time("ring", "all_gather", 8e9, 8, 1e11, 0.0)), 6)
    0.07
    """
    if (algorithm, collective) not in GEOMETRY:
        known = ", ".join(algorithms(collective)) or "none"
        raise ValueError(
            f"`algorithm` is '{algorithm}', which has no closed form for the "
            f"collective '{collective}'; allowed are {known}."
        )
    if ranks < 2:
        raise ValueError(f"`ranks` is {ranks}; allowed are 2 GPUs and more.")
    steps, traffic = GEOMETRY[algorithm, collective]
    alpha = links.counted(steps, ranks) * as_float(latency)
    beta = links.counted(traffic, ranks) * as_float(size) / as_float(rate)
    added = _added(algorithm, collective, ranks) * as_float(size)
    return as_float(floor) + alpha + beta + added * as_float(reduction)


def _added(algorithm: str, collective: str, ranks: int) -> float:
    """Bytes that the busiest GPU adds up / S."""
    if algorithm == "switch":
        return 0.0
    others = float(ranks - 1)
    if algorithm == "direct" and collective in ("all_reduce", "reduce"):
        return others  # the whole buffer of each of the others
    if algorithm == "tree" or collective == "reduce":
        return 0.0 if collective == "broadcast" else 1.0
    return others / ranks if collective in ("all_reduce", "reduce_scatter") else 0.0


def collective_time(
    gpu: GpuSpec,
    collective: str,
    size: ArrayLike,
    ranks: ArrayLike,
    dtype: str = "bf16",
    *,
    family: str = "",
) -> Float[Array, "*b"]:
    """Time of a collective of `size` B on `ranks` GPUs of one machine, s.

    Differentiable in `size`, `ranks` and the fields of `gpu`. `family`: "custom" for
    the all-reduce kernels of serving frameworks. What was measured: 2, 4 and 8 GPUs,
    512 B to 512 MiB; more GPUs get the link share of eight. Raises `ValueError` for an
    unknown collective or dtype.

    >>> from diffenergy import load_gpu
    >>> time = collective_time(load_gpu("h100-sxm"), "all_reduce", 2.0**29, 8)
    >>> round(1e3 * float(time), 1)  # 2.1 ms measured
    2.1
    """
    kind = list(links.KINDS).index(links.kind_of(collective, family))
    given = (as_float(size), as_float(ranks))
    size, ranks = (jnp.atleast_1d(x) for x in jnp.broadcast_arrays(*given))
    kinds = as_index(jnp.full(size.shape, kind))
    narrow = jnp.full(size.shape, 1.0 if BYTES[code(dtype)] < 2 else 0.0)
    costs = links.link_costs(gpu, kinds)
    found = links.candidates(kinds, size, ranks, narrow, gpu.link_bandwidth, costs)
    return links.expected_time(found).reshape(
        jnp.broadcast_shapes(*map(jnp.shape, given))
    )
