"""Branch and bound over whole numbers of a slot, on a linear program kept in HiGHS.

Few numbers decide a slot: replicas of each (model, pool, n), of each model, GPUs used
of each pool and site, all replicas. With rows mixed in shares within a group, tens to
hundreds of branches leave a few settings of these numbers that may cost less than the
best plan; which rows the replicas of such a setting take is looked for last
(`settled`). Branches are chosen by what those before them cost, tried on both sides
until that is known.
"""

import dataclasses
import heapq
import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, Warm
from .._bound import Prices, charged, slot_limits
from .._problem import Problem, kept, mixed
from .integer import Found
from .settled import Choice, Setting
from .work import Work

_WHOLE = 1e-6
"""Distance from a whole number that counts as none."""
_TRIED = 8
"""Numbers of a node at most that are tried on both sides."""
_SURE = 4
"""Branches after which what a number costs is known."""
_DIVES = 8
"""Of so many nodes one is followed down to a plan; before any plan, each is."""
_SCALE = 1e2
"""Costs are scaled to this: HiGHS's tolerance of reduced costs is 1e-7."""
_LEAST = 1e-9
"""Rise that a branch without any counts as, so that products order the others."""
_FIRST, _LONGER = 0.1, 3.0
"""Work (s) of HiGHS for a setting at first, and how much longer each further time:
plans that it finds leave fewer rows."""
_TRIES = 8
"""Times after which HiGHS is taken to have failed (work of 11 minutes)."""
_PER_LEAST, _PER_ITERATION = 3e-4, 2e-5
"""Work (s) of an answer of the linear program, and of each simplex iteration."""
_MOST = 1e3
"""Rise that a branch without an answer counts as."""


@dataclasses.dataclass(frozen=True)
class _Node:
    """Limits of the numbers, the numbers in the answer within them, and what it costs;
    `more`: what a replica more of each group adds at least; `setting`: numbers that are
    settled, with what whole rows cost at least."""

    bound: float
    low: Float[np.ndarray, " number"]
    high: Float[np.ndarray, " number"]
    numbers: Float[np.ndarray, " number"]
    more: Float[np.ndarray, " group"]
    setting: Setting | None = None


def branched(
    choice: Choice, upper: float, *, work: Work, gap: float, until: float = -np.inf
) -> Found:
    """The least plan that costs less than `upper`, as values of the columns, while
    `work` is left, within the relative `gap`, or the first that costs less than
    `until`; no such plan costs less than the bound."""
    unit = float(np.abs(choice.model.cost).max(initial=0.0)) / _SCALE or 1.0
    scaled = dataclasses.replace(choice.model, cost=choice.model.cost / unit)
    choice = dataclasses.replace(choice, model=scaled)
    tree = _Tree(choice, upper / unit, gap, work)
    ended = tree.grow(until / unit)
    # nodes without an answer may hold a plan, though none is left
    proven = ended and tree.unsolved >= tree.enough
    return Found(tree.best, tree.bound * unit, proven)


