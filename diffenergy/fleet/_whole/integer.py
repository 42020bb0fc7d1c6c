"""Integer programs by HiGHS, scaled so that its tolerances do not matter."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._bound import Prices, charged, slot_limits
from .._problem import Problem, kept, site_power
from .work import PER_CHECK, Work, checks_in, program_work

_SIZE = 1e4
"""Costs are scaled to this: HiGHS ends at an absolute gap of 1e-6."""
_LEAST = 0.05
"""Work (s) that a search is given at least."""


@dataclasses.dataclass(frozen=True)
class Found:
    """`values`: the best found, None without any; no solution costs less than `bound`
    (infinite: there is none at all); `proven`: the search ended by itself."""

    values: Float[np.ndarray, "*slot column"] | None
    bound: float
    proven: bool


def least(
    cost: Float[np.ndarray, " column"],
    matrix: sparse.csr_array,
    low: Float[np.ndarray, " limit"],
    high: Float[np.ndarray, " limit"],
    most: Float[np.ndarray, " column"],
    *,
    work: Work,
    gap: float = 0.0,
    whole: Bool[np.ndarray, " column"] | None = None,
) -> Found:
    """Least `cost @ x` with low <= matrix @ x <= high and 0 <= x <= most, within the
    `work` or the relative `gap`; x is whole, or where `whole` says so."""
    unit = float(np.abs(cost).max(initial=0.0)) / _SIZE or 1.0
    kind = np.ones(len(cost), bool) if whole is None else whole
    if not len(cost):
        fits = bool((low <= 0).all() and (high >= 0).all())
        return Found(np.zeros(0) if fits else None, 0.0 if fits else np.inf, True)

    model = LinearModel(matrix, low, high, np.zeros(len(cost)), most, cost / unit, kind)
    size, wall = matrix.nnz, max(_LEAST, work.wall_left)
    checks = checks_in(max(_LEAST, work.left), size)
    found = highs(model, time_limit=wall, gap=gap, checks=checks)
    work.add(program_work(size) + PER_CHECK * size * found.checks)
    if found.status == "infeasible":
        return Found(None, np.inf, True)
    bound = -np.inf if found.bound is None else float(found.bound * unit)
    values = found.values
    if values is not None:
        values = np.where(kind, np.round(values), values)
    return Found(values, bound, found.status == "optimal")


# --- The integer program itself: whole replicas of every row in every slot, with
# starts.
#
# Small fleets are solved by it to proof; of large ones it plans a few models anew with
# what the others leave.


def whole(problem: Problem, *, work: Work, gap: float = 0.0) -> Found:
    """The least plan of all slots with their starts, replicas [slot, row]."""
    slots, first, group = problem.slots, problem.firsts, problem.group
    parts = [slot_limits(problem, slot) for slot in range(slots)]
    blocks, low, high, _ = (list(x) for x in zip(*parts, strict=True))
    cost = [problem.cost(slot) for slot in range(slots)]
    matrix = sparse.csr_array(sparse.block_diag(blocks))
    paid = np.flatnonzero(problem.start[first] > 0)  # groups whose start costs
    more = (slots - 1) * len(paid)
    if more:
        # X - X of the slot before - u <= 0
        here, before = (sparse.eye_array(slots - 1, slots, k=k) for k in (1, 0))
        loads = sparse.csr_array((group == paid[:, None]).astype(float))
        rise = sparse.kron(here - before, loads)
        both = [[matrix, None], [rise, -sparse.eye_array(more)]]
        matrix = sparse.csr_array(sparse.block_array(both))
        low.append(np.full(more, -np.inf))
        high.append(np.zeros(more))
        cost += [problem.start_cost(slot)[first[paid]] for slot in range(1, slots)]
    most = np.floor(problem.count[problem.rows.pool] / problem.rows.gpus + 1e-9)
    upper = np.r_[np.tile(most, slots), np.full(more, most.max(initial=0.0))]
    found = least(
        np.concatenate(cost), matrix, np.concatenate(low), np.concatenate(high), upper,
        work=work, gap=gap,
    )  # fmt: skip
    values = found.values
    if values is not None:
        values = values[: slots * len(most)].reshape(slots, len(most))
    idle = sum(problem.idle_cost(slot) for slot in range(slots))
    return Found(values, found.bound + idle, found.proven)


def anew(
    problem: Problem,
    slot: int,
    prices: Prices,
    models: Int[np.ndarray, " model"],
    counts: Float[np.ndarray, " row"],
    near: float,
    work: Work,
    gap: float,
) -> Float[np.ndarray, " row"] | None:
    """Replicas of a slot with these models planned anew, starts aside, over the rows
    that they have and those that cost up to `near` times the least of their model with
    prices; None where nothing was found."""
    alone, rows = problem.at(slice(slot, slot + 1)), problem.rows
    mine = np.isin(rows.model, models)
    others = np.where(mine, 0.0, counts)
    each = charged(problem, slot, prices.limits) / rows.rate
    cheap = each <= near * prices.request[rows.model]
    chosen = np.flatnonzero(mine & (cheap | (counts > 0)))
    left = _without(alone, others, mine).take(chosen)
    found = whole(left, work=work, gap=gap).values
    if found is None:
        return None
    others[chosen] = found[0]
    return others if kept(alone, others[None])[0] else None


def _without(
    alone: Problem, others: Float[np.ndarray, " row"], mine: Bool[np.ndarray, " row"]
) -> Problem:
    """The slot with what others leave, and the demand of the others gone."""
    rows = alone.rows
    used = np.bincount(rows.pool, others * rows.gpus, len(alone.count))
    drawn = site_power(alone, others[None])[0] - alone.base
    models = alone.demand.shape[1]
    asked = np.bincount(rows.model[mine], minlength=models) > 0
    count = alone.count - used
    # boards that others use draw what they draw: the base of the rest stays parked
    parked = np.bincount(alone.site, used * alone.parked, minlength=len(alone.pue))
    budget = alone.budget - drawn - alone.pue * parked
    return dataclasses.replace(
        alone, count=count, demand=np.where(asked, alone.demand, 0.0), budget=budget
    )
