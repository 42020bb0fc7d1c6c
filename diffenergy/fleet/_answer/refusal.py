"""Why there is no plan: which limit binds, in which slot, and the least that helps."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from ...results import Infeasible
from ...search import LinearModel, highs
from .._bound.linear import cover, limits, room
from .._problem.problem import Problem, Rows
from .._whole.integer import least

_SECONDS = 5.0
"""s of one search for the least change."""
_MOST = 1e6
"""GPUs more, at most."""


class NoPlan(Infeasible):
    """No plan keeps what was asked for. `reason`: JSON: `limit` (slo, gpus, power;
    time: none was found), `slot`, the least that helps, and `remedy`, a sentence."""

    def __init__(self, reason: dict[str, Any], **least: float):
        super().__init__(reason["remedy"], **least)
        self.reason = reason


def slow(
    rows: Rows,
    good: Bool[np.ndarray, " row"],
    asked: Bool[np.ndarray, " model"],
    names: tuple[str, ...],
    ttft: Float[np.ndarray, " model"],
    tpot: Float[np.ndarray, " model"],
) -> NoPlan | None:
    """The first model that no row serves within its objectives of latency."""
    for model in np.flatnonzero(asked):
        mine = rows.model == model
        if (mine & good).any():
            continue
        first = _least(rows.ttft[mine & (rows.tpot <= tpot[model])])
        each = _least(rows.tpot[mine & (rows.ttft <= ttft[model])])
        ways = []
        if first is not None:
            ways.append(f"raise slo_ttft_p95_s to {_up(first)}")
        if each is not None:
            ways.append(f"raise slo_tpot_p95_s to {_up(each)}")
        remedy = " or ".join(ways) or "raise both objectives, or add other points"
        text = f"model `{names[model]}` has no serving point within its latencies"
        reason = {
            "limit": "slo", "slot": None, "model": names[model], "ttft_p95_s": first,
            "tpot_p95_s": each, "remedy": f"{text}; {remedy}.",
        }  # fmt: skip
        known = {"ttft_p95_s": first, "tpot_p95_s": each}
        return NoPlan(reason, **{x: y for x, y in known.items() if y is not None})
    return None


def short(problem: Problem, slots: tuple[int, ...]) -> NoPlan | None:
    """What the slots that have no plan lack most of, GPUs (whatever the power) before
    power; None where plain rounding is the matter and no search found a plan."""
    chosen = problem.at(np.array(slots))
    lacks = [_lack(chosen, slot, _gpus(chosen)) for slot in range(len(slots))]
    worst = int(np.argmax(lacks))
    if lacks[worst] > 0:
        return _few_gpus(chosen, worst, slots[worst])
    lacks = [_lack(chosen, slot, _watts(chosen)) for slot in range(len(slots))]
    worst = int(np.argmax(lacks))
    if lacks[worst] > 1e-6:
        return _little_power(chosen, worst, slots[worst])
    return None


@dataclasses.dataclass(frozen=True)
class _Slack:
    """More of limits (pools then sites): `more` [limit, column]; `only`: the limits
    that count at all."""

    more: Float[np.ndarray, "limit column"]
    only: Bool[np.ndarray, " limit"]


def _gpus(problem: Problem) -> _Slack:
    pools, sites = len(problem.count), len(problem.pue)
    more = np.eye(pools + sites, pools)
    return _Slack(more, np.arange(pools + sites) < pools)


def _watts(problem: Problem) -> _Slack:
    pools, sites = len(problem.count), len(problem.pue)
    more = np.eye(pools + sites)[:, pools:]
    return _Slack(more, np.ones(pools + sites, bool))


def _lack(problem: Problem, slot: int, slack: _Slack) -> float:
    """Least sum of what is lacking, shares of replicas allowed unless that is nothing;
    infinite where a model cannot run at all."""
    relaxed = _change(problem, slot, slack, whole=False)
    if relaxed is None:
        return math.inf
    if relaxed.sum() > 1e-6:
        return float(relaxed.sum())
    found = _change(problem, slot, slack, whole=True)
    return 0.0 if found is None else float(found.sum())


def _change(
    problem: Problem, slot: int, slack: _Slack, *, whole: bool
) -> Float[np.ndarray, " column"] | None:
    """Least change of the slack's limits that lets the slot have a plan."""
    wanted, free = problem.demand[slot], room(problem, slot)
    held, asked = np.isfinite(free) & slack.only, wanted > 0
    rates = sparse.diags_array(1e3 / wanted[asked]) @ cover(problem)[asked]
    use = limits(problem)[held]
    rows, more = len(problem.rows), slack.more.shape[1]
    none = sparse.csr_array((rates.shape[0], more))
    matrix = sparse.block_array(
        [[rates, none], [use, sparse.csr_array(-slack.more[held])]]
    )
    cost = np.r_[np.zeros(rows), np.ones(more)]
    low = np.r_[np.full(rates.shape[0], 1e3), np.full(use.shape[0], -np.inf)]
    high = np.r_[np.full(rates.shape[0], np.inf), free[held]]
    if not whole:
        x = np.zeros(len(cost)), np.full(len(cost), np.inf)
        found = highs(LinearModel(sparse.csr_array(matrix), low, high, *x, cost))
        return None if found.values is None else found.values[rows:]
    most = np.r_[np.full(rows, 1e5), np.full(more, _MOST)]
    real = np.r_[np.ones(rows), np.ones(more)]
    if slack.only.all():  # watts are no whole numbers
        real[rows:] = 0
        most[rows:] = np.inf
    answer = least(
        cost, sparse.csr_array(matrix), low, high, most, seconds=_SECONDS, whole=real
    )
    return None if answer.values is None else answer.values[rows:]


def _few_gpus(problem: Problem, place: int, slot: int) -> NoPlan:
    slack, pools = _gpus(problem), len(problem.count)
    found: dict[str, int] = {}
    for pool in range(pools):
        alone = dataclasses.replace(slack, more=slack.more[:, [pool]])
        added = _change(problem, place, alone, whole=True)
        if added is not None and added[0] < _MOST:
            found[problem.pools[pool]] = int(round(added[0]))
    ways = [f"add {number} to pool `{name}`" for name, number in found.items()]
    remedy = " or ".join(ways) if ways else "no single pool helps; add to several"
    text = f"slot {slot} needs more GPUs than there are, whatever the power"
    reason = {
        "limit": "gpus", "slot": slot, "add_gpus": found,
        "remedy": f"{text}; {remedy}.",
    }  # fmt: skip
    return NoPlan(reason, **{f"add_gpus_{x}": float(y) for x, y in found.items()})


def _little_power(problem: Problem, place: int, slot: int) -> NoPlan:
    over = _change(problem, place, _watts(problem), whole=True)
    if over is None:
        over = _change(problem, place, _watts(problem), whole=False)
    assert over is not None
    site = int(np.argmax(over))
    budget = float(problem.budget[place, site])
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
