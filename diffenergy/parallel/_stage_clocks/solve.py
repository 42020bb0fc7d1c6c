"""Clocks of replicas under a deadline and caps, beside the usual clocks."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ...estimator import Task, sd_of
from ...hardware import GpuSpec
from ...results import Infeasible
from .._request import Granularity
from .choose import chosen
from .hulls import ROUNDING
from .problem import Problem, problem_of
from .relaxed import Caps, earliest, relaxed
from .result import Replicas

_NEAR: Final = 1e-3
"""Share of a step to which the fastest one that keeps caps is found."""
_MOST: Final = 10.0
"""Share beyond which it does not grow."""


@dataclasses.dataclass(frozen=True)
class Solved:
    """`usual` and `best` step: s and J of all GPUs; `bound`: J that nothing as fast as
    the best goes below."""

    replicas: tuple[Replicas, ...]
    usual: tuple[float, float]
    best: tuple[float, float]
    bound: float

    @property
    def saving(self) -> float:
        """Share of the usual energy."""
        return 1 - self.best[1] / self.usual[1]


def solved(
    alike: Sequence[tuple[Problem, float]],
    granularity: Granularity,
    slowdown: float | None,
    least: float = 0.0,
    caps: Caps | None = None,
) -> Solved:
    """Clocks of pipelines with how many replicas run each, which wait for each other.

    `slowdown`: share of the usual step by which it may grow (None: as far as `caps`
    ask for); `least`: s that the usual step takes at least, others being slower;
    `caps`: of one pipeline. Raises `Infeasible` if these cannot be kept.
    """
    time = max(least, *(p.time_of(p.usual) for p, _ in alike))
    usual = sum(number * p.step_energy(p.usual, time) for p, number in alike)
    if caps is not None:
        ((problem, number),) = alike
        return _capped(problem, number, granularity, caps, (time, usual), slowdown)
    allowed = time * (1 + (slowdown or 0.0))
    # The step ends with the slowest replica: to end earlier saves the others no
    # waiting.
    if len(alike) > 1:
        least = allowed
    replicas, bound = [], 0.0
    for problem, number in alike:
        times = problem.deadline(allowed), problem.deadline(least)
        lowest = relaxed(problem, *times)
        tied = granularity != "instruction"
        begun = relaxed(problem, *times, tied=True) if tied else lowest
        assert lowest is not None and begun is not None
        replicas.append(Replicas(problem, chosen(problem, granularity, begun), number))
        bound += number * lowest.energy
    step = max(least, *(x.problem.time_of(x.choice) for x in replicas))
    energy = sum(x.energy(step) for x in replicas)
    return Solved(tuple(replicas), (time, usual), (step, energy), bound)


def _capped(
    problem: Problem,
    number: float,
    granularity: Granularity,
    caps: Caps,
    usual: tuple[float, float],
    slowdown: float | None,
) -> Solved:
    """Clocks of a pipeline under power caps: without a `slowdown` the fastest step."""
    time = usual[0]

    def within(step: float) -> Replicas | None:
        return _within(problem, number, granularity, caps, step)

    def solution_of(replicas: Replicas) -> Solved:
        step = problem.time_of(replicas.choice)
        lowest = relaxed(problem, problem.deadline(step))
        assert lowest is not None
        best = step, replicas.energy(step)
        return Solved((replicas,), usual, best, number * lowest.energy)

    best = within(time * (1 + (slowdown or 0.0)))
    if best is not None:
        return solution_of(best)
    late, step, best_replicas = time, time, None
    lowest = relaxed(problem, problem.deadline(time))
    assert lowest is not None
    # Where even the bound draws more than the limit in the usual step, the search
    # begins at the fastest step of the linear program.
    if lowest.energy > problem.abreast * len(caps.members) * caps.limit * time:
        soonest = earliest(problem, caps)
        if soonest is None:
            raise _no_clock(problem, caps)
        late = max(problem.step_time(soonest), time)
    longer = _NEAR
    while best_replicas is None:
        if longer > _MOST:
            raise _no_clock(problem, caps)
        best_replicas, step = within(late * (1 + longer)), late * (1 + longer)
        late, longer = (step if best_replicas is None else late), 2 * longer
    while step - late > 2 * _NEAR * time:
        middle = (late + step) / 2
        replicas = within(middle)
        late, step, best_replicas = (
            (middle, step, best_replicas)
            if replicas is None
            else (late, middle, replicas)
        )
    if slowdown is not None:
        raise _too_slow(
            caps, problem.time_of(best_replicas.choice) / time - 1, slowdown
        )
    return solution_of(best_replicas)


def _within(
    problem: Problem,
    number: float,
    granularity: Granularity,
    caps: Caps,
    allowed: float,
) -> Replicas | None:
    """Clocks of a step of at most `allowed` s; None if none were found that keep
    `caps`."""
    deadline, tied = problem.deadline(allowed), granularity != "instruction"
    # one host draws least at the least energy, several may trade; and power falls with
    # time beyond that of least energy
    hosts = (None, caps) if len(caps.members) > 1 else (None,)
    for hosts_seen, soonest in itertools.product(hosts, (0.0, deadline)):
        begun = relaxed(problem, deadline, soonest, tied=tied, caps=hosts_seen)
        if begun is None:
            continue
        replicas = Replicas(problem, chosen(problem, granularity, begun), number)
        drawn = caps.power(problem, replicas.choice, problem.time_of(replicas.choice))
        if (drawn <= caps.limit * (1 + ROUNDING)).all():
            return replicas
    return None


def uniform(problem: Problem, caps: Caps) -> tuple[float, float, float] | None:
    """Clock (Hz), step (s) and energy (J of all GPUs) of the fastest one clock for all
    that keeps the caps; None if none does."""
    for i, clock in enumerate(problem.clocks):
        choice = np.full(len(problem.type), i)
        step = problem.time_of(choice)
        if (caps.power(problem, choice, step) <= caps.limit).all():
            return float(clock), step, problem.step_energy(choice, step)
    return None


def _no_clock(problem: Problem, caps: Caps) -> Infeasible:
    """That no clocks keep the caps, with what the cheapest ones draw."""
    cheapest = problem.cheapest
    step = problem.time_of(cheapest)
    least = math.ceil(caps.power(problem, cheapest, step).max())
    return Infeasible(
        f"`node_power` is {caps.limit:g} W, which no clocks keep: at those of least "
        f"energy a host draws {least} W; give at least as much.",
        node_power=float(least),
    )


def _too_slow(caps: Caps, needed: float, slowdown: float) -> Infeasible:
    least = math.ceil(1e3 * 100 * (needed + ROUNDING)) / 1e3
    return Infeasible(
        f"`node_power` is {caps.limit:g} W, which no clocks keep with a `max_slowdown` "
        f"of {100 * slowdown:g} %; the least is {max(least, 0.001):g} %, or leave it "
        "out.",
        max_slowdown=least,
    )


# --- How well a saving is known: solved again with numbers of the GPU that are not.

_HALF: Final = 1.645
"""Half width of the central 90 % over the sd."""


def saving_interval(
    task: Task, saving: float, solve: Callable[[Problem], float]
) -> tuple[float, float]:
    """5th and 95th percentile of a saving (a share), by its change with each of

    - the voltage above its floor, idle power and leakage of the board, by the quality
      of their source (as in every interval of power),
    - the joules of kernels, and the bandwidth of the memory, against which kernels that
      no SM clock moves are timed: by the errors of left-out steps in power and time,

    independent of each other. What all kernels have in common cancels in a saving.

    Args:
        task: with the clocks to choose from.
        saving: as it is.
        solve: the saving of a pipeline.
    """
    card, trust, gpu = task.card, task.trust, task.gpu
    sd = {
        ("vf_slope", "vf_curvature"): sd_of(card, "vf_slope"),
        ("idle_constant",): sd_of(card, "idle_constant"),
        ("idle_leakage",): sd_of(card, "idle_leakage"),
        ("core_energy",): float(trust.half_width("power", 1.0)) / _HALF,
        ("dram_bandwidth",): float(trust.half_width("time", 1.0)) / _HALF,
    }
    changes = [
        solve(problem_of(task, _scaled(gpu, names, float(np.exp(x))))) - saving
        for names, x in sd.items()
        if x
    ]
    half = _HALF * float(np.sqrt(np.sum(np.square(changes))))
    # Never below 0: the usual clocks are among the choices.
    return max(saving - half, 0.0), saving + half


def _scaled(gpu: GpuSpec, names: tuple[str, ...], factor: float) -> GpuSpec:
    """The GPU with some numbers of it or of its constants times a factor."""
    for name in names:
        if hasattr(gpu, name):
            gpu = dataclasses.replace(gpu, **{name: getattr(gpu, name) * factor})
            continue
        c = gpu.corrections
        c = dataclasses.replace(c, **{name: getattr(c, name) * factor})
        gpu = dataclasses.replace(gpu, corrections=c)
    return gpu
