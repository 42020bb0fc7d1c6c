"""One slot to its proof, where it has few rows.

Every plan that costs less than a known one is made of rows, and of plans of a model,
that waste less at given prices than the distance between the known plan and the bound
(reduced costs). So models of few replicas are listed as whole plans; the others keep
rows, with whole numbers for what stands on a pool, serves a model, and runs at a site:
HiGHS branches on those, and is done in seconds where rows alone take hours.
"""

import concurrent.futures
import dataclasses
import time

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from .._bound.linear import Prices, charged, limits, room
from .._problem.problem import Problem
from .candidates import Candidates
from .choose import made_of
from .integer import least
from .program import Whole, slot_limits

_FEW = 6.0
"""Replicas, of the fastest row, up to which the plans of a model are listed."""
_PARTIAL = 5_000_000
"""Plans begun of a model times its rows, beyond which it keeps its rows."""
_FIRST = 0.01
"""Distance above the bound, relative, up to which plans are looked for at first."""
_TINY = 1e-12


@dataclasses.dataclass(frozen=True)
class Slot:
    """A slot at prices: `wasted` is what a plan of a model costs at least above its
    demand on the cheapest row."""

    problem: Problem
    number: int
    prices: Prices
    wasted: Float[np.ndarray, " model"]

    @property
    def bound(self) -> float:
        """What no plan of the slot costs less than: one that costs `distance` more has
        no model that wastes more than its `wasted` and `distance`."""
        return self.prices.bound + float(self.wasted.sum())

    @property
    def reduced(self) -> Float[np.ndarray, " row"]:
        """Cost of a replica, with prices, above that of its requests."""
        at = np.r_[self.prices.gpu, self.prices.watt]
        rows = self.problem.rows
        paid = self.prices.request[rows.model] * rows.rate
        return np.maximum(charged(self.problem, self.number, at) - paid, 0.0)


def in_two_ways(
    slot: Slot, upper: float, seconds: float, gap: float
) -> tuple[Whole, Whole]:
    """`best_below` and `by_numbers` side by side: the first is proven sooner on some
    fleets, the second closer after a few seconds on others. The solver lets threads
    overlap in part only."""
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        below = threads.submit(best_below, slot, upper, seconds=seconds, gap=gap)
        numbers = threads.submit(by_numbers, slot, seconds=seconds, gap=gap)
        return below.result(), numbers.result()


def best_below(slot: Slot, upper: float, *, seconds: float, gap: float) -> Whole:
    """The least plan of the slot, starts aside, among those below `upper`; no plan is
    below its `bound`. It ends where these are within the relative `gap`."""
    ends = time.monotonic() + seconds
    cost, idle = slot.problem.cost(slot.number), slot.problem.idle_cost(slot.number)
    distance = min(upper - slot.bound, _FIRST * abs(slot.bound))
    gap *= upper / max(upper - idle, _TINY * abs(upper))  # HiGHS's is without `idle`
    best, bound = Whole(None, slot.bound, False), slot.bound
    while time.monotonic() < ends:
        found = _within(slot, distance, ends, gap)
        seen = slot.bound + distance  # what costs more may have been left out
        bound = max(bound, min(found.bound, seen))
        value = np.inf
        if found.counts is not None:
            value = float(cost @ found.counts[0]) + idle
            best = found
        if value <= seen or seen >= upper or not found.proven:
            break
        distance = min(upper - slot.bound, 2 * distance)
    return Whole(best.counts, bound, best.proven)


