"""Many listings as one workload, and by one program: shapes that others have had."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np
from jax import Array

from ..compiling import call_compiled
from ..hardware import GpuSpec, OperatingPoint
from ..workload import Listing, Workload, assemble, pad_size
from ._answer.records import Estimate
from ._estimate import estimate_once

_MANY: Final = 16384
"""Launches of a workload from which its program is optimised: listings of that size are
priced several times, 3 s each without and 1.5 s with it."""


def packed(listings: Sequence[Listing], like: Workload) -> Workload | None:
    """The workload of listings, filled up for the program of `like`: None where that
    has no room for them."""
    if len(listings) > len(like.names):
        return None
    workload = _filled(listings, len(like.names), like)
    return workload if _sizes(workload) == _sizes(like) else None


def packed_alike(listings: Sequence[Listing], most: int) -> list[Workload]:
    """Workloads of at most `most` listings each, dealt in turn, all for one program."""
    number = -(-len(listings) // most)
    parts = [listings[i::number] for i in range(number)]
    width = pad_size(len(parts[0]))
    workloads: list[Workload] = []
    for part in parts:  # each has room for those before
        workloads.append(_filled(part, width, workloads[-1] if workloads else None))
    whole = workloads[-1]
    return [
        x if _sizes(x) == _sizes(whole) else _filled(part, width, whole)
        for x, part in zip(workloads, parts, strict=True)
    ]


def _filled(
    listings: Sequence[Listing], number: int, like: Workload | None
) -> Workload:
    """`number` phases, with as many launches as `like` has at least."""
    # launches nothing, but takes host time, so that its power is a number
    blank = dataclasses.replace(
        listings[0], kernels=(), dispatch="eager", passes=1, module_calls=0
    )
    workload = assemble([*listings, *[blank] * (number - len(listings))], like)
    return dataclasses.replace(workload, names=("",) * number)


def _sizes(workload: Workload) -> list[int]:
    """Launches of every shape record."""
    return [len(x.row) for x in workload.groups]


def run(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, number: int
) -> Estimate:
    """The estimate, on the host, of the first `number` phases at `point` (a leaf has
    one number, or one for each of them); what fills the workload up is in no total."""
    more = len(workload.names)

    def widened(x: Array) -> np.ndarray:
        """The first phase's setting wherever there is none."""
        each = np.atleast_1d(np.asarray(x))
        return np.concatenate([each, each[:1].repeat(more - len(each))])

    wide = jax.tree.map(widened, point)
    once = workload.num_launches < _MANY
    arguments = workload, gpu, wide
    result = jax.device_get(call_compiled(estimate_once, arguments, once))
    p: Any = jax.tree.map(lambda x: x[:number], result.phases)
    time, energy = p.time.sum(), p.energy.sum()
    clock = (p.sm_clock * p.time).sum() / time
    leaves = [time, energy, energy / time, clock, *jax.tree.leaves((p, result.kernels))]
    return jax.tree.unflatten(jax.tree.structure(result), leaves)
