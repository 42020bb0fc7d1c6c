"""`Problem`: what every kernel of an iteration costs at every pair of clocks; and time
and energy of an iteration, exactly, from what its stages spend on the GPU.

The host issues a stage while the GPU runs it (`physics.stage_time`). While the GPU
waits it draws `Problem.wait_power`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..physics import stage_time
from ..units import MHz
from ..workload import Loop

LEFT_ALONE: Final = np.nan
"""A clock in `Problem.settings` that is left at its default ("auto")."""
AUTO: Final = (LEFT_ALONE, LEFT_ALONE)
"""The setting that leaves both clocks alone."""
TIE: Final = 1e-9
"""Limits may be passed by this share: sums of floats in another order."""
_BY_KERNEL: Final = (
    "stage", "count", "time", "energy", "default_time", "default_energy",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Problem:
    """Times and energies of the kernels of one iteration, as NumPy arrays (SI).

    Kernels belong to stages (forward and backward, prefill and decode). `time` and
    `energy` are of one launch; both are infinite where a kernel cannot run at a
    setting. The first setting leaves both clocks alone.

    What a kernel costs at default clocks, `default_time` and `default_energy`, is what
    savings are counted from. In a measured table that is its cost at the first setting.
    In a model the power limiter may hold the default below the highest clock, for a
    whole stage; its first setting then stands for the highest clock, and `power_cap`
    says which mean power a stage may draw before the limiter takes over (infinite where
    the table holds the limiter already).
    """

    kernels: tuple[str, ...]
    stages: tuple[str, ...]
    stage: Int[np.ndarray, " kernel"]  # index in `stages`
    count: Float[np.ndarray, " kernel"]  # launches in one iteration
    settings: Float[np.ndarray, "setting 2"]  # (SM clock, memory clock), Hz; NaN: auto
    time: Float[np.ndarray, "kernel setting"]  # s
    energy: Float[np.ndarray, "kernel setting"]  # J
    default_time: Float[np.ndarray, " kernel"]  # s
    default_energy: Float[np.ndarray, " kernel"]  # J
    loops: tuple[Loop, ...]  # launch order
    power_cap: Float[np.ndarray, " stage"]  # W
    host_time: Float[np.ndarray, " stage"]  # s that the host needs to issue a stage
    wait_power: Float[np.ndarray, " stage"]  # W while the GPU waits for the host
    rounds: tuple[int, int] = (0, 1)
    """How many of the first loops follow each other again and again (a micro-batch of
    a training step), and how often."""

    @property
    def turns(self) -> list[int]:
        """How often an iteration passes the kernels of each loop."""
        number, rounds = self.rounds
        return [
            loop.turns * (rounds if i < number else 1)
            for i, loop in enumerate(self.loops)
        ]

    @property
    def usable(self) -> Bool[np.ndarray, "kernel setting"]:
        """Whether a kernel can run at a setting."""
        return np.isfinite(self.time)

    @property
    def power(self) -> Float[np.ndarray, "kernel setting"]:
        """Mean power of a launch, W; infinite where a kernel cannot run."""
        usable = self.usable
        time = np.where(usable, self.time, 1.0)
        return np.where(usable, self.energy, np.inf) / time

    def take(self, rows: Int[np.ndarray, " row"], **changes: Any) -> "Problem":
        """Some of the kernels, each as often as it is named, launch order left out;
        `changes` are made besides."""
        columns = {name: getattr(self, name)[rows] for name in _BY_KERNEL}
        names = tuple(self.kernels[i] for i in rows)
        changes = {
            "kernels": names, "loops": (), "rounds": (0, 1), **columns, **changes
        }  # fmt: skip
        return dataclasses.replace(self, **changes)

    def sequence(self) -> Int[np.ndarray, " launch"]:
        """Kernel of every launch of one iteration, in order."""
        kernels = [np.array(loop.kernels, np.int64) for loop in self.loops]
        return self.in_order(kernels)

    def in_order(
        self, values: Sequence[Int[np.ndarray, " _"]]
    ) -> Int[np.ndarray, " launch"]:
        """What the places of each loop's body hold, launch by launch."""
        number, rounds = self.rounds
        runs = [np.tile(x, y.turns) for x, y in zip(values, self.loops, strict=True)]
        first = np.tile(np.concatenate([np.zeros(0, int), *runs[:number]]), rounds)
        return np.concatenate([first, *runs[number:]]).astype(np.int64)