def by_numbers(slot: Slot, *, seconds: float, gap: float) -> Whole:
    """A good plan of the slot, starts aside, and a bound: first how many replicas of
    each (model, pool, n), with rows mixed in shares, then whole rows for these numbers.

    No plan costs less than the first, since its numbers are whole, too.
    """
    ends = time.monotonic() + seconds
    problem, idle = slot.problem, slot.problem.idle_cost(slot.number)
    cost, rows = problem.cost(slot.number), len(problem.rows)
    sums = _nonempty(_numbers(problem))
    matrix, low, high = slot_limits(problem, slot.number)
    count = len(sums.indptr) - 1
    both = sparse.csr_array(
        sparse.block_array([[matrix, None], [sums, -sparse.eye_array(count)]])
    )
    zero, top = np.zeros(count), np.full(rows + count, float(problem.count.sum()))
    shared = least(
        np.r_[cost, zero], both, np.r_[low, zero], np.r_[high, zero], top,
        seconds=seconds / 2, gap=gap / 4, whole=np.r_[np.zeros(rows), np.ones(count)],
    )  # fmt: skip
    bound = shared.bound + idle
    if shared.values is None:
        return Whole(None, bound, False)
    groups = len(np.unique(problem.group))
    fixed = np.round(shared.values[rows : rows + groups])
    used = np.flatnonzero(fixed[np.unique(problem.group, return_inverse=True)[1]] > 0)
    of_used = sparse.csr_array(sums[:groups][:, used])
    found = least(
        cost[used], sparse.csr_array(sparse.vstack([matrix[:, used], of_used])),
        np.r_[low, fixed], np.r_[high, fixed], top[used],
        seconds=ends - time.monotonic(), gap=gap / 4,
    )  # fmt: skip
    if found.values is None:
        return Whole(None, bound, False)
    counts = np.zeros((1, rows))
    counts[0, used] = found.values
    return Whole(counts, bound, False)


def _within(slot: Slot, distance: float, ends: float, gap: float) -> Whole:
    """The least plan out of all that may lie up to `distance` above the bound, found
    until `ends` (s, monotonic)."""
    problem, reduced = slot.problem, slot.reduced
    most = distance + slot.wasted
    plans = _plans(slot, reduced, most)
    listed = np.unique(plans.model)
    near = reduced <= most[problem.rows.model]
    rest = np.flatnonzero(near & ~np.isin(problem.rows.model, listed))
    made, columns = _columns(problem, plans, rest), len(plans) + len(rest)
    # limits of the slot, the listed models by one plan each
    matrix, low, high = slot_limits(problem, slot.number)
    asked = np.flatnonzero(problem.demand[slot.number] > 0)
    one = np.isin(asked, listed)
    keep = np.r_[~one, np.ones(len(low) - len(asked), bool)]
    each = sparse.vstack([matrix[keep] @ made, _one_each(plans, listed, columns)])
    low = np.r_[low[keep], np.ones(len(listed))]
    high = np.r_[high[keep], np.ones(len(listed))]
    numbers = _nonempty(sparse.csr_array(_numbers(problem) @ made))
    more = len(numbers.indptr) - 1
    both = sparse.block_array([[each, None], [numbers, -sparse.eye_array(more)]])
    cost = np.r_[made.T @ problem.cost(slot.number), np.zeros(more)]
    top = float(problem.count.sum())
    found = least(
        cost, sparse.csr_array(both), np.r_[low, np.zeros(more)],
        np.r_[high, np.zeros(more)], np.full(len(cost), top),
        seconds=ends - time.monotonic(), gap=gap,
    )  # fmt: skip
    counts = None
    if found.values is not None:
        counts = (made @ found.values[:columns])[None]
    return Whole(counts, found.bound + problem.idle_cost(slot.number), found.proven)


def _columns(
    problem: Problem, plans: Candidates, rest: Int[np.ndarray, " row"]
) -> sparse.csr_array:
    """Replicas [row, column]: of whole plans, then of the rows `rest` one by one."""
    rows = len(problem.rows)
    ones = (np.ones(len(rest)), (rest, np.arange(len(rest))))
    single = sparse.coo_array(ones, (rows, len(rest)))
    return sparse.csr_array(sparse.hstack([made_of(plans, rows), single]))


def _one_each(
    plans: Candidates, listed: Int[np.ndarray, " model"], columns: int
) -> sparse.coo_array:
    """Which columns are plans of each of the models `listed`."""
    where = (np.searchsorted(listed, plans.model), np.arange(len(plans)))
    return sparse.coo_array((np.ones(len(plans)), where), (len(listed), columns))


def _nonempty(matrix: sparse.csr_array) -> sparse.csr_array:
    """The lines that have entries."""
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]


