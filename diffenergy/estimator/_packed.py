"""Many listings as one workload, and by one program: shapes that others have had."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from ..hardware import GpuSpec, OperatingPoint
from ..workload import Listing, Workload
from ..workload._workload import assemble, pad_size
from ._answer.records import Estimate, from_leaves
from ._estimate import estimate_once
from ._programs import kept


def packed(
    listings: Sequence[Listing], like: Workload | None = None
) -> Workload | None:
    """The workload of listings, filled up for the program of `like` if there is one:
    None where that has no room for them."""
    number = pad_size(len(listings)) if like is None else len(like.names)
    more = number - len(listings)
    if more < 0:
        return None
    # launches nothing, but takes host time, so that its power is a number
    blank = dataclasses.replace(
        listings[0], kernels=(), dispatch="eager", passes=1, module_calls=0
    )
    made = assemble([*listings, *[blank] * more], like)
    if like is not None and _sizes(made) != _sizes(like):
        return None
    rows = made.num_rows if like is None else like.num_rows
    return dataclasses.replace(made, names=("",) * number, num_rows=rows)


def _sizes(workload: Workload) -> list[int]:
    """Launches of every shape record."""
    return [len(x.row) for x in workload.groups]


def run(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, number: int
) -> Estimate:
    """The estimate, on the host, of the first `number` phases at `point` (a leaf has
    one number, or one for each of them); what fills the workload up is in no total."""
    wide = jax.tree.map(lambda x: _widened(x, len(workload.names)), point)
    found = jax.device_get(from_leaves(kept(_leaves, (workload, gpu, wide))))
    p: Any = jax.tree.map(lambda x: x[:number], found.phases)
    time, energy = p.time.sum(), p.energy.sum()
    clock = (p.sm_clock * p.time).sum() / time
    return Estimate(time, energy, energy / time, clock, p, found.kernels)


def _widened(x: Array, number: int) -> np.ndarray:
    """A setting of `number` phases, the first one's where there are fewer."""
    each = np.atleast_1d(np.asarray(x))
    return np.concatenate([each, each[:1].repeat(number - len(each))])


def _leaves(workload: Workload, gpu: GpuSpec, point: OperatingPoint) -> list[Array]:
    return jax.tree.leaves(estimate_once(workload, gpu, point))
