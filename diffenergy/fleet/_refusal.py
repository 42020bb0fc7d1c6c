"""Why there is no plan: which limit binds, in which slot, and the least that helps."""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ..results import Infeasible
from ..search import LinearModel, highs
from ._bound import cover, limits, room
from ._integer import minimize
from ._problem import Problem, hull_rows
from ._spec import Fleet
from ._work import Work

_WORK = 5.0
"""Work (s) of one search for the least change."""
_SLOTS = 1_000
"""Slots of which every one is compared with every other."""
_MOST = 1e6
"""GPUs more, at most."""
_REPLICAS = 1e5
"""Replicas of a row, at most."""


class NoPlan(Infeasible):
    """No plan keeps what was asked for. `reason`: JSON: `limit` (slo, gpus, power;
    time: none was found), `slot`, the least that helps, and `remedy`, a sentence."""

    def __init__(self, reason: dict[str, Any], **least: float):
        super().__init__(reason["remedy"], **least)
        self.reason = reason


def quick_enough(fleet: Fleet, problem: Problem) -> Bool[np.ndarray, " row"]:
    """Rows within the latencies of their model. Raises `NoPlan` for a model that is
    asked for and has none."""
    rows, quick = problem.rows, np.zeros(len(problem.rows), bool)
    for number, model in enumerate(fleet.models):
        mine = rows.model == number
        soon = mine & (rows.ttft <= model.slo_ttft_p95_s)
        fast = mine & (rows.tpot <= model.slo_tpot_p95_s)
        quick |= soon & fast
        if (soon & fast).any() or not problem.demand[:, number].any():
            continue
        first, each = _least(rows.ttft[fast]), _least(rows.tpot[soon])
        ways = []
        if first is not None:
            ways.append(f"raise slo_ttft_p95_s to {_up(first)}")
        if each is not None:
            ways.append(f"raise slo_tpot_p95_s to {_up(each)}")
        remedy = " or ".join(ways) or "raise both objectives, or add other points"
        limits = [
            f"{key} {getattr(model, key):g} s"
            for key in ("slo_ttft_p95_s", "slo_tpot_p95_s")
            if math.isfinite(getattr(model, key))
        ]
        text = (
            f"model `{model.name}` has no serving point within its latencies "
            f"({', '.join(limits)}: seconds, not milliseconds)"
        )
        reason = {
            "limit": "slo", "slot": None, "model": model.name, "ttft_p95_s": first,
            "tpot_p95_s": each, "remedy": f"{text}; {remedy}.",
        }  # fmt: skip
        latencies = {"ttft_p95_s": first, "tpot_p95_s": each}
        raise NoPlan(reason, **{x: y for x, y in latencies.items() if y is not None})
    return quick


def short(problem: Problem, slots: tuple[int, ...]) -> NoPlan | None:
    """What the slots that have no plan lack most of, GPUs (whatever the power) before
    power; None where plain rounding is the matter and no search found a plan."""
    for limits_, enough, refused in (
        (_pools(problem), 0.0, _few_gpus), (_sites(problem), 1e-6, _little_power),
    ):  # fmt: skip
        lacks = [_lack(problem, slot, limits_) for slot in slots]
        worst = int(np.argmax(lacks))
        if lacks[worst] > enough:
            return refused(problem, slots[worst])
    return None


def _pools(problem: Problem) -> Int[np.ndarray, " pool"]:
    """Places of pools among the limits."""
    return np.arange(len(problem.count))


def _sites(problem: Problem) -> Int[np.ndarray, " site"]:
    """Places of sites among the limits."""
    return len(problem.count) + np.arange(len(problem.pue))


def _lack(problem: Problem, slot: int, of: Int[np.ndarray, " limit"]) -> float:
    """Least sum of what is lacking, shares of replicas allowed unless that is nothing;
    infinite where a model cannot run at all."""
    relaxed = _change(problem, slot, of, whole=False)
    if relaxed is None:
        return math.inf
    if relaxed.sum() > 1e-6:
        return float(relaxed.sum())
    change = _change(problem, slot, of, whole=True)
    return 0.0 if change is None else float(change.sum())