def _numbers(problem: Problem) -> sparse.csr_array:
    """What is a whole number of any plan [number, row]: replicas of each (model, pool,
    n), of each model, GPUs used of each pool, and of each site."""
    rows, index = problem.rows, np.arange(len(problem.rows))

    def sums(of: np.ndarray, each: np.ndarray) -> sparse.coo_array:
        shape = (int(of.max(initial=-1)) + 1, len(index))
        return sparse.coo_array((each, (of, index)), shape)

    ones = np.ones(len(index))
    return sparse.csr_array(
        sparse.vstack(
            [
                sums(problem.group, ones), sums(rows.model, ones),
                sums(rows.pool, rows.gpus), sums(problem.row_site, rows.gpus),
            ]
        )
    )  # fmt: skip


def _plans(
    slot: Slot, reduced: Float[np.ndarray, " row"], most: Float[np.ndarray, " model"]
) -> Candidates:
    """All plans that waste at most `most`, of every model of few replicas; of those of
    which another takes no more of anything, none."""
    rows, wanted = slot.problem.rows, slot.problem.demand[slot.number]
    fastest = np.zeros(len(wanted))
    np.maximum.at(fastest, rows.model, rows.rate)
    found = []
    for model in np.flatnonzero((wanted > 0) & (fastest * _FEW >= wanted)).tolist():
        near = np.flatnonzero((rows.model == model) & (reduced <= most[model]))
        share = rows.rate[near] / wanted[model]
        price = slot.prices.request[model] * wanted[model]
        each = _multisets(share, reduced[near], price, most[model])
        if each is not None:
            plan = np.where(each >= 0, near[each], 0)
            of = Candidates(np.full(len(plan), model), plan, (each >= 0).astype(float))
            found.append(of.take(_undominated(slot, of)))
    if not found:
        return Candidates(np.zeros(0, int), np.zeros((0, 1), int), np.zeros((0, 1)))
    width = max(x.row.shape[1] for x in found)
    wide = [np.pad(x.row, ((0, 0), (0, width - x.row.shape[1]))) for x in found]
    much = [np.pad(x.count, ((0, 0), (0, width - x.count.shape[1]))) for x in found]
    models = np.concatenate([x.model for x in found])
    return Candidates(models, np.vstack(wide), np.vstack(much))


def _multisets(
    share: Float[np.ndarray, " row"],
    waste: Float[np.ndarray, " row"],
    price: float,
    most: float,
) -> Int[np.ndarray, "plan part"] | None:
    """Replicas whose `share` of the demand sums to 1 or just more, as indices (-1:
    none), that waste at most `most`: their `waste`, and `price` of what they carry too
    much. None where too many are begun."""
    begun, carried, lost = np.zeros((1, 0), int), np.zeros(1), np.zeros(1)
    done: list[np.ndarray] = []
    while len(begun):
        if len(begun) * len(share) > _PARTIAL:
            return None
        last = begun[:, -1] if begun.shape[1] else np.zeros(len(begun), int)
        plan, row = np.nonzero(np.arange(len(share)) >= last[:, None])
        sums, losses = carried[plan] + share[row], lost[plan] + waste[row]
        good = losses + price * np.maximum(sums - 1, 0.0) <= most
        full = sums >= 1 - _TINY
        here = np.c_[begun[plan], row]
        done.append(here[good & full])
        more = good & ~full
        begun, carried, lost = here[more], sums[more], losses[more]
    width = max(x.shape[1] for x in done)
    wide = [
        np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=-1) for x in done
    ]
    return np.vstack(wide)


def _undominated(slot: Slot, plans: Candidates) -> Int[np.ndarray, " plan"]:
    """Plans of one model none of which takes as much or more than another of every
    limit and costs as much or more."""
    problem = slot.problem
    made = made_of(plans, len(problem.rows))
    held = np.isfinite(room(problem, slot.number))
    use = (limits(problem)[held] @ made).toarray().T
    takes = np.c_[made.T @ problem.cost(slot.number), use]
    left = np.lexsort(takes.T[::-1])  # what takes less of all stands before
    kept = []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(first)
        left = left[(takes[left] < takes[first] * (1 - _TINY)).any(axis=1)]
    return np.array(kept, int)
