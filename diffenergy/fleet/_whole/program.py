"""The integer program itself: whole replicas of every row in every slot, with starts.

Small fleets are solved by it to proof; of large ones it plans a few models anew with
what the others leave.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from .._bound.linear import Prices, charged, slot_limits
from .._problem.problem import Problem, kept, site_power
from .integer import Found, least
from .work import Work


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
