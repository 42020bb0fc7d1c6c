"""The integer program itself: whole replicas of every row in every slot, with starts.

Small fleets are solved by it to proof; of large ones it plans a few models anew with
what the others leave.
"""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy import sparse

from .._bound.linear import cover, limits, room
from .._problem.problem import Problem
from .integer import Found, least

_SCALE = 1e3
"""Limits are scaled to this: HiGHS lets each be missed by 1e-6, absolute."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """Replicas [slot, row], None where none were found; what no plan costs less than
    (infinite: there is none); whether the search ended by itself."""

    counts: Float[np.ndarray, "slot row"] | None
    bound: float
    proven: bool


def whole(problem: Problem, *, seconds: float, gap: float = 0.0) -> Whole:
    """The least plan of all slots with their starts."""
    slots = problem.slots
    blocks, low, high = [], [], []
    for slot in range(slots):
        matrix, least_, most = slot_limits(problem, slot)
        blocks.append(matrix)
        low.append(least_)
        high.append(most)
    cost = [problem.cost(slot) for slot in range(slots)]
    matrix = sparse.csr_array(sparse.block_diag(blocks))
    loads, start = _loads(problem)
    more = (slots - 1) * len(start)
    if more:
        matrix = _with_starts(matrix, loads, slots, more)
        low.append(np.full(more, -np.inf))
        high.append(np.zeros(more))
        dear = np.zeros(len(start))
        for slot in range(1, slots):
            np.maximum.at(dear, *_of_group(problem, slot, start))
            cost.append(dear.copy())
            dear[:] = 0.0
    most = np.floor(problem.count[problem.rows.pool] / problem.rows.gpus + 1e-9)
    upper = np.r_[np.tile(most, slots), np.full(more, most.max(initial=0.0))]
    found = least(
        np.concatenate(cost), matrix, np.concatenate(low), np.concatenate(high), upper,
        seconds=seconds, gap=gap,
    )  # fmt: skip
    return _answer(problem, found)


def slot_limits(
    problem: Problem, slot: int
) -> tuple[sparse.csr_array, Float[np.ndarray, " limit"], Float[np.ndarray, " limit"]]:
    """Cover, GPUs and watts of a slot: matrix [limit, row], least and most."""
    wanted, free = problem.demand[slot], room(problem, slot)
    asked, held = wanted > 0, np.isfinite(free)
    per = np.r_[wanted[asked], np.maximum(np.abs(free[held]), 1e-9)] / _SCALE
    stacked = sparse.vstack([cover(problem)[asked], limits(problem)[held]])
    matrix = sparse.csr_array(sparse.diags_array(1 / per) @ stacked)
    none = np.full(int(held.sum()), -np.inf)
    low = np.r_[np.full(int(asked.sum()), _SCALE), none]
    high = np.r_[np.full(int(asked.sum()), np.inf), free[held] / per[asked.sum() :]]
    return matrix, low, high


def _loads(problem: Problem) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows by (model, pool, n) [group, row], of those whose start costs something, and
    the numbers of these groups."""
    group, index = problem.group, np.arange(len(problem.rows))
    costs = np.unique(group[problem.start > 0])
    ones = sparse.coo_array(
        (np.ones(len(index)), (group, index)), (group.max(initial=-1) + 1, len(index))
    )
    return sparse.csr_array(ones)[costs], costs


def _with_starts(
    matrix: sparse.csr_array, loads: sparse.csr_array, slots: int, more: int
) -> sparse.csr_array:
    """The same with `more` lines below: X - X of the slot before - u <= 0."""
    here, before = (sparse.eye_array(slots - 1, slots, k=k) for k in (1, 0))
    rise = sparse.kron(here - before, loads)
    both = sparse.block_array([[matrix, None], [rise, -sparse.eye_array(more)]])
    return sparse.csr_array(both)


def _of_group(
    problem: Problem, slot: int, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Place of every row's group among `groups`, and the objective of its start."""
    place = np.searchsorted(groups, problem.group)
    known = problem.start > 0
    return place[known], problem.start_cost(slot)[known]


def _answer(problem: Problem, found: Found) -> Whole:
    idle = sum(problem.idle_cost(slot) for slot in range(problem.slots))
    counts = None
    if found.values is not None:
        flat = found.values[: problem.slots * len(problem.rows)]
        counts = flat.reshape(problem.slots, len(problem.rows))
    return Whole(counts, found.bound + idle, found.proven)