def _change(
    problem: Problem, slot: int, of: Int[np.ndarray, " limit"], *, whole: bool
) -> Float[np.ndarray, " limit"] | None:
    """Least that the limits `of` must grow by so that the slot has a plan: of sites,
    W; of pools, GPUs, whatever the power."""
    demand, free, rows = problem.demand[slot], room(problem, slot), len(problem.rows)
    watts = of[0] >= len(problem.count)
    limited = np.isfinite(free) & (watts | (np.arange(len(free)) < len(problem.count)))
    active = demand > 0
    # scaled as in `slot_limits`: HiGHS lets a limit be missed by 1e-6, absolute
    rates = sparse.diags_array(1e3 / demand[active]) @ cover(problem)[active]
    more = sparse.csr_array(-np.eye(len(free))[np.ix_(limited, of)])
    matrix = sparse.block_array([[rates, None], [limits(problem)[limited], more]])
    kind = np.r_[np.full(rows, whole), np.full(len(of), whole and not watts)]
    answer = minimize(
        np.r_[np.zeros(rows), np.ones(len(of))], sparse.csr_array(matrix),
        np.r_[np.full(rates.shape[0], 1e3), np.full(int(limited.sum()), -np.inf)],
        np.r_[np.full(rates.shape[0], np.inf), free[limited]],
        np.r_[np.full(rows, _REPLICAS), np.full(len(of), np.inf if watts else _MOST)],
        work=Work(_WORK), whole=kind,
    )  # fmt: skip
    return None if answer.values is None else answer.values[rows:]


def _few_gpus(problem: Problem, slot: int) -> NoPlan:
    """What each pool alone lacks for every slot: the slot that lacks most in all may
    not be the one that needs most of a pool."""
    missing_gpus: dict[str, int] = {}
    hardest = _hardest(problem.demand)
    for pool in _pools(problem).tolist():
        most = 0.0
        for each in (slot, *hardest[hardest != slot].tolist()):
            added = _change(problem, each, np.array([pool]), whole=True)
            most = max(most, _MOST if added is None else float(added[0]))
            if most >= _MOST:
                break
        if most < _MOST:
            missing_gpus[problem.pools[pool]] = int(round(most))
    ways = [f"add {number} to pool `{name}`" for name, number in missing_gpus.items()]
    remedy = " or ".join(ways) if ways else "no single pool helps; add to several"
    text = f"slot {slot} needs more GPUs than there are, whatever the power"
    reason = {
        "limit": "gpus", "slot": slot, "add_gpus": missing_gpus,
        "remedy": f"{text}; {remedy}.",
    }  # fmt: skip
    return NoPlan(
        reason, **{f"add_gpus_{x}": float(y) for x, y in missing_gpus.items()}
    )


def _hardest(demand: Float[np.ndarray, "slot model"]) -> Int[np.ndarray, " hard"]:
    """Slots of which no other asks for as much or more of every model; the first of
    equal ones. Of many slots the busiest, and the busiest of each model."""
    values, first = np.unique(demand, axis=0, return_index=True)
    if len(values) > _SLOTS:
        totals = np.column_stack([values.sum(axis=1), values])
        return np.unique(first[totals.argmax(axis=0)])
    over = (values[:, None] <= values[None]).all(axis=2).sum(axis=1) > 1
    return np.sort(first[~over])


