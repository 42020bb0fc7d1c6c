"""Prefill and decode apart in a search: the best pair of pools, priced as `apart`."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .._apart.answer import to_json
from .._apart.rank import Points
from .._apart.search import Pair, PricedPair, price_pair, rank_pairs
from .._apart.sizes import LINK, Side
from .._deployment import Deployment
from .._load import Load
from .._step.table import StepCosts
from .request import SearchRequest
from .space import MOST_LIMITS, Candidate

_TRIED: Final = 6
"""Pairs that are priced until one keeps the limits."""


class PricedPools(NamedTuple):
    """A pair of pools, its JSON as `apart` has it, and the number of each pool's
    candidate."""

    pair: Pair
    exact: PricedPair
    summary: dict[str, Any]


def best_pools(
    request: SearchRequest,
    load: Load,
    candidates: Sequence[Candidate],
    costs: Sequence[StepCosts],
) -> PricedPools | None:
    """The best pair of pools of one type that keeps the limits; None if none does."""
    best: PricedPools | None = None
    for one in dict.fromkeys(_type(x.deployment) for x in candidates):
        chosen = [i for i, x in enumerate(candidates) if _type(x.deployment) == one]
        pools = _of_type(request, load, candidates, costs, chosen)
        if pools and (best is None or pools.pair.score < best.pair.score):
            best = pools
    return best


def _type(of: Deployment) -> tuple[Any, ...]:
    """What both pools share."""
    return of.request.dtype, of.request.kv_dtype, of.engine_name


def _of_type(
    request: SearchRequest,
    load: Load,
    candidates: Sequence[Candidate],
    costs: Sequence[StepCosts],
    chosen: Sequence[int],
) -> PricedPools | None:
    sides, clocks, limits = [], [], []
    for i in chosen:
        one = candidates[i]
        own = dataclasses.replace(load, max_batch=one.limits.max())
        sides.append(Side(dataclasses.replace(one.deployment, load=own), costs[i]))
        clocks.append(one.clocks)
        fits = max(math.floor(one.deployment.fits), 1)
        limits.append(np.resize(one.limits[one.limits <= fits], MOST_LIMITS))
    score = functools.partial(_score, request, [candidates[i] for i in chosen])
    most = sum({candidates[i].gpu: candidates[i].most_gpus for i in chosen}.values())
    pairs = rank_pairs(sides, clocks, limits, LINK, score, most)
    for pair in pairs[:_TRIED]:
        exact = price_pair(sides, pair, LINK)
        summary = to_json(
            exact.prefill, exact.decode, exact.figures, exact.transfer, {}
        )
        numbers = {x.gpu: x.most_gpus for x in candidates}
        if _keeps(request, load, summary, numbers):
            return PricedPools(pair, exact, summary)
    return None


def _score(
    request: SearchRequest, candidates: Sequence[Candidate], points: Points
) -> np.ndarray:
    """What adds up over pools: W, GPUs, or the price of both an hour."""
    if request.objective == "gpus":
        return points.gpus + 1e-9 * points.power
    if request.objective == "cost":
        prices = np.array([(request.gpu_price or {}).get(x.gpu, 0) for x in candidates])
        return prices[points.of] * points.gpus
    return points.power


def _keeps(
    request: SearchRequest,
    load: Load,
    summary: dict[str, Any],
    numbers: dict[str, float],
) -> bool:
    """Whether a pair keeps all limits exactly; `numbers`: GPUs on offer, by name."""
    taken = dict.fromkeys(numbers, 0)
    for pool in summary["pools"].values():
        taken[pool["gpu"]] += pool["num_gpus"]
    if any(taken[name] > most for name, most in numbers.items()):
        return False
    power = summary.get("wall_power_w", summary["avg_power_w"])
    pairs = (
        (summary["ttft_s"]["p95"], load.slo_ttft),
        (summary["tpot_s"]["p95"], load.slo_tpot),
        (power, request.power_budget),
    )
    return all(limit is None or x <= limit for x, limit in pairs)
