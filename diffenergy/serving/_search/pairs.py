"""Pools apart in a search: every clock, batch limit and number of workers of both
sides, and the pairs of them that matter."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .._apart.rank import Points, best_pairs, joined
from .._apart.sizes import (
    LINK,
    MAKES,
    MOST,
    READS,
    Side,
    decode_pools,
    prefill_pools,
    transfer_of,
)
from .._load import Load
from .._step.table import StepCosts
from .points import wall_power
from .space import MOST_LIMITS, Candidate

_READER: Final = np.ones(1)
"""Batch limit of a prefill worker."""


def pool_points(
    load: Load, numbered: Sequence[tuple[int, Candidate, StepCosts]]
) -> tuple[Points, Points, float]:
    """Prefill and decode pools of candidates under a load that comes at a rate, with a
    node at the wall, and s of the time to the first token outside of both."""
    readers, decoders, more = list[Points](), list[Points](), 0.0
    for number, one, costs in numbered:
        limits = np.resize(one.limits[one.limits <= one.fits], MOST_LIMITS)
        of = dataclasses.replace(
            one.deployment, load=dataclasses.replace(load, max_batch=limits.max())
        )
        side, top = Side(of, costs), np.array([one.clocks.max()])
        alone = np.ones(MOST)
        workers = _workers(prefill_pools(side, top, alone).load, READS)
        x = prefill_pools(side, one.clocks, workers)
        keeps = (x.load <= READS) & np.asarray(x.feasible).reshape(x.load.shape)
        grid = (y[:, None] for y in (keeps, x.power, 0 * x.power, x.high))
        readers.append(_flat(number, side, (one.clocks, _READER, workers), *grid))
        workers = _workers(
            decode_pools(side, top, np.full(1, limits.max()), alone).load, MAKES
        )
        x = decode_pools(side, one.clocks, limits, workers)
        keeps = (x.load <= MAKES) & x.feasible
        axes = one.clocks, limits, workers
        decoders.append(_flat(number, side, axes, keeps, x.power, x.high, x.first))
        # between the pools: no two candidates differ in it by more than some ms
        outside = transfer_of(of, of, LINK).delay + float(of.engine.request)
        more = max(more, outside)
    return joined(readers), joined(decoders), more


def _workers(load: np.ndarray, most: float) -> np.ndarray:
    """Numbers of workers: from the least that carry the `load` of one at the highest
    clock to three times that."""
    least = max(math.ceil(float(load.max()) / most), 1)
    numbers = np.unique(np.ceil(np.geomspace(least, 3 * least + 4, MOST)))
    return np.resize(numbers, MOST)  # repeats, so that candidates share a program


def _flat(
    number: int, side: Side, axes: Sequence[np.ndarray], keeps: Any, *figures: Any
) -> Points:
    """Points [clock, limit, workers] that keep `keeps`; `figures`: W of a GPU, s of a
    token and until the first one."""
    power, tpot, ttft = figures
    valid = np.broadcast_to(keeps & np.isfinite(power) & np.isfinite(ttft), power.shape)
    grid = np.meshgrid(*axes, indexing="ij")
    clock, limit, workers, power, tpot, ttft = (
        x[valid] for x in (*grid, power, tpot, ttft)
    )
    gpus = workers * side.deployment.plan.tp
    watts = wall_power(side.deployment, gpus, power)
    of = np.full(clock.shape, number)
    return Points(of, clock, limit, workers, gpus, watts, tpot, ttft)


def pairs_that_matter(
    pools: tuple[Points, Points, float],
    load: Load,
    factors: Sequence[float],
    scores: Sequence[Callable[[Points], Any]],
) -> tuple[np.ndarray, np.ndarray]:
    """For each decode pool the prefill pools that are best by each of `scores` (what
    adds up over pools) within limits times each of `factors`: rows of both."""
    prefill, decode, more = pools
    if not len(prefill.of) or not len(decode.of):
        return np.zeros(0, int), np.zeros(0, int)
    ttft, tpot = (math.inf if x is None else x for x in (load.slo_ttft, load.slo_tpot))
    rows = [
        np.stack(
            best_pairs(prefill, decode, one, ttft * x, tpot * max(factors), more)[:2]
        )
        for one in scores
        for x in factors
    ]
    first, second = np.unique(np.concatenate(rows, axis=1), axis=1)
    return first, second
