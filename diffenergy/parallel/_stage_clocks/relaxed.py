"""The linear program of clocks that need not be among those offered.

Variables are the end of every instruction, the end D of all, and how far each goes
along the lower convex hull of (time, cost) over the offered clocks:

    end_j >= end_i + t_j  for all i that j waits for,  end_j <= D
    t_j = t_fastest + sum of its segments,  cost_j = cost_fastest + sum slope segment

(arXiv 2312.06902; slopes rise along a hull, so that segments are taken in order). The
goal, all costs and what waiting takes in a step, sum of W (D + after) stretch, is the
energy of a step but for a constant: no choice of offered clocks goes below.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...plans import Instructions
from ...search import LinearModel, highs
from .hulls import ROUNDING, hull
from .problem import Problem

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
    """`energy`: which no choice of offered clocks goes below (proven by the duals), J
    of all GPUs; `durations`: s of every instruction; `deadline`: s of the pipeline."""

    energy: float
    durations: Float[np.ndarray, " i"]
    deadline: float


def relaxed(
    problem: Problem,
    deadline: float,
    soonest: float = 0.0,
    *,
    tied: bool = False,
    caps: Caps | None = None,
) -> Relaxed | None:
    """The least energy by a `deadline` (s of the pipeline); None if that, or `caps`,
    cannot be kept.

    `soonest`: s before which the pipeline is never done; `tied`: instructions of one
    type take equally long.
    """
    program = _program(problem, deadline, tied, caps)
    goal, low = program.energy, program.low.copy()
    low[program.end] = min(soonest / program.unit, program.high[program.end])
    solution = _solve(program, goal, low)
    if solution is None:
        return None
    x, duals = solution
    # Any prices from 0 on prove a bound (weak duality), whatever the solver's
    # tolerances.
    price = np.maximum(0.0, -duals)
    reduced = goal + program.matrix.T @ price
    # each variable at the end of its range that costs least
    proven = np.minimum(reduced * low, reduced * program.high).sum()
    proven = float(proven - price @ program.level) * program.joule
    return Relaxed(
        problem.abreast * (program.rest + proven),
        program.durations(x),
        program.unit * float(x[program.end]),
    )


def earliest(problem: Problem, caps: Caps) -> float | None:
    """s of the fastest pipeline that keeps `caps`; None if none does."""
    longest = float(problem.pipeline(problem.cheapest))
    program = _program(problem, longest, False, caps)
    goal = np.zeros(len(program.low))
    goal[program.end] = 1 / _SCALE
    solution = _solve(program, goal, program.low)
    return None if solution is None else program.unit * float(solution[0][program.end])


@dataclasses.dataclass(frozen=True)
class _Program:
    """matrix x <= level, low <= x <= high, x: the end of every instruction, the `end`
    of all, segments; times in `unit` s.

    `energy`: J of a GPU of every stage, in units of `joule`, beyond `rest`.
    """

    matrix: sparse.csr_array
    level: Float[np.ndarray, " row"]
    low: Float[np.ndarray, " x"]
    high: Float[np.ndarray, " x"]
    energy: Float[np.ndarray, " x"]
    end: int
    unit: float
    joule: float
    rest: float
    fastest: Float[np.ndarray, " i"]
    use: sparse.csr_array
    """Which segments lengthen an instruction."""

    def durations(self, x: Float[np.ndarray, " x"]) -> Float[np.ndarray, " i"]:
        """s of every instruction."""
        return self.fastest + self.unit * (self.use @ x[self.end + 1 :])


def _program(
    problem: Problem, deadline: float, tied: bool, caps: Caps | None
) -> _Program:
    number = len(problem.type)
    owner = problem.type if tied else np.arange(number)
    types = np.arange(len(problem.stage)) if tied else problem.type
    unit = deadline / _SCALE
    time, cost = problem.time, problem.cost
    corners = [hull(time[:, t], cost[:, t]) for t in range(len(problem.stage))]
    times = [time[rows, t] for t, rows in enumerate(corners)]
    costs = [cost[rows, t] for t, rows in enumerate(corners)]
    fastest = np.array([x[0] for x in times])[problem.type]
    dearest = np.array([x[0] for x in costs])[problem.type]
    lengths = [np.diff(x) for x in times]
    slopes = [np.diff(y) / np.diff(x) for x, y in zip(times, costs, strict=True)]
    where = np.repeat(np.arange(len(types)), [len(lengths[t]) for t in types])
    length = np.concatenate([lengths[t] for t in types]) / unit
    slope = np.concatenate([slopes[t] for t in types]) * unit
    segments = np.arange(len(where))
    shape = (len(types), len(where))
    has = sparse.csr_array((np.ones(len(where)), (where, segments)), shape=shape)
    use = has[owner]
    matrix, level = _order(problem.program, use, fastest / unit)

    waiting = float(problem.wait.sum()) * problem.stretch
    joule = float(np.abs(dearest).sum() + waiting * deadline)
    of_segments = slope * np.bincount(owner, minlength=len(types))[where]
    energy = np.r_[np.zeros(number), waiting * unit, of_segments] / joule
    if caps is not None:
        capped, most = _host_limits(problem, caps, use, slope, dearest, unit)
        scale = 1 / (np.abs(most) + 1.0)
        matrix = sparse.vstack([matrix, sparse.diags_array(scale) @ capped])
        level = np.r_[level, most * scale]
    top = deadline * (1 + ROUNDING) / unit
    return _Program(
        matrix=sparse.csr_array(matrix),
        level=level,
        low=np.zeros(len(energy)),
        high=np.r_[np.full(number + 1, top), length],
        energy=energy,
        end=number,
        unit=unit,
        joule=joule,
        rest=float(dearest.sum() + problem.fixed.sum()) + waiting * problem.after,
        fastest=fastest,
        use=use,
    )


def _solve(
    program: _Program, goal: Float[np.ndarray, " x"], low: Float[np.ndarray, " x"]
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " row"]] | None:
    """x of the least goal, and the duals of rows; None if nothing keeps all."""
    model = LinearModel.at_most(goal, program.matrix, program.level, low, program.high)
    solution = highs(model, method="highs-ds")
    if solution.status == "infeasible":
        return None
    if solution.values is None or solution.duals is None:
        raise RuntimeError(f"the linear program of the clocks: {solution.message}")
    return solution.values, solution.duals


def _order(
    program: Instructions, use: sparse.csr_array, fastest: Float[np.ndarray, " i"]
) -> tuple[sparse.csr_array, Float[np.ndarray, " row"]]:
    """end_i - end_j + t_j <= 0 for what each j waits for, and end_j <= D of the last of
    every stage: a matrix over (ends, D, segments), and its right side."""
    number, before, needs = len(fastest), program.before, program.needs
    every = np.arange(number)
    ahead, alone, needing = before >= 0, (before < 0) & (needs < 0), needs >= 0
    first = np.r_[before[ahead], before[alone], needs[needing]]  # -1: waits for none
    then = np.r_[every[ahead], every[alone], every[needing]]
    end = sparse.csr_array(sparse.eye_array(number + 1))
    left = sparse.diags_array((first >= 0).astype(float)) @ end[first] - end[then]
    last = np.setdiff1d(every, before)
    done = end[last] - end[np.full(len(last), number)]
    both = sparse.block_array([[left, use[then]], [done, None]])
    level = np.r_[-fastest[then], np.zeros(len(last))]
    return sparse.csr_array(both), level


def _host_limits(
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
    segments = sparse.csr_array(of_host @ use * slope)
    room = (caps.limit - caps.members @ problem.wait) * problem.stretch
    until = -(room * unit)[:, None]
    blank = sparse.csr_array(np.zeros((len(room), number)))
    matrix = sparse.hstack([blank, sparse.csr_array(until), segments])
    level = room * problem.after - of_host @ dearest - caps.members @ problem.fixed
    return sparse.csr_array(matrix), level
