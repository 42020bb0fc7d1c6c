"""A higher bound by the same prices: every model on its own, in whole replicas.

At given prices of GPUs and watts the cheapest whole replicas that carry a model's
demand cost more than its demand on the cheapest row; the sum over models less the
payment for what there is bounds every plan (a Lagrangian bound). Where a model has few
replicas, most of the distance to the linear program's bound is here.
"""

import numpy as np
from jaxtyping import Float

from ..search import pareto_front
from ._bound import Prices, charged, room
from ._candidates import Candidates, joined
from ._problem import Problem
from ._work import Work

_GRID = 20_000
"""Parts of a demand that rates are rounded to: up for the bound, down for the plan."""
_PER_CELL, _PER_STEP = 2e-9, 8e-6
"""Work (s) of a row at a part, and of parts that are looked at together."""
_TINY = 1e-12
_PARTS = 12
"""Rows of a model's plan at most."""


def bound_by_knapsacks(
    problem: Problem, slot: int, prices: Prices, work: Work
) -> tuple[float, Float[np.ndarray, " model"], Candidates]:
    """The bound of the slot, what each model costs in it above its demand on the
    cheapest row, and the plans of every model that prove it. Models that there is no
    `work` left for count as on their cheapest row."""
    at = prices.limits
    each, demand = charged(problem, slot, at), problem.demand[slot]
    active = np.flatnonzero(demand > 0)
    floor, wasted, plans = demand * prices.request, np.zeros(len(demand)), []
    for model in active.tolist():
        if not work.left:
            break
        row = np.flatnonzero(problem.rows.model == model)
        row = row[pareto_front(each[row], -problem.rows.rate[row])]
        share = problem.rows.rate[row] / demand[model]
        # less a little, so that rounding does not turn a whole share into one part more
        least, _ = _covered(each[row], np.ceil(share * _GRID * (1 - _TINY)))
        steps = 1 / min(1.0, float(share.min()))
        work.add(2 * (_PER_CELL * _GRID * len(row) + _PER_STEP * steps))
        wasted[model] = max(least - floor[model], 0.0)
        whole = np.floor(share * _GRID * (1 + _TINY))
        # `_covered` needs whole sizes: a row below one part of the demand has none
        if (whole >= 1).all():
            plans.append((model, row, _covered(each[row], whole)[1]))
    free, priced = room(problem, slot), at > 0
    total = float((floor + wasted)[active].sum())
    bound = total - float(at[priced] @ free[priced]) + problem.idle_cost(slot)
    return bound, wasted, _as_candidates(plans)


def _covered(
    cost: Float[np.ndarray, " row"], size: Float[np.ndarray, " row"]
) -> tuple[float, Float[np.ndarray, " row"]]:
    """Least cost of replicas whose `size` (whole, at least 1) sums to `_GRID` or more,
    and their number of each row, by dynamic programming:

        f(u) = min_r  cost_r + f(u - size_r),    f(u <= 0) = 0

    As many `u` at a time as the smallest size is long.
    """
    size = np.minimum(size, _GRID).astype(int)
    value = np.zeros(_GRID + 1)
    choice = np.zeros(_GRID + 1, int)
    step = int(size.min())
    for start in range(1, _GRID + 1, step):
        u = np.arange(start, min(start + step, _GRID + 1))
        tried = cost[:, None] + value[np.maximum(u - size[:, None], 0)]
        choice[u] = tried.argmin(axis=0)
        value[u] = tried[choice[u], np.arange(len(u))]
    count, left = np.zeros(len(cost)), _GRID
    while left > 0:
        count[choice[left]] += 1
        left -= size[choice[left]]
    return float(value[_GRID]), count


def _as_candidates(plans: list[tuple[int, np.ndarray, np.ndarray]]) -> Candidates:
    """Plans of one model each, but for those of too many rows."""
    parts = [Candidates(np.zeros(0, int), np.zeros((0, 0), int), np.zeros((0, 0)))]
    for model, rows, values in plans:
        used = np.flatnonzero(values)
        if len(used) <= _PARTS:
            part = rows[used][None], values[used][None]
            parts.append(Candidates(np.array([model]), *part))
    return joined(parts)
