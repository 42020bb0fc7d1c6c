"""Pools for a search: every clock, batch limit and number of workers of both sides
ranked, the best pairs priced by themselves."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._deployment import Deployment
from .pools import Pools
from .rank import Points, best_pairs, joined
from .sizes import (
    MAKES,
    MOST,
    READS,
    Side,
    Transfer,
    decode_pools,
    prefill_pools,
    price,
    transfer_of,
)


class Half(NamedTuple):
    """One pool of a point: number of its candidate, clock (Hz), batch limit (of the
    decode pool), workers."""

    candidate: int
    clock: float
    limit: float
    workers: int


class Pair(NamedTuple):
    """A point of a ranking: both pools, GPUs and power (W) of both, 95th percentiles of
    a token and of the first one (s), score."""

    prefill: Half
    decode: Half
    gpus: int
    power: float
    tpot: float
    ttft: float
    score: float


class PricedPair(NamedTuple):
    """A pair priced by tables of its own clocks."""

    prefill: Side
    decode: Side
    transfer: Transfer
    figures: Pools


def rank_pairs(
    sides: Sequence[Side],
    clocks: Sequence[np.ndarray],
    limits: Sequence[np.ndarray],
    link: float,
    score: Callable[[Points], Any] = lambda points: points.power,
    most_gpus: float = math.inf,
    top: int = 64,
) -> list[Pair]:
    """The `top` pairs of pools that keep the limits, best first: for each decode pool
    the best prefill pool.

    Args:
        sides: candidates with the table up to their highest clock, under the open loop
            that is to be served and whose limits of latencies are kept.
        clocks: of each candidate, Hz; equal numbers of them share a program.
        limits: batch limits of each candidate, no more than fit its memory.
        link: rate of a GPU to the other pool, B/s.
        score: what adds up over pools and is to be least, from their `Points`.
        most_gpus: GPUs of both pools at most.
    """
    numbered = list(enumerate(zip(sides, clocks, limits, strict=True)))
    prefill = joined([_prefill(i, side, f) for i, (side, f, _) in numbered])
    decode = joined([_decode(i, side, f, m) for i, (side, f, m) in numbered])
    load = sides[0].deployment.load
    # between the pools: no two candidates differ in it by more than some ms
    more = max(transfer_of(x.deployment, x.deployment, link).delay for x in sides)
    more += max(float(x.deployment.engine.request) for x in sides)
    fits = decode.gpus < most_gpus
    decode = decode.take(fits)
    if not len(decode.of) or not len(prefill.of):
        return []
    p, d, scores = best_pairs(
        prefill, decode, score, load.slo_ttft, load.slo_tpot, more
    )
    fits = prefill.gpus[p] + decode.gpus[d] <= most_gpus
    rows = zip(p[fits].tolist(), d[fits].tolist(), scores[fits].tolist(), strict=True)
    pairs = dict[tuple[Half, Half], Pair]()  # grids repeat points
    for i, j, total in rows:
        halves = _half(prefill, i), _half(decode, j)
        if halves not in pairs:
            pairs[halves] = Pair(
                *halves, int(prefill.gpus[i] + decode.gpus[j]),
                float(prefill.power[i] + decode.power[j]), float(decode.tpot[j]),
                float(prefill.ttft[i] + decode.ttft[j] + more), total,
            )  # fmt: skip
        if len(pairs) == top:
            break
    return list(pairs.values())


def _half(points: Points, row: int) -> Half:
    return Half(
        int(points.of[row]), float(points.clock[row]), float(points.limit[row]),
        int(points.workers[row]),
    )  # fmt: skip


def _workers(load: float, most: float) -> np.ndarray:
    """Numbers of workers: from the least that carry a load (of one, at the highest
    clock) to three times that."""
    least = max(math.ceil(load / most), 1)
    numbers = np.unique(np.ceil(np.geomspace(least, 3 * least + 4, MOST)))
    return np.resize(numbers, MOST)  # repeats, so that candidates share a program


def _flat(
    of: int, side: Side, axes: Sequence[np.ndarray], keeps: Any, x: Any
) -> Points:
    """Points [clock, limit, workers] that keep `keeps`."""
    clock, limit, workers = np.meshgrid(*axes, indexing="ij")
    gpus = workers * side.deployment.plan.tp
    power, tpot, ttft = x
    arrays = (
        np.full(clock.shape, of), clock, limit, workers, gpus, gpus * power, tpot, ttft
    )  # fmt: skip
    valid = keeps & np.isfinite(power) & np.isfinite(ttft)
    return Points(*(np.broadcast_to(y, clock.shape)[valid] for y in arrays))


def _prefill(of: int, side: Side, clocks: np.ndarray) -> Points:
    top = np.array([clocks.max()])
    one = prefill_pools(side, top, np.ones(MOST))
    workers = _workers(float(one.load[0, 0]), READS)
    x = prefill_pools(side, clocks, workers)
    grid = (y[:, None] for y in (x.power, 0 * x.power, x.high))
    keeps = (x.load <= READS) & np.asarray(x.feasible).reshape(x.load.shape)
    return _flat(of, side, (clocks, np.ones(1), workers), keeps[:, None], tuple(grid))


def _decode(of: int, side: Side, clocks: np.ndarray, limits: np.ndarray) -> Points:
    top, most = np.array([clocks.max()]), np.full(1, limits.max())
    one = decode_pools(side, top, most, np.ones(MOST))
    workers = _workers(float(one.load[0, 0, 0]), MAKES)
    x = decode_pools(side, clocks, limits, workers)
    keeps = (x.load <= MAKES) & x.feasible
    return _flat(of, side, (clocks, limits, workers), keeps, (x.power, x.high, x.first))


def at(deployment: Deployment, half: Half) -> Deployment:
    """A candidate's deployment as a pool of its own."""
    load = dataclasses.replace(deployment.load, max_batch=half.limit)
    return dataclasses.replace(
        deployment,
        setting=deployment.setting._replace(sm_clock=half.clock),
        plan=dataclasses.replace(deployment.plan, dp=half.workers),
        load=load,
    )


def price_pair(sides: Sequence[Side], pair: Pair, link: float) -> PricedPair:
    """The pair as `apart` prices it; whether it keeps the limits is for the caller."""
    two = [at(sides[x.candidate].deployment, x) for x in (pair.prefill, pair.decode)]
    prefill, decode = (Side(x, x.costs()) for x in two)
    transfer = transfer_of(two[0], two[1], link)
    return PricedPair(prefill, decode, transfer, price(prefill, decode, transfer))
