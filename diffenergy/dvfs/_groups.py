"""Kernels of a stage as one, and the launches of a kernel as several."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..workload import Loop
from ._problem import Problem

_MOST_APART: Final = 200
"""Launches that are parts of their own."""


class Grouped(NamedTuple):
    """A problem whose kernels are groups, or parts, of those of another one."""

    problem: Problem
    origin: Int[np.ndarray, " kernel"]
    """By stage: group of every kernel of the other problem. Split: the kernel that
    every part comes from."""
    complete: bool = True
    """Split: whether the parts can take whatever the launches can."""


def by_stage(problem: Problem) -> Grouped:
    """Stages as kernels: they can run where all their kernels can.

    A stage is launched as often as its turn comes in the launch order.
    """
    member = np.equal.outer(np.arange(len(problem.stages)), problem.stage)
    loops = tuple(collapsed(loop, problem.stage) for loop in problem.loops)
    turns = np.zeros(len(problem.stages))
    passes = dataclasses.replace(problem, loops=loops).turns
    for loop, times in zip(loops, passes, strict=True):
        np.add.at(turns, list(loop.kernels), float(times))
    # a problem without a launch order has each stage once
    turns = np.maximum(turns, 1.0)
    weight = member * problem.count / turns[:, None]
    usable = member.astype(int) @ (~problem.usable).astype(int) == 0

    def summed(values: np.ndarray) -> np.ndarray:
        return np.where(usable, weight @ np.where(problem.usable, values, 0), np.inf)

    stages = dataclasses.replace(
        problem,
        kernels=problem.stages,
        stage=np.arange(len(problem.stages)),
        count=turns,
        time=summed(problem.time),
        energy=summed(problem.energy),
        default_time=weight @ problem.default_time,
        default_energy=weight @ problem.default_energy,
        loops=loops,
    )
    return Grouped(stages, problem.stage)


def collapsed(loop: Loop, stage: Int[np.ndarray, " kernel"]) -> Loop:
    """Stages of one turn in order; neighbours in one stage are one launch."""
    body = stage[list(loop.kernels)]
    starts = np.flatnonzero(np.diff(body, prepend=-1))
    # neighbours in one stage are one launch of it, over all turns
    turns = 1 if len(starts) == 1 else loop.turns
    return Loop(tuple(int(i) for i in body[starts]), turns)


def split(problem: Problem, apart: bool = False) -> Grouped:
    """Launches of a kernel in parts of 1, 2, 4, ... that choose for themselves.

    Two settings can share the launches in any ratio; three in most. `apart`: launches
    of kernels with three settings or more one by one, unless these are many.
    """
    parts = [_parts(float(count)) for count in problem.count]
    several = problem.usable.sum(1) > 2
    single = several & (problem.count % 1 == 0)
    if apart and problem.count[single].sum() <= _MOST_APART:
        for kernel in np.flatnonzero(single):
            parts[kernel] = np.ones(int(problem.count[kernel]))
    complete = all(len(parts[k]) == problem.count[k] for k in np.flatnonzero(several))
    origin = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    parted = problem.take(origin, count=np.concatenate(parts))
    return Grouped(parted, origin, complete)


def _parts(count: float) -> Float[np.ndarray, " part"]:
    """1, 2, 4, ... and a rest, which sum to `count`."""
    powers = 2.0 ** np.arange(max(int(np.log2(count + 1)), 1))
    rest = count - powers.sum()
    if rest > 0:
        return np.append(powers, rest)
    return np.append(powers[:-1], powers[-1] + rest)