class _Tree:
    """Nodes that may hold a better plan than the best, and what branches cost."""

    def __init__(self, choice: Choice, upper: float, gap: float, work: Work) -> None:
        self.choice, self.gap, self.work = choice, gap, work
        self.upper = upper
        self.best: np.ndarray | None = None
        self.group = choice.group[choice.corner]
        low = np.zeros(len(choice.sums.indptr) - 1)
        high = low + np.inf
        self.program = Warm(choice.mixed_rows(low, high))
        self.rise, self.seen = np.zeros((2, len(low))), np.zeros((2, len(low)))
        self.open: list[tuple[float, int, _Node]] = []
        self.order = itertools.count()
        self.unsolved = np.inf  # the least bound of nodes that ended without an answer
        self.push(self.node(low, high, -np.inf))

    @property
    def enough(self) -> float:
        """What nothing is looked for beyond."""
        more = self.gap * abs(self.upper) if np.isfinite(self.upper) else 0.0
        return self.upper - more

    @property
    def bound(self) -> float:
        """No plan that costs less than the first `upper` costs less than this."""
        left = min((bound for bound, _, _ in self.open), default=np.inf)
        return min(left, self.unsolved, self.enough)

    def push(self, node: _Node) -> None:
        """Keeps a node that may hold a better plan."""
        if node.bound < self.enough:
            heapq.heappush(self.open, (node.bound, next(self.order), node))

    def grow(self, until: float) -> bool:
        """Branches until nothing is open, True, or no work is left, or a plan costs
        less than `until`."""
        popped = 0
        while self.open:
            here: _Node | None = heapq.heappop(self.open)[-1]
            popped += 1
            dive = self.best is None or popped % _DIVES == 0
            while here is not None and here.bound < self.enough:
                if not self.work.left or self.upper < until:
                    self.push(here)
                    return False
                parts = sorted(self.parts(here), key=lambda x: x.bound)
                here = parts.pop(0) if dive and parts else None
                for other in parts:
                    self.push(other)
        return True

    def parts(self, node: _Node) -> list[_Node]:
        """What a node is the union of, without what holds no better plan."""
        if node.setting is not None:
            self.settle(node, node.setting)
            return []
        loose = np.flatnonzero(_apart(node.numbers) > _WHOLE)
        if len(loose):
            return self.split(node, loose)
        groups = slice(0, self.choice.groups)
        numbers, high = np.round(node.numbers[groups]), node.high.copy()
        dear = (numbers < 1) & (node.bound + node.more >= self.enough)
        high[groups][dear] = 0.0
        node = dataclasses.replace(node, high=high)
        above = np.flatnonzero(node.low[groups] < numbers)
        if len(above):
            return self.around(node, int(above[np.argmax(numbers[above])]), -1)
        if node.high[-1] > node.numbers[-1] + _WHOLE and (high[groups] > numbers).any():
            return self.around(node, len(high) - 1, 1)
        return self.price(node)

    def split(self, node: _Node, loose: Int[np.ndarray, " loose"]) -> list[_Node]:
        """The two sides of a number that is not whole."""
        value = node.numbers[loose]
        below = value - np.floor(value)
        share = np.stack([below, 1 - below])
        rise, seen = self.rise[:, loose], self.seen[:, loose]
        usual = self.rise.sum(axis=1) / np.maximum(self.seen.sum(axis=1), 1)
        costs = np.where(seen > 0, rise / np.maximum(seen, 1), usual[:, None]) * share
        score = np.maximum(costs, _LEAST).prod(axis=0)
        best, most = [], -1.0
        for place in np.argsort(-score, kind="stable")[:_TRIED].tolist():
            sure = seen[:, place].min() >= _SURE
            if best and sure and score[place] <= most:
                continue
            sides = list(self.sides(node, int(loose[place])))
            rises = [min(max(_LEAST, x.bound - node.bound), _MOST) for x in sides]
            if np.prod(rises) > most:
                best, most = sides, float(np.prod(rises))
            if sure or not all(np.isfinite(x.bound) for x in sides):
                break
        return [x for x in best if x.bound < self.enough]

    def sides(self, node: _Node, number: int) -> Iterator[_Node]:
        """The node with a number at most what is below its value, and at least what is
        above; what that cost is kept."""
        value = float(node.numbers[number])
        for side, end in enumerate((np.floor(value), np.ceil(value))):
            here = self.limited(node, number, *((0.0, end), (end, np.inf))[side])
            if np.isfinite(here.bound):
                rise = (here.bound - node.bound) / abs(value - end)
                self.rise[side, number] += rise
                self.seen[side, number] += 1
            yield here

    def around(self, node: _Node, number: int, side: int) -> list[_Node]:
        """The node with a number that is less (-1) or more (1) than it is in the
        answer, and the others, which cost the same."""
        value = float(np.round(node.numbers[number]))
        low, high = node.low.copy(), node.high.copy()
        (low if side < 0 else high)[number] = value
        rest = dataclasses.replace(node, low=low, high=high)
        ends = (0.0, value - 1) if side < 0 else (value + 1, np.inf)
        other = self.limited(node, number, *ends)
        return [x for x in (rest, other) if x.bound < self.enough]

    def limited(self, node: _Node, number: int, least: float, most: float) -> _Node:
        """The node with narrower limits of a number."""
        low, high = node.low.copy(), node.high.copy()
        low[number] = max(low[number], least)
        high[number] = min(high[number], most)
        return self.node(low, high, node.bound)

    def node(self, low: np.ndarray, high: np.ndarray, parent: float) -> _Node:
        """The answer within limits of the numbers; infinite: none is good enough."""
        nothing = _Node(np.inf, low, high, low, low[: self.choice.groups])
        if (low > high).any():
            return nothing
        value = self.least(low, high, self.enough)
        if np.isnan(value):
            self.unsolved = min(self.unsolved, parent)
        if not value < self.enough:
            return nothing
        found = self.program.solution
        numbers = found.activity[len(self.choice.model.row_low) :]
        more = np.full(self.choice.groups, np.inf)
        np.minimum.at(more, self.group, found.reduced)
        return _Node(max(value, parent), low, high, numbers, more)

    def least(self, low: np.ndarray, high: np.ndarray, below: float = np.inf) -> float:
        """The program within limits of the numbers (`Warm.least`)."""
        before = self.program.iterations
        value = self.program.least(*self.choice.ends(low, high), below)
        self.work.add(_PER_LEAST + _PER_ITERATION * (self.program.iterations - before))
        return value

    def price(self, node: _Node) -> list[_Node]:
        """The node with what whole rows cost at the prices of its answer, at least."""
        choice = self.choice
        value = self.least(node.low, node.high)
        if not np.isfinite(value):
            self.unsolved = min(self.unsolved, node.bound)
            return []
        found = self.program.solution
        limits = len(choice.model.row_low)
        paid = choice.model.matrix.T @ found.duals[:limits]
        paid += choice.sums.T @ found.duals[limits:]
        each = value + choice.model.cost - paid
        price = np.maximum(-found.duals[int(choice.cover.max()) + 1 : limits], 0.0)
        numbers = np.round(node.numbers[: choice.groups])
        setting = Setting(choice, numbers, each, price)
        self.work.add(setting.work)
        least, _ = setting.alone(price, each <= self.enough)
        bound = max(node.bound, least)
        node = dataclasses.replace(node, bound=bound, setting=setting)
        return [node] if bound < self.enough else []

    def settle(self, node: _Node, setting: Setting) -> None:
        """The best rows for the numbers of a node: at other prices first; by HiGHS when
        it comes up again, or at once before there is any plan, for ever longer."""
        bound, tried, ended = node.bound, setting.tried, False
        if not tried:
            setting, found, values = setting.at_other_prices(self.enough, self.work)
            self.take(values)
            bound = max(bound, found)
        if tried or self.best is None:
            part = self.work.part(min(self.work.left, _FIRST * _LONGER**tried))
            setting, answer = setting.solved(self.enough, part)
            self.take(answer.values)
            bound, ended = max(bound, answer.bound), answer.proven
        if ended or tried == _TRIES:
            self.unsolved = min(self.unsolved, bound)
        else:
            setting = dataclasses.replace(setting, tried=tried + 1)
            self.push(dataclasses.replace(node, bound=bound, setting=setting))

    def take(self, values: Float[np.ndarray, " column"] | None) -> None:
        """Keeps a plan that is better than the best and keeps every limit."""
        if values is None:
            return
        cost = float(self.choice.model.cost @ values)
        if cost < self.upper and self.choice.fits(values):
            self.best, self.upper = values, cost


