"""Whether a change of clocks has room in a schedule at all, without searching."""

import numpy as np
from jaxtyping import Float

from ...physics import stage_time
from .._free import free
from .._problem.plan import Rules, Switching
from .._problem.problem import TIE, Problem, Total, by_stage
from .positions import need_order


def has_room(problem: Problem, switching: Switching, most_time: float) -> bool:
    """Whether a schedule with a change of clocks may keep a limit of time (s).

    Raises `ValueError` if the launch order is not known.
    """
    need_order(problem)
    least = _least_time(problem, switching)
    return bool(np.isfinite(least) and least <= most_time * (1 + TIE))


def may_pay(problem: Problem, rules: Rules, single: Total) -> bool:
    """Whether a schedule with a change of clocks may be one that no plan of `single`
    beats, which change no clocks: false if one of them takes no more time than the
    quickest change, and no more energy than the leanest kernels with one change."""
    line = free.bound(problem)
    if not len(line.y) or not len(single.time):
        return True
    least = line.y.min() + _least_energy(problem, rules)
    quick = single.time <= _least_time(problem, rules.changes)
    return not bool(np.any(quick & (single.energy <= least)))


def _least_time(problem: Problem, switching: Switching) -> float:
    """Least time (s) of an iteration in which clocks change; infinite: they cannot."""
    if sum(len(loop.kernels) * loop.turns for loop in problem.loops) < 2:
        return np.inf
    if switching.kind == "lookahead":
        return 2 * switching.latency  # each of two settings holds so long
    fastest = np.where(problem.usable, problem.time, np.inf).min(axis=1)
    gpu = by_stage(problem, problem.count * fastest)
    stalled: Float[np.ndarray, "stage stage"] = gpu + switching.latency * np.eye(
        len(gpu)
    )
    return float(stage_time(stalled, problem.host_time).sum(axis=1).min())


def _least_energy(problem: Problem, rules: Rules) -> float:
    """Least energy (J) that a change adds: in a stage that waits for its host, a stall
    takes the place of waiting."""
    switching = rules.changes
    if switching.kind == "lookahead":
        return switching.energy
    waits = np.where(problem.host_time > 0, problem.wait_power, 0.0).max()
    added = rules.stalled(problem) - float(waits)
    return switching.energy + switching.latency * added
