"""Pools apart in a search: pairs of candidates that differ in `tp` and `ep` alone, by
the tables that all servers have."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...hardware import sm_clocks, spread_clocks
from ...results import Infeasible
from .._apart.answer import to_json
from .._apart.rank import Points
from .._apart.search import Pair, price_pair, rank_pairs
from .._apart.sizes import LINK, Side
from .choose import Choice, Priced, Search, at_wall, between, score_of
from .space import CLOCKS

_PRICED: Final = 2
"""Pairs that are priced exactly."""
_TRIES: Final = 6
"""Pairs that are tried until as many keep the limits."""


def run_with_pools(search: Search) -> Choice:
    """The best deployments, pools apart among them; first ones if the request is for
    these only.

    Raises `Infeasible` if none keeps the limits.
    """
    pairs, only = priced_pairs(search), search.request.apart == "only"
    if only and not pairs:
        raise Infeasible(
            "`apart` is 'only', but no pools apart keep the limits; give 'auto', "
            "looser limits or more GPUs."
        )
    try:
        choice = search.run()
    except Infeasible:
        if not pairs:
            raise
        return Choice(pairs, search.table, {}, search.candidates)
    together = [*pairs, *choice.priced]
    if not only:
        together.sort(key=lambda x: (x.score, x.gpus))
    return dataclasses.replace(choice, priced=together)


def priced_pairs(search: Search) -> list[Priced]:
    """The best pools apart that keep the limits, priced exactly; best first."""
    ranked: list[tuple[Pair, list[int]]] = []
    for numbers in _groups(search):
        clocks = [search.candidates[i].clocks for i in numbers]
        pairs = _ranked(search, numbers, clocks)
        if pairs and search.request.sm_clock is None:  # clocks around the best ones
            best = pairs[0]
            two = [numbers[x.candidate] for x in (best.prefill, best.decode)]
            near = [
                _near(search, i, x.clock)
                for i, x in zip(two, (best.prefill, best.decode), strict=True)
            ]
            ranked += [(x, two) for x in _ranked(search, two, near)]
        ranked += [(x, numbers) for x in pairs]
    ranked.sort(key=lambda x: x[0].score)
    priced, tried = list[Priced](), set[Any]()
    for pair, numbers in ranked:
        kind = tuple(
            (numbers[x.candidate], x.workers) for x in (pair.prefill, pair.decode)
        )
        if kind in tried:
            continue
        tried.add(kind)
        one = _price(search, pair, numbers)
        priced += [one] if one.feasible else []
        if len(priced) == _PRICED or len(tried) == _TRIES:
            break
    return sorted(priced, key=lambda x: x.score)


def _groups(search: Search) -> list[list[int]]:
    """Numbers of candidates of one GPU, type and engine."""

    def kind(i: int) -> tuple[str, ...]:
        of = search.candidates[i].deployment
        return of.card.name, of.request.dtype, of.engine_name

    numbers = sorted(range(len(search.candidates)), key=kind)
    return [list(x) for _, x in itertools.groupby(numbers, kind)]


def _sides(search: Search, numbers: Sequence[int]) -> list[Side]:
    return [Side(search.candidates[i].deployment, search.costs[i]) for i in numbers]


def _link(search: Search) -> float:
    return search.request.kv_link or LINK


def _ranked(
    search: Search, numbers: Sequence[int], clocks: Sequence[np.ndarray]
) -> list[Pair]:
    """Pairs of some candidates, best first."""
    chosen = [search.candidates[i] for i in numbers]
    limits = [
        np.minimum(x.limits, max(math.floor(x.deployment.fits), 1)) for x in chosen
    ]

    def score(points: Points) -> np.ndarray:
        total = np.empty(len(points.of))
        for i, one in enumerate(chosen):
            here = points.of == i
            gpus, power = points.gpus[here], points.power[here]
            wall, site = at_wall(one.deployment, gpus, power / gpus)
            if search.objective == "cost":
                total[here] = search.cost_per_hour(one, gpus, site)
            else:
                more = gpus * 1e7 if search.objective == "gpus" else 0.0
                total[here] = wall + more  # of equal numbers the least power
        return total

    padded = [np.resize(x, CLOCKS) for x in clocks]
    most = chosen[0].most_gpus
    return rank_pairs(
        _sides(search, numbers), padded, limits, _link(search), score, most
    )


def _near(search: Search, number: int, clock: float) -> np.ndarray:
    """Clocks of the board between the neighbours of one that was tried."""
    one = search.candidates[number]
    board = sm_clocks(one.deployment.card)[::-1]
    return spread_clocks(between(one.clocks, clock, board), CLOCKS)


def _price(search: Search, pair: Pair, numbers: Sequence[int]) -> Priced:
    """A pair as `apart` prices it."""
    x = price_pair(_sides(search, numbers), pair, _link(search))
    of, one = x.decode.deployment, search.candidates[numbers[pair.decode.candidate]]
    summary = to_json(x.prefill, x.decode, x.figures, x.transfer, of.assumed)
    over = search.over(summary)
    steady = x.figures.steady
    keeps = bool(x.figures.feasible) and bool(steady.feasible)
    gpus = summary["num_gpus"]
    keeps &= gpus <= one.most_gpus and summary["utilization"] < 1
    over["stable"] = 0.0 if keeps else math.inf
    hourly = search.cost_per_hour(one, gpus, summary.get("site_power_w", 0.0))
    priced = Priced(
        one, of, None, steady, summary, pair.decode.limit, 0.0, hourly, over
    )
    return dataclasses.replace(priced, score=score_of(priced, search.objective))
