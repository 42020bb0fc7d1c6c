"""Whole replicas by HiGHS: one slot in two programs, all slots, a few models anew.

Costs and limits are scaled so that the solver's tolerances do not matter.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ..search import LinearModel, highs
from ._bound import Prices, charged, slot_limits
from ._problem import Problem, keeps_limits, mixing_rows, site_power
from ._work import PER_CHECK, Work, checks_in, integer_work

_SIZE = 1e4
"""Costs are scaled to this: HiGHS ends at an absolute gap of 1e-6."""
_LEAST = 0.05
"""Work (s) that a search is given at least."""


@dataclasses.dataclass(frozen=True)
class Solution:
    """`values`: the best found, None without any; no solution costs less than `bound`
    (infinite: there is none at all); `proven`: the search ended by itself."""

    values: Float[np.ndarray, "*slot column"] | None
    bound: float
    proven: bool


def minimize(
    cost: Float[np.ndarray, " column"],
    matrix: sparse.csr_array,
    low: Float[np.ndarray, " limit"],
    high: Float[np.ndarray, " limit"],
    most: Float[np.ndarray, " column"],
    *,
    work: Work,
    gap: float = 0.0,
    whole: Bool[np.ndarray, " column"] | None = None,
) -> Solution:
    """Least `cost @ x` with low <= matrix @ x <= high and 0 <= x <= most, within the
    `work` or the relative `gap`; x is whole, or where `whole` says so."""
    unit = float(np.abs(cost).max(initial=0.0)) / _SIZE or 1.0
    kind = np.ones(len(cost), bool) if whole is None else whole
    if not len(cost):
        fits = bool((low <= 0).all() and (high >= 0).all())
        return Solution(np.zeros(0) if fits else None, 0.0 if fits else np.inf, True)

    model = LinearModel(matrix, low, high, np.zeros(len(cost)), most, cost / unit, kind)
    size, wall = matrix.nnz, max(_LEAST, work.wall_left)
    checks = checks_in(max(_LEAST, work.left), size)
    answer = highs(model, time_limit=wall, gap=gap, checks=checks)
    work.add(integer_work(size, len(cost), answer.iterations))
    if answer.status == "infeasible":
        return Solution(None, np.inf, True)
    bound = -np.inf if answer.bound is None else float(answer.bound * unit)
    values = answer.values
    if values is not None:
        # HiGHS counts a value within its tolerance of a whole number as whole
        values = np.where(kind, np.round(values), values)
    return Solution(values, bound, answer.status == "optimal")


# --- One slot in two programs.
#
# Few numbers decide a slot: replicas of each (model, pool, n). With these whole and
# rows mixed in shares the program is small, and its bound is a few tenths of a percent
# below the best plan. Whole rows are then chosen for the numbers that it ends with.

_STRICTER = 0.3
"""Gap of both programs over the one that is aimed at."""
_FIRST = 0.7
"""Share of the work for the first program."""


def plan_slot(problem: Problem, slot: int, *, work: Work, gap: float) -> Solution:
    """A cheap plan of a slot, replicas [row], and a bound, starts aside."""
    alone, gap = problem.at(slice(slot, slot + 1)), _STRICTER * gap
    idle, groups = problem.idle_cost(slot), len(problem.firsts)
    corners = problem.take(mixing_rows(problem))  # has a row of every group
    matrix, low, high, _ = slot_limits(corners, slot)
    loads, zero = _group_sums(corners), np.zeros(groups)
    both = sparse.block_array([[matrix, None], [loads, -sparse.eye_array(groups)]])
    rows, most = len(corners.rows), _most_replicas(corners)
    is_number = np.arange(rows + groups) >= rows
    numbers = minimize(
        np.r_[corners.cost(slot), zero], sparse.csr_array(both),
        np.r_[low, zero], np.r_[high, zero],
        np.r_[most, most[corners.firsts]],
        work=work.part(_FIRST * work.left), gap=gap, whole=is_number,
    )  # fmt: skip
    bound = numbers.bound + idle
    if numbers.values is None:
        return Solution(None, bound, numbers.proven)

    settled = numbers.values[rows:]
    runs = settled > 0
    used = np.flatnonzero(runs[problem.group])
    matrix, low, high, _ = slot_limits(problem, slot)
    both = sparse.vstack([matrix, _group_sums(problem)[runs]])
    choice = minimize(
        problem.cost(slot)[used], sparse.csr_array(both)[:, used],
        np.r_[low, settled[runs]], np.r_[high, settled[runs]],
        settled[problem.group[used]], work=work, gap=gap,
    )  # fmt: skip
    if choice.values is None:
        return Solution(None, bound, False)
    counts = np.zeros(len(problem.rows))
    counts[used] = choice.values
    # The solver may miss a limit by its tolerance: only plans that keep all are taken.
    return Solution(
        counts if keeps_limits(alone, counts[None])[0] else None, bound, False
    )


def slot_work(problem: Problem) -> float:
    """Work (s) that `plan_slot` has to have to be of use."""
    return _CHECKS * PER_CHECK * _NONZEROS * len(mixing_rows(problem))


_CHECKS, _NONZEROS = 30, 4
"""Checks of HiGHS in which most slots are planned; nonzeros of a row: its model, pool,
site and group."""


def _group_sums(problem: Problem) -> sparse.csr_array:
    """Sums over the rows of each (model, pool, n) [group, row]."""
    entries = np.ones(len(problem.rows)), (problem.group, np.arange(len(problem.rows)))
    shape = len(problem.firsts), len(problem.rows)
    return sparse.csr_array(sparse.coo_array(entries, shape))


def _most_replicas(problem: Problem) -> Float[np.ndarray, " row"]:
    """Replicas of each row that its pool has room for."""
    rows = problem.rows
    return np.floor(problem.count[rows.pool] / rows.gpus + 1e-9)


# --- The integer program itself: whole replicas of every row in every slot, with
# starts.
#
# Small fleets are solved by it to proof; of large ones it plans a few models anew with
# what the others leave.


def plan_all_slots(
    problem: Problem,
    *,
    work: Work,
    gap: float = 0.0,
    near: Bool[np.ndarray, "slot row"] | None = None,
) -> Solution:
    """The least plan of all slots with their starts, replicas [slot, row], out of rows
    that are `near` in a slot (all if not given)."""
    slots, first = problem.slots, problem.firsts
    parts = [slot_limits(problem, slot) for slot in range(slots)]
    blocks, low, high, _ = (list(x) for x in zip(*parts, strict=True))
    cost = [problem.cost(slot) for slot in range(slots)]
    matrix = sparse.csr_array(sparse.block_diag(blocks))
    paid = np.flatnonzero(problem.start[first] > 0)  # groups whose start costs
    more = (slots - 1) * len(paid)
    if more:
        # X - X of the slot before - u <= 0
        here, before = (sparse.eye_array(slots - 1, slots, k=k) for k in (1, 0))
        rise = sparse.kron(here - before, _group_sums(problem)[paid])
        both = [[matrix, None], [rise, -sparse.eye_array(more)]]
        matrix = sparse.csr_array(sparse.block_array(both))
        low.append(np.full(more, -np.inf))
        high.append(np.zeros(more))
        # what runs in the first slot is loaded already (`starts_of`): no price there
        cost += [problem.start_cost(slot)[first[paid]] for slot in range(1, slots)]
    most = _most_replicas(problem)
    upper = np.r_[np.tile(most, slots), np.full(more, most.max(initial=0.0))]
    used = np.ones(len(upper), bool)
    if near is not None:
        used[: near.size] = near.ravel()
    answer = minimize(
        np.concatenate(cost)[used], sparse.csr_array(matrix[:, used]),
        np.concatenate(low), np.concatenate(high), upper[used], work=work, gap=gap,
    )  # fmt: skip
    values = answer.values
    if values is not None:
        counts = np.zeros(len(upper))
        counts[used] = values
        values = counts[: slots * len(most)].reshape(slots, len(most))
    idle = sum(problem.idle_cost(slot) for slot in range(slots))
    return Solution(values, answer.bound + idle, answer.proven)


def plan_anew(
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
    values = plan_all_slots(left, work=work, gap=gap).values
    if values is None:
        return None
    others[chosen] = values[0]
    return others if keeps_limits(alone, others[None])[0] else None


def _without(
    alone: Problem, others: Float[np.ndarray, " row"], mine: Bool[np.ndarray, " row"]
) -> Problem:
    """The slot with what others leave, and the demand of the others gone."""
    rows = alone.rows
    used = np.bincount(rows.pool, others * rows.gpus, len(alone.count))
    drawn = site_power(alone, others[None])[0] - alone.base
    models = alone.demand.shape[1]
    planned = np.bincount(rows.model[mine], minlength=models) > 0
    count = alone.count - used
    # boards that others use draw what they draw: the base of the rest stays parked
    parked = np.bincount(alone.site, used * alone.parked, minlength=len(alone.pue))
    budget = alone.budget - drawn - alone.pue * parked
    return dataclasses.replace(
        alone, count=count, demand=np.where(planned, alone.demand, 0.0), budget=budget
    )