class Total(NamedTuple):
    """An iteration, or each of several."""

    time: Float[np.ndarray, "*plan"]  # s
    energy: Float[np.ndarray, "*plan"]  # J


def pair_text(pair: Sequence[float] | Float[np.ndarray, "2"]) -> str:
    """A setting (Hz) as `--default-clock` takes it: 1410, 1410,9501 or auto,9501.

    >>> pair_text((1.41e9, LEFT_ALONE))
    '1410'
    """
    sm, mem = ("auto" if np.isnan(x) else f"{x / MHz:g}" for x in pair)
    return sm if mem == "auto" else f"{sm},{mem}"


# --- totals


class Spent(NamedTuple):
    """Time and energy of the launches of each stage on the GPU, without waiting."""

    time: Float[np.ndarray, "*plan stage"]  # s
    energy: Float[np.ndarray, "*plan stage"]  # J


def by_stage(
    problem: Problem, values: Float[np.ndarray, "*plan kernel"]
) -> Float[np.ndarray, "*plan stage"]:
    """Sums over the kernels of each stage."""
    return sums(values, problem.stage, len(problem.stages))


def sums(
    values: Float[np.ndarray, "*plan item"], group: Int[np.ndarray, " item"], num: int
) -> Float[np.ndarray, "*plan group"]:
    """Sums over the items of each of `num` groups; items may be infinite."""
    parts = [values[..., group == i].sum(-1) for i in range(num)]
    return np.stack(parts, axis=-1)


def chosen(problem: Problem, choice: Int[np.ndarray, "*plan kernel"]) -> Spent:
    """Time and energy of each stage with one setting for every kernel."""
    kernels = np.arange(len(problem.kernels))
    return Spent(
        by_stage(problem, problem.count * problem.time[kernels, choice]),
        by_stage(problem, problem.count * problem.energy[kernels, choice]),
    )


def listed(
    problem: Problem,
    kernel: Int[np.ndarray, " row"],
    setting: Int[np.ndarray, " row"],
    count: Float[np.ndarray, " row"],
) -> Spent:
    """Time and energy of each stage of the rows of a schedule."""
    stage, num = problem.stage[kernel], len(problem.stages)
    return Spent(
        np.bincount(stage, count * problem.time[kernel, setting], num),
        np.bincount(stage, count * problem.energy[kernel, setting], num),
    )


def stage_totals(problem: Problem, spent: Spent) -> Spent:
    """Time and energy of every stage, waiting included."""
    time = stage_time(spent.time, problem.host_time)
    return Spent(time, spent.energy + problem.wait_power * (time - spent.time))


def total(problem: Problem, spent: Spent) -> Total:
    """Time and energy of the iteration."""
    stages = stage_totals(problem, spent)
    return Total(stages.time.sum(-1), stages.energy.sum(-1))


def within_caps(problem: Problem, spent: Spent) -> Bool[np.ndarray, "*plan"]:
    """Whether the mean power of every stage stays within its cap."""
    return np.asarray(np.all(cool_stages(problem, spent), axis=-1))


def cool_stages(problem: Problem, spent: Spent) -> Bool[np.ndarray, "*plan stage"]:
    """Stages whose mean power stays within their cap."""
    time, energy = stage_totals(problem, spent)
    # 0 before the product, as inf x 0 is NaN
    free = np.isinf(problem.power_cap)
    most = np.where(free, np.inf, np.where(free, 0.0, problem.power_cap) * time)
    return np.asarray(energy <= most * (1 + TIE))


def default_total(problem: Problem) -> Total:
    """The iteration with every clock left alone; the limiter keeps the caps itself."""
    return total(problem, default_spent(problem))


def default_spent(problem: Problem) -> Spent:
    """Time and energy of each stage at default clocks."""
    return Spent(
        by_stage(problem, problem.count * problem.default_time),
        by_stage(problem, problem.count * problem.default_energy),
    )
