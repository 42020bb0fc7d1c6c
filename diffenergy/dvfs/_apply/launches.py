"""`launches`: a schedule unrolled, which kernel runs when and at which clocks."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._problem.plan import Plan
from .._problem.problem import Problem
from .._problem.totals import Spent, stage_time


class Launches(NamedTuple):
    """The launches of one iteration in order.

    A kernel that the launch order names less often than it is launched repeats itself.
    """

    kernel: Int[np.ndarray, " launch"]
    setting: Int[np.ndarray, " launch"]
    start: Float[np.ndarray, " launch"]  # s after the iteration begins
    time: Float[np.ndarray, " launch"]  # s until the next one

    def changes(self) -> Int[np.ndarray, " change"]:
        """The first launch, and those at another setting than the one before."""
        return np.flatnonzero(np.diff(self.setting, prepend=-1))


def launch_costs(problem: Problem, plan: Plan) -> Spent:
    """Time (s) and energy (J) of one launch of every row of `plan`."""
    if plan.solver == "default":
        return Spent(
            problem.default_time[plan.kernel], problem.default_energy[plan.kernel]
        )
    return Spent(
        problem.time[plan.kernel, plan.setting],
        problem.energy[plan.kernel, plan.setting],
    )


def launches(problem: Problem, plan: Plan) -> Launches:
    """Every launch of one iteration of `plan`.

    Time in which a stage waits for its host lies evenly over the stage, time in which
    clocks change evenly over the iteration: `plan.time` is the end of the last launch.
    """
    kernel = problem.sequence()
    row = _row_of_launch(problem, plan, kernel)
    repeats = problem.count / np.bincount(kernel, minlength=len(problem.kernels))
    busy = launch_costs(problem, plan).time[row] * repeats[kernel]
    stage = problem.stage[kernel]
    gpu = np.bincount(stage, busy, len(problem.stages))
    time = busy * (stage_time(gpu, problem.host_time) / gpu)[stage]
    time = time * (plan.time / time.sum())
    return Launches(kernel, plan.setting[row], np.cumsum(time) - time, time)


def _row_of_launch(
    problem: Problem, plan: Plan, kernel: Int[np.ndarray, " launch"]
) -> Int[np.ndarray, " launch"]:
    """Row of `plan` that every launch belongs to.

    If the rows are the kernels of all loop bodies in order, each turn repeats them;
    else the launches of a kernel take its rows one after the other.
    """
    bodies = np.concatenate([loop.kernels for loop in problem.loops])
    widths = [len(loop.kernels) for loop in problem.loops]
    turns = np.repeat([float(loop.turns) for loop in problem.loops], widths)
    if np.array_equal(bodies, plan.kernel):
        repeats = problem.count / np.bincount(kernel, minlength=len(problem.count))
        if np.allclose(turns * repeats[bodies], plan.count):
            parts = np.split(np.arange(len(bodies)), np.cumsum(widths)[:-1])
            return np.concatenate(
                [
                    np.tile(part, loop.turns)
                    for part, loop in zip(parts, problem.loops, strict=True)
                ]
            )
    row = np.empty(len(kernel), dtype=np.int64)
    both = (_by_kernel(problem, x) for x in (kernel, plan.kernel))
    for mine, rows in zip(*both, strict=True):
        ends = np.cumsum(plan.count[rows]) / plan.count[rows].sum()
        middles = (np.arange(len(mine)) + 0.5) / len(mine)
        row[mine] = rows[np.searchsorted(ends, middles)]
    return row


def _by_kernel(
    problem: Problem, kernel: Int[np.ndarray, " row"]
) -> list[Int[np.ndarray, " mine"]]:
    """Rows of every kernel, in order."""
    ends = np.cumsum(np.bincount(kernel, minlength=len(problem.kernels)))
    return np.split(np.argsort(kernel, kind="stable"), ends[:-1])