def _apart(x: np.ndarray) -> np.ndarray:
    """Distance from the nearest whole number."""
    return np.abs(x - np.round(x))


# --- One slot to its proof, where it has few rows.
#
# Every plan that costs less than a known one is made of rows that waste less at given
# prices than the distance between the known plan and the bound (reduced costs). Among
# these, branches are on what stands on a pool, serves a model, and runs at a site: done
# in seconds where branches on rows take hours.

_TINY = 1e-12
_WITHIN = 1 - 1e-6
"""Of a relative gap, what is aimed at: what is rounded must be within it, too."""
_NEARER = 0.6
"""Part of the distance between plan and bound: a plan as near leaves so few rows that
it is quicker to begin anew with these."""


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
        rows, prices = self.problem.rows, self.prices
        paid = prices.request[rows.model] * rows.rate
        return np.maximum(charged(self.problem, self.number, prices.limits) - paid, 0.0)


def best_below(slot: Slot, upper: float, *, work: Work, gap: float) -> Found:
    """The least plan of the slot, starts aside, among those below `upper`; no plan is
    below its `bound`. It ends where these are within the relative `gap`."""
    problem, idle = slot.problem, slot.problem.idle_cost(slot.number)
    counts, bound = None, slot.bound
    if upper <= bound:
        return Found(None, bound, True)
    while True:
        part = _WITHIN * gap
        if np.isfinite(upper):  # branches are without `idle`
            part *= upper / max(upper - idle, _TINY * abs(upper))
        choice, rows = _within(slot, upper - slot.bound)
        near = slot.bound + _NEARER * (upper - slot.bound)
        found = branched(choice, upper - idle, work=work, gap=part, until=near - idle)
        bound = max(bound, found.bound + idle)
        if found.values is not None:
            counts = np.zeros((1, len(problem.rows)))
            counts[0, rows] = found.values
            upper = float(choice.model.cost @ found.values) + idle
        if found.proven or upper >= near or not work.left:
            return Found(counts, bound, found.proven)


def _within(slot: Slot, distance: float) -> tuple[Choice, Int[np.ndarray, " column"]]:
    """All that a plan may be made of that lies up to `distance` above the bound, and
    which rows that is."""
    problem = slot.problem
    most = distance + slot.wasted
    asked = problem.demand[slot.number] > 0
    of = problem.rows.model
    near = np.flatnonzero(asked[of] & (slot.reduced <= most[of]))
    part = problem.take(near)
    matrix, low, high, _ = slot_limits(part, slot.number)
    columns = np.zeros(len(near))
    model = LinearModel(
        matrix, low, high, columns, columns + np.inf, part.cost(slot.number)
    )
    alone = part.at(slice(slot.number, slot.number + 1))
    return Choice(
        model, _numbers(part), int(part.group.max(initial=-1)) + 1, mixed(part),
        lambda counts: bool(kept(alone, counts[None]).all()),
    ), near  # fmt: skip


def _numbers(problem: Problem) -> sparse.csr_array:
    """What is a whole number of any plan [number, row]: replicas of each (model, pool,
    n), of each model, GPUs used of each pool, and of each site; all replicas."""
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
                ones[None],
            ]
        )
    )  # fmt: skip
