"""The linear program of clocks that need not be among those offered.

Variables are the end of every instruction, the end D of all, and how far each goes
along the lower convex hull of (time, cost) over the offered clocks:

    end_j >= end_i + t_j  for all i that j waits for,  end_j <= D
    t_j = t_fastest + sum of its segments,  cost_j = cost_fastest + sum slope segment

(arXiv 2312.06902; slopes rise along a hull, so that segments are taken in order). With
D the deadline and least cost as goal no choice of offered clocks costs less.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...plans._pipeline import Instructions
from .hulls import hull
from .problem import ROUNDING, Problem, finishes

_SCALE = 1e3
"""The deadline is scaled to this: HiGHS lets a limit be missed by 1e-7, absolute."""


@dataclasses.dataclass(frozen=True)
class Caps:
    """Mean power of hosts, each at most `limit` W in a step; `members`: GPUs of each
    stage of the replicas in it."""

    members: Float[np.ndarray, "h s"]
    limit: float

    def power(
        self, problem: Problem, choice: Int[np.ndarray, " i"], step_time: float
    ) -> Float[np.ndarray, " h"]:
        """W of every host."""
        return self.members @ problem.stage_energy(choice, step_time) / step_time


@dataclasses.dataclass(frozen=True)
class Relaxed:
    """`cost`: which no choice of offered clocks goes below (proven by the duals), J of
    a GPU of each stage beyond waiting; `durations`: s of every instruction;
    `deadline`: s of the pipeline."""

    cost: float
    durations: Float[np.ndarray, " i"]
    deadline: float


def relaxed(
    problem: Problem,
    deadline: float | None,
    *,
    tied: bool = False,
    caps: Caps | None = None,
) -> Relaxed | None:
    """The least cost by a `deadline` (s of the pipeline), or, without one, the soonest
    that `caps` allow; None if they cannot be kept.

    `tied`: instructions of one type take equally long.
    """
    from scipy.optimize import linprog

    program, number = problem.program, len(problem.type)
    owner = problem.type if tied else np.arange(number)
    types = np.arange(len(problem.stage)) if tied else problem.type
    cost = problem.cost
    hulls = [hull(problem.time[:, t], cost[:, t]) for t in range(len(problem.stage))]
    times = [problem.time[h, t] for t, h in enumerate(hulls)]
    costs = [cost[h, t] for t, h in enumerate(hulls)]
    fastest = np.array([x[0] for x in times])[problem.type]
    dearest = np.array([x[0] for x in costs])[problem.type]
    lengths = [np.diff(x) for x in times]
    slopes = [np.diff(y) / np.diff(x) for x, y in zip(times, costs, strict=True)]
    segments = np.array([len(lengths[t]) for t in types])
    where = np.repeat(np.arange(len(types)), segments)
    number_of = np.bincount(owner, minlength=len(types))[where]
    slowest = np.array([x[-1] for x in times])[problem.type]
    longest = float(finishes(program, slowest).max()) if deadline is None else deadline
    unit = longest / _SCALE
    length = np.concatenate([lengths[t] for t in types]) / unit
    slope = np.concatenate([slopes[t] for t in types]) * unit

    use = _uses(owner, where, number)
    matrix, level = _order(program, use, fastest / unit)
    one = float(np.abs(dearest).sum()) or 1.0
    goal = np.concatenate([np.zeros(number + 1), slope * number_of / one])
    rows, limits = [matrix], [level]
    if caps is not None:
        held, most = _held(problem, caps, use, slope, dearest, unit)
        scale = np.abs(most) + 1.0
        rows.append(sparse.csr_array(sparse.diags_array(1 / scale) @ held))
        limits.append(most / scale)
    top = longest * (1 + ROUNDING) / unit
    low = np.zeros(len(goal))
    high = np.concatenate([np.full(number + 1, top), length])
    if deadline is None:
        goal = np.zeros(len(goal))
        goal[number] = 1 / _SCALE
    else:
        low[number] = top
    a, b = sparse.csr_array(sparse.vstack(rows)), np.concatenate(limits)
    found: Any = linprog(
        goal, a, b, bounds=np.stack([low, high], 1), method="highs-ds"
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise RuntimeError(f"the linear program of the clocks: {found.message}")
    price = np.maximum(0.0, -found.ineqlin.marginals)
    reduced = goal + a.T @ price
    proven = float(np.minimum(reduced * low, reduced * high).sum() - price @ b)
    steps = np.bincount(where, found.x[number + 1 :], len(types))
    return Relaxed(
        float(dearest.sum()) + one * proven,
        fastest + unit * steps[owner],
        unit * float(found.x[number]),
    )


def _uses(
    owner: Int[np.ndarray, " i"], where: Int[np.ndarray, " segment"], number: int
) -> sparse.csr_array:
    """Which segments lengthen an instruction [instruction, segment]."""
    owners = int(owner.max()) + 1
    own = (np.ones(number), (np.arange(number), owner))
    has = (np.ones(len(where)), (where, np.arange(len(where))))
    shape = (number, owners), (owners, len(where))
    return sparse.csr_array(
        sparse.csr_array(own, shape=shape[0]) @ sparse.csr_array(has, shape=shape[1])
    )


def _order(
    program: Instructions, use: sparse.csr_array, fastest: Float[np.ndarray, " i"]
) -> tuple[sparse.csr_array, Float[np.ndarray, " row"]]:
    """end_i - end_j + t_j <= 0 for what each j waits for, and end_j <= D of the last of
    every stage: a matrix over (ends, D, segments), and its right side."""
    number = len(fastest)
    every = np.arange(number)
    alone = (program.before < 0) & (program.needs < 0)
    pairs = [
        (program.before[x], every[x]) for x in (program.before >= 0, alone)
    ] + [(program.needs[program.needs >= 0], every[program.needs >= 0])]
    first = np.concatenate([x for x, _ in pairs])
    then = np.concatenate([x for _, x in pairs])
    row = np.arange(len(then))
    ahead = first >= 0
    values = np.r_[-np.ones(len(then)), np.ones(ahead.sum())]
    at = np.r_[row, row[ahead]], np.r_[then, first[ahead]]
    left = sparse.csr_array((values, at), shape=(len(then), number + 1))
    waits = sparse.hstack([left, use[then]])
    last = np.setdiff1d(every, program.before)
    entries = (
        np.r_[np.ones(len(last)), -np.ones(len(last))],
        (np.tile(np.arange(len(last)), 2), np.r_[last, np.full(len(last), number)]),
    )
    done = sparse.csr_array(entries, shape=(len(last), waits.shape[1]))
    level = np.r_[-fastest[then], np.zeros(len(last))]
    return sparse.csr_array(sparse.vstack([waits, done])), level


def _held(
    problem: Problem,
    caps: Caps,
    use: sparse.csr_array,
    slope: Float[np.ndarray, " segment"],
    dearest: Float[np.ndarray, " i"],
    unit: float,
) -> tuple[sparse.csr_array, Float[np.ndarray, " h"]]:
    """Energy of every host <= limit x step, over the same variables:

        members (cost + fixed + wait T) <= limit T,  T = (D + after) stretch
    """
    number = len(dearest)
    of_host = caps.members[:, problem.stage_of]
    segments = sparse.csr_array(sparse.csr_array(of_host) @ use) * slope[None, :]
    room = (caps.limit - caps.members @ problem.wait) * problem.stretch
    until = -(room * unit)[:, None]
    blank = sparse.csr_array((len(room), number))
    matrix = sparse.hstack([blank, sparse.csr_array(until), segments])
    level = room * problem.after - of_host @ dearest - caps.members @ problem.fixed
    return sparse.csr_array(matrix), level
