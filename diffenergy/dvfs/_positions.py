"""`Positions`: places of the launch order that choose a setting each, and their costs.

Loops keep their clocks from turn to turn, so a place in a loop's body is one position
that is passed `turns` times; without sharing, every launch is a position.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from ..physics import stage_time
from . import _free as free
from ._plan import Rules, Switching
from ._problem import TIE, Problem, Spent, Total, by_stage, sums


@dataclasses.dataclass(frozen=True, eq=False)
class Positions:
    """Positions in launch order. `problem` says what their kernels cost."""

    problem: Problem
    kernel: Int[np.ndarray, " position"]
    count: Float[np.ndarray, " position"]  # launches
    entered: Float[np.ndarray, " position"]  # times it follows the position before
    first: Int[np.ndarray, " position"]  # first position of its loop
    again: Float[np.ndarray, " position"]  # at a loop's end: turns - 1, else 0
    back: tuple[int, float]  # last position before the first comes again, how often
    stall: float  # s that each change of setting takes
    change_energy: float  # J of each change, the stall included

    @property
    def stage(self) -> Int[np.ndarray, " position"]:
        """Stage of every position."""
        return self.problem.stage[self.kernel]

    @property
    def time(self) -> Float[np.ndarray, "position setting"]:
        """Time of all launches of every position (s)."""
        return self.count[:, None] * self.problem.time[self.kernel]

    @property
    def energy(self) -> Float[np.ndarray, "position setting"]:
        """Energy of all launches of every position (J)."""
        return self.count[:, None] * self.problem.energy[self.kernel]

    def changes(
        self, settings: Int[np.ndarray, "*plan position"]
    ) -> Float[np.ndarray, "*plan position"]:
        """Changes of setting before the launches of every position."""
        before = np.roll(settings, 1, axis=-1)
        changed = self.entered * (settings != before)
        ends = np.flatnonzero(self.again)
        starts = self.first[ends]
        wraps = settings[..., ends] != settings[..., starts]
        changed[..., starts] += self.again[ends] * wraps
        last, times = self.back
        changed[..., 0] += times * (settings[..., last] != settings[..., 0])
        return changed

    def spent(self, settings: Int[np.ndarray, "*plan position"]) -> Spent:
        """Time and energy of the stages, changes of setting included."""
        changes = self.changes(settings)
        stage, num = self.stage, len(self.problem.stages)
        time = self.count * self.problem.time[self.kernel, settings]
        energy = self.count * self.problem.energy[self.kernel, settings]
        return Spent(
            sums(time + self.stall * changes, stage, num),
            sums(energy + self.change_energy * changes, stage, num),
        )


def positions(
    problem: Problem, stall: float, change_energy: float, per_launch: bool
) -> Positions:
    """Positions of the loops' bodies, or of all launches.

    A kernel that is launched more often than the loops say (a row that stands for many
    launches) repeats itself at each of its positions.
    """
    need_order(problem)
    bodies = [np.array(loop.kernels) for loop in problem.loops]
    inner, turns = [loop.turns for loop in problem.loops], problem.turns
    number, rounds = problem.rounds
    if per_launch:
        bodies, inner, turns = [problem.sequence()], [1], [1]
        number, rounds = 0, 1
    sizes = np.array([len(body) for body in bodies])
    kernel = np.concatenate(bodies).astype(np.int64)
    each = np.repeat(turns, sizes).astype(float)
    passes = np.bincount(kernel, each, len(problem.kernels))
    ends = np.cumsum(sizes) - 1
    starts = ends - sizes + 1
    entered = each.copy()
    entered[starts] = np.array(turns) / inner
    # the change from the iteration before is not counted (docs/dvfs.md)
    entered[0] = 0.0
    again = np.zeros(len(kernel))
    again[ends] = np.array(turns) - entered[starts]
    again[ends[0]] = turns[0] - turns[0] / inner[0]
    back = (int(ends[number - 1]), rounds - 1.0) if number else (0, 0.0)
    return Positions(
        problem,
        kernel,
        each * (problem.count / passes)[kernel],
        entered,
        np.repeat(starts, sizes),
        again,
        back,
        stall,
        change_energy,
    )


def need_order(problem: Problem):
    """Raises `ValueError` unless the loops launch every kernel."""
    launched = {kernel for loop in problem.loops for kernel in loop.kernels}
    for i, name in enumerate(problem.kernels):
        if i not in launched:
            raise ValueError(
                f"`loops` never launches kernel `{name}`; switching costs need the "
                f"launch order of all kernels."
            )


# --- whether a change of clocks has room at all, without searching


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
