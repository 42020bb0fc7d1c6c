"""From a problem to its plan: bounds first, then whole replicas, then the distance."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from ..search import pareto_front
from ._bound import Prices, bound_by_cuts, near_rows, no_cuts, solve_relaxation
from ._horizon import (
    Progress,
    Search,
    between_neighbours,
    neighbourhoods,
    slot_by_slot,
)
from ._integer import plan_all_slots, plan_slot, slot_work
from ._knapsack import bound_by_knapsacks
from ._problem import Problem, hull_rows, keeps_limits, value_of
from ._work import Work, program_work

_SMALL = 30_000
"""Slots x rows up to which one integer program of all slots is tried."""
_TINY = 1_000
"""The same up to which it is tried first."""
_LINEAR = 3_000
"""Rows of the hull up to which HiGHS solves the linear program of a slot."""
_FEW = 3_000
"""Rows up to which slots are planned in two programs each: with more, candidates and
neighbourhoods come nearer in the same time (50 models: a gap of 0.1, not 0.2 %)."""
_PROOF = 1e-9
"""Relative gap of a proven plan."""
OPTIMAL = 1e-4
"""Gap up to which a plan is called optimal."""
_NONZEROS = 3
"""Of a row in the linear program of a slot: its model, pool and site."""


@dataclasses.dataclass(frozen=True)
class Solved:
    """`counts`: whole replicas of the rows of `problem`; `value` of them; no plan is
    below `bound`; `prices` of every slot, which alone prove `price_bound`; `late`:
    whether wall time ended the search; `interrupted`: whether Ctrl-C did."""

    problem: Problem
    counts: Float[np.ndarray, "slot row"]
    value: float
    bound: float
    prices: Sequence[Prices]
    price_bound: float
    late: bool
    interrupted: bool = False

    @property
    def gap(self) -> float:
        """(value - bound) / |value|."""
        if self.value <= self.bound:
            return 0.0
        return (self.value - self.bound) / abs(self.value)


@dataclasses.dataclass(frozen=True)
class Unsolved:
    """No plan: of the slots in `slots`; `proven`, or none was found in time."""

    problem: Problem
    slots: tuple[int, ...]
    proven: bool


def useful(problem: Problem) -> Problem:
    """With the rows alone that whole replicas can need: those that a pool has room
    for, of which none of the same GPUs carries as much for no more power."""
    gpus, pool = problem.rows.gpus, problem.rows.pool
    fits = problem.take(np.flatnonzero(gpus <= problem.count[pool]))
    if not len(fits.rows):
        return fits
    front = pareto_front(-fits.rows.rate, fits.rows.power, group=fits.group)
    return fits.take(np.sort(front))


def solve(
    problem: Problem, max_gap: float, work: Work, progress: Progress
) -> Solved | Unsolved:
    """The best plan within the `work` or the relative `max_gap`, with its bound.

    Small fleets are solved to proof whatever `max_gap`. Ctrl-C ends the search with the
    best plan so far, if there is one.
    """
    problem = useful(problem)
    prices = _prices(problem, work, progress)
    unsolvable = tuple(
        slot for slot, prices_of_slot in enumerate(prices) if prices_of_slot is None
    )
    if unsolvable:
        return Unsolved(problem, unsolvable, True)
    priced = [prices_of_slot for prices_of_slot in prices if prices_of_slot is not None]
    state = _State(Search(problem, priced, work), max_gap, progress)
    try:
        state.run()
    except KeyboardInterrupt:
        if state.best is None:
            raise
        state.interrupted = True
    return state.answer()


class _State:
    """Best plan and bounds so far, and the steps that improve them."""

    def __init__(self, at: Search, max_gap: float, progress: Progress):
        self.at, self.max_gap, self.progress = at, max_gap, progress
        self.bounds = np.array([x.bound for x in at.prices])
        self.price_bound = float(self.bounds.sum())
        self.wasted = np.zeros(at.problem.demand.shape)
        self.bound = self.price_bound
        self.best: np.ndarray | None = None
        self.value = np.inf
        self.impossible = self.interrupted = False
        self.stuck: int | None = None

    def run(self) -> None:
        """Looks for the plan; small fleets end with a proof."""
        size = self.at.problem.slots * len(self.at.problem.rows)
        if size <= _TINY:
            self.program(self.at.work.limit)
        if not self.done:
            self.search()
        if _TINY < size <= _SMALL and not self.impossible and self.gap > _PROOF:
            self.program(self.at.left)

    @property
    def gap(self) -> float:
        """Relative distance of value and bound."""
        if self.best is None:
            return np.inf
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-300)

    @property
    def done(self) -> bool:
        """Whether there is nothing more to find."""
        return self.impossible or self.gap <= _PROOF

    def take(self, counts: np.ndarray | None) -> None:
        """Stores whole replicas if they are better than the best so far."""
        problem = self.at.problem
        if counts is None or not keeps_limits(problem, counts).all():
            return
        value = value_of(problem, counts)
        if value < self.value:
            self.best, self.value = counts, value

    def program(self, limit: float) -> None:
        """The integer program of all slots."""
        self.progress("proving all slots at once", 0, 1)
        near = np.stack([self.near(slot) for slot in range(self.at.problem.slots)])
        part = self.at.work.part(limit)
        solution = plan_all_slots(self.at.problem, work=part, near=near)
        self.impossible = self.best is None and solution.bound == np.inf
        self.bound = max(self.bound, solution.bound)
        self.take(solution.values)
        if solution.proven and self.best is not None:
            self.bound = self.value

    def search(self) -> None:
        """Slot by slot, then better while the gap is too wide and work is left."""
        at, problem = self.at, self.at.problem
        active = (problem.demand > 0).sum()
        if active <= 60:  # a knapsack each takes a few hundredths of a second
            self.knapsacks()
        few = len(problem.rows) <= _FEW
        # A single slot has no starts, which `plan_slot` leaves out: its program may do
        # alone.
        if few and problem.slots == 1:
            self.slots()
        if self.best is None and not self.impossible:
            self.plan()
        if self.best is None:
            return
        if self.gap > self.max_gap and at.left > 0:
            self.take(between_neighbours(at, self.best, self.progress))
        if self.gap > self.max_gap and at.left > 0 and active > 60:
            self.knapsacks()
        if few and problem.slots > 1:
            self.slots()
        small = problem.slots * len(problem.rows) <= _SMALL
        if self.gap > self.max_gap and at.left > 0:
            # the value at which the gap is met, as the gap is relative to the value
            good = self.bound / (1 - self.max_gap)
            # the rest is for the program
            part = at.work.part(at.left * (0.4 if small else 1.0))
            search = dataclasses.replace(at, work=part)
            self.take(neighbourhoods(search, self.best, good, self.progress))

    def plan(self) -> None:
        """Slot by slot, once."""
        counts = slot_by_slot(self.at, self.progress)
        if isinstance(counts, int):
            self.stuck = counts
        else:
            self.take(counts)

    def knapsacks(self) -> None:
        """Raises the bound of slots, the widest first, while it is of use."""
        at = self.at
        part = at.work.part(at.left / 2)
        order = np.argsort(-self.bounds)
        for place, slot in enumerate(order):
            if not part.left or self.gap <= self.max_gap:
                break
            self.progress("raising the bound of slots", place, len(order))
            bound, self.wasted[slot], at.extra[int(slot)] = bound_by_knapsacks(
                at.problem, int(slot), at.prices[slot], part
            )
            self.bounds[slot] = max(self.bounds[slot], bound)
            self.bound = max(self.bound, float(self.bounds.sum()))

    def slots(self) -> None:
        """A plan and a bound of every slot by itself, the widest first, while it is of
        use."""
        at, problem = self.at, self.at.problem
        enough, order = slot_work(problem), np.argsort(-self.bounds)
        nothing = np.zeros((problem.slots, len(problem.rows)))
        for place, slot in enumerate(order.tolist()):
            seconds = at.left / (len(order) - place)
            if seconds < enough or self.gap <= self.max_gap or self.impossible:
                break
            self.progress("proving slots", place, len(order))
            # starts aside, nothing runs without requests
            runs = problem.demand[slot, problem.rows.model] > 0
            near, part = np.flatnonzero(self.near(slot) & runs), at.work.part(seconds)
            solution = plan_slot(problem.take(near), slot, work=part, gap=self.max_gap)
            if (
                solution.bound == np.inf
            ):  # no better plan than the best, if there is one
                self.impossible, self.bound = self.best is None, self.value
                break
            self.bounds[slot] = max(self.bounds[slot], solution.bound)
            self.bound = max(self.bound, float(self.bounds.sum()))
            best = nothing if problem.slots == 1 and self.best is None else self.best
            if solution.values is not None and best is not None:
                counts = best.copy()
                counts[slot] = 0.0
                counts[slot, near] = solution.values
                self.take(counts)

    def near(self, slot: int) -> Bool[np.ndarray, " row"]:
        """Rows that a better plan than the best can have in a slot."""
        at, distance = self.at, self.value - self.price_bound - float(self.wasted.sum())
        return near_rows(at.problem, slot, at.prices[slot], self.wasted[slot], distance)

    def answer(self) -> Solved | Unsolved:
        """The best plan with its bound, or the slots without a plan."""
        problem = self.at.problem
        if self.best is None:
            slots = range(problem.slots) if self.stuck is None else (self.stuck,)
            return Unsolved(problem, tuple(slots), self.impossible)
        late = self.at.work.late and self.gap > _PROOF
        return Solved(
            problem, self.best, self.value, min(self.bound, self.value),
            self.at.prices, self.price_bound, late, self.interrupted,
        )  # fmt: skip


def _prices(problem: Problem, work: Work, progress: Progress) -> list[Prices | None]:
    """Prices and bound of every slot; None where the linear program has no answer."""
    corners = problem.take(hull_rows(problem))
    cuts = no_cuts(corners)
    large = len(corners.rows) > _LINEAR
    all_prices: list[Prices | None] = []
    for slot in range(problem.slots):
        progress("bounding slots", slot, problem.slots)
        here = None
        if large:
            here, cuts = bound_by_cuts(corners, slot, cuts, work)
        if here is None:
            work.add(program_work(_NONZEROS * len(corners.rows)))
        all_prices.append(here or solve_relaxation(corners, slot))
    return all_prices
