"""A higher bound by the same prices: every model on its own, in whole replicas.

At given prices of GPUs and watts the cheapest whole replicas that carry a model's
demand cost more than its demand on the cheapest row; the sum over models less the
payment for what there is bounds every plan (a Lagrangian bound). Where a model has few
replicas, most of the distance to the linear program's bound is here.
"""

import time

import numpy as np
from jaxtyping import Float
from scipy import sparse

from .._problem.problem import Problem
from .._whole.candidates import Candidates
from .._whole.integer import least
from .linear import Prices, charged, room

_CLOSE = 1e-4
_EACH = 2.0
"""s for one model at most."""
_PARTS = 12
"""Rows of a model's plan at most."""


def by_whole_replicas(
    problem: Problem, slot: int, prices: Prices, ends: float
) -> tuple[float, Float[np.ndarray, " model"], Candidates]:
    """The bound of the slot, what each model costs in it above its demand on the
    cheapest row, and the plans of every model that prove it. Models that there is no
    time for (`ends`, s, monotonic) count as on their cheapest row."""
    at = np.r_[prices.gpu, prices.watt]
    each, wanted = charged(problem, slot, at), problem.demand[slot]
    asked = np.flatnonzero(wanted > 0)
    floor, wasted, plans = wanted * prices.request, np.zeros(len(wanted)), []
    for model in asked.tolist():
        if time.monotonic() > ends:
            break
        row = np.flatnonzero(problem.rows.model == model)
        share = problem.rows.rate[row] / wanted[model]
        found = least(
            each[row], sparse.csr_array(1e3 * share[None]), np.array([1e3]),
            np.array([np.inf]), np.ceil(1 / share), seconds=_EACH, gap=_CLOSE,
        )  # fmt: skip
        wasted[model] = max(found.bound - floor[model], 0.0)
        if found.values is not None:
            plans.append((model, row, found.values))
    free, held = room(problem, slot), at > 0
    total = float((floor + wasted)[asked].sum())
    bound = total - float(at[held] @ free[held]) + problem.idle_cost(slot)
    return bound, wasted, _as_candidates(plans)


def _as_candidates(
    plans: list[tuple[int, np.ndarray, Float[np.ndarray, " row"]]],
) -> Candidates:
    """Plans of one model each as records."""
    row = np.zeros((len(plans), _PARTS), int)
    count = np.zeros((len(plans), _PARTS))
    fits = np.ones(len(plans), bool)
    for place, (_, rows, values) in enumerate(plans):
        used = np.flatnonzero(values)
        fits[place] = len(used) <= _PARTS
        if fits[place]:
            row[place, : len(used)] = rows[used]
            count[place, : len(used)] = values[used]
    models = np.array([model for model, _, _ in plans], int)
    return Candidates(models, row, count).take(fits)


def joined(first: Candidates, second: Candidates) -> Candidates:
    """Both sets of plans as one."""
    width = max(first.row.shape[1], second.row.shape[1])

    def wide(x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, width - x.shape[1])))

    return Candidates(
        np.r_[first.model, second.model],
        np.vstack([wide(first.row), wide(second.row)]),
        np.vstack([wide(first.count), wide(second.count)]),
    )
