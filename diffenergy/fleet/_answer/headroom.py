"""Headroom: how far all demand can grow together, and what sets the limit."""

from typing import Any

import numpy as np
from scipy import sparse

from ...search import LinearModel, highs
from .._bound.linear import cover, limits, room
from .._problem.problem import Problem
from .._problem.rows import hull

_ROWS = 300_000
"""Slots x rows of the hull up to which every slot is looked at."""
_SLOTS = 4
"""Slots with the most demand that are looked at beyond."""


def headroom(problem: Problem) -> dict[str, Any] | None:
    """The largest factor on all demand that the hardest slot carries, shares of a
    replica allowed, and what one W of a site or one GPU of a pool adds to it (a GPU
    brings its parked watts); None where nothing is asked for."""
    corners = problem.take(hull(problem))
    total = problem.demand.sum(axis=1)
    slots = np.flatnonzero(total > 0)
    if not len(slots):
        return None
    if len(slots) * len(corners.rows) > _ROWS:
        best = np.full(problem.demand.shape[1], 0.0)
        rate = corners.rows.rate / corners.rows.gpus
        np.maximum.at(best, corners.rows.model, rate)
        gpus = (problem.demand / np.maximum(best, 1e-300)).sum(axis=1)
        slots = slots[np.argsort(-gpus[slots])[:_SLOTS]]
    found = [(*_scale(corners, int(slot)), int(slot)) for slot in slots]
    scale, marginal, slot = min(found, key=lambda x: (x[0], x[2]))
    pools = len(problem.count)
    watt, gpu = marginal[pools:], marginal[:pools]
    net = gpu - problem.pue[problem.site] * problem.parked * watt[problem.site]
    budgets = np.isfinite(problem.budget[slot])
    return {
        "demand_scale": scale,
        "slot": slot,
        "per_watt": {
            name: float(value)
            for name, value, has in zip(problem.sites, watt, budgets, strict=True)
            if has
        },
        "per_gpu": dict(zip(problem.pools, map(float, net), strict=True)),
    }


def _scale(problem: Problem, slot: int) -> tuple[float, np.ndarray]:
    """Largest factor on the demand of a slot, and what limits add to it."""
    wanted, free = problem.demand[slot], room(problem, slot)
    held, asked = np.isfinite(free), wanted > 0
    rates = sparse.diags_array(1 / wanted[asked]) @ cover(problem)[asked]
    growth = sparse.csr_array(np.ones((int(asked.sum()), 1)))
    per = np.maximum(free[held], 1e-9)
    use = sparse.diags_array(1 / per) @ limits(problem)[held]
    matrix = sparse.block_array([[-rates, growth], [use, None]])
    goal = np.r_[np.zeros(len(problem.rows)), -1.0]
    upper = np.r_[np.zeros(int(asked.sum())), free[held] / per]
    found = highs(LinearModel.at_most(goal, matrix, upper))
    if found.values is None or found.duals is None:
        raise RuntimeError(f"the headroom of slot {slot}: {found.message}")
    marginal = np.zeros(len(free))
    marginal[held] = -found.duals[asked.sum() :] / per
    return float(found.values[-1]), np.maximum(0.0, marginal)