def _little_power(problem: Problem, slot: int) -> NoPlan:
    over = _change(problem, slot, _sites(problem), whole=True)
    # No whole plan within the work: shares of replicas need at least so much.
    if over is None:
        over = _change(problem, slot, _sites(problem), whole=False)
    assert over is not None
    site = int(np.argmax(over))
    budget = float(problem.budget[slot, site])
    needed = budget + float(over[site])
    name = problem.sites[site]
    more = [
        f"{problem.sites[x]} by {_up(over[x])} W"
        for x in np.flatnonzero(over > 1e-6)
        if x != site
    ]
    besides = f" (and that of {', '.join(more)})" if more else ""
    reason = {
        "limit": "power", "slot": slot, "site": name, "needed_w": needed,
        "budget_w": budget,
        "remedy": f"slot {slot} needs at least {_up(needed)} W at site `{name}`, whose "
        f"budget is {budget:g} W; raise power_budget_w to {_up(needed)}{besides}, or "
        "ask for less.",
    }  # fmt: skip
    return NoPlan(reason, needed_w=needed)


def _least(values: np.ndarray) -> float | None:
    return float(values.min()) if len(values) else None


def _up(value: float) -> str:
    """`value` with five digits, rounded up so that it serves."""
    if value <= 0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) - 4)
    return f"{math.ceil(value / unit - 1e-9) * unit:.6g}"


# --- Headroom: how far all demand can grow together, and what sets the limit.

_ROWS = 300_000
"""Slots x rows of the hull up to which every slot is looked at."""
_BUSIEST = 4
"""Slots with the most demand that are looked at beyond."""


def headroom(problem: Problem) -> dict[str, Any] | None:
    """The largest factor on all demand that the hardest slot carries, shares of a
    replica allowed, and what one W of a site or one GPU of a pool adds to it (a GPU
    brings its parked watts); None where nothing is asked for."""
    corners = problem.take(hull_rows(problem))
    total = problem.demand.sum(axis=1)
    slots = np.flatnonzero(total > 0)
    if not len(slots):
        return None
    if len(slots) * len(corners.rows) > _ROWS:
        best = np.full(problem.demand.shape[1], 0.0)
        rate = corners.rows.rate / corners.rows.gpus
        np.maximum.at(best, corners.rows.model, rate)
        gpus = (problem.demand / np.maximum(best, 1e-300)).sum(axis=1)
        slots = slots[np.argsort(-gpus[slots])[:_BUSIEST]]
    scales = [(*_scale(corners, int(slot)), int(slot)) for slot in slots]
    scale, marginal, slot = min(scales, key=lambda x: (x[0], x[2]))
    pools = len(problem.count)
    watt, gpu = marginal[pools:], marginal[:pools]
    net = gpu - problem.pue[problem.site] * problem.parked * watt[problem.site]
    budgets = np.isfinite(problem.budget[slot])
    return {
        "demand_scale": scale,
        "slot": slot,
        "requests_per_s": float(total[slot]),
        "per_watt": {
            name: float(value)
            for name, value, has in zip(problem.sites, watt, budgets, strict=True)
            if has
        },
        "per_gpu": dict(zip(problem.pools, map(float, net), strict=True)),
    }


def _scale(problem: Problem, slot: int) -> tuple[float, np.ndarray]:
    """Largest factor on the demand of a slot, and what limits add to it."""
    demand, free = problem.demand[slot], room(problem, slot)
    limited, active = np.isfinite(free), demand > 0
    rates = sparse.diags_array(1 / demand[active]) @ cover(problem)[active]
    growth = sparse.csr_array(np.ones((int(active.sum()), 1)))
    per = np.maximum(free[limited], 1e-9)
    use = sparse.diags_array(1 / per) @ limits(problem)[limited]
    matrix = sparse.block_array([[-rates, growth], [use, None]])
    goal = np.r_[np.zeros(len(problem.rows)), -1.0]
    upper = np.r_[np.zeros(int(active.sum())), free[limited] / per]
    solution = highs(LinearModel.at_most(goal, matrix, upper))
    if solution.values is None or solution.duals is None:
        raise RuntimeError(f"the headroom of slot {slot}: {solution.message}")
    marginal = np.zeros(len(free))
    marginal[limited] = -solution.duals[active.sum() :] / per
    return float(solution.values[-1]), np.maximum(0.0, marginal)
