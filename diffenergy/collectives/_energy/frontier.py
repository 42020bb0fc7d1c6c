"""Finish time against energy: the Pareto front of schedules, and a choice from it.

For later and later limits `least_energy` looks for the cheapest schedule of links and
memory. Waiting GPUs draw power all the while, so a later schedule is worth it only if
it saves more than GPUs x idle power x delay; where it does not, the front of finish and
total energy is the fastest schedule alone.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Final, Literal

from ...corrections import Corrections
from ...hardware._spec import GpuSpec
from .._exact.solver import Watch
from .._machine.epochs import EpochModel
from .._schedule.schedule import Schedule
from .._verify.verify import verify
from .energy import CollectiveEnergy, byte_prices, schedule_energy
from .energy_floor import energy_floor
from .energy_search import least_energy, meets
from .idle import memory_price

Goal = Literal["time", "energy"]
STRETCHES: Final = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Limits that are tried where none are given, in finishes of the first schedule."""
_SAME: Final = 1e-9
"""Relative difference of joules or seconds that counts as none."""
_ROUNDING: Final = 1e-6
"""Share of an epoch by which a limit may miss it."""


@dataclasses.dataclass(frozen=True)
class FrontPoint:
    """A schedule with its `finish` (s) and what it takes; `least`: whether no schedule
    spends less on links and memory, at any finish."""

    schedule: Schedule
    finish: float
    energy: CollectiveEnergy
    least: bool

    @property
    def active(self) -> float:
        """J of links and memory (links alone where the GPU is not known)."""
        return self.energy.active

    @property
    def total(self) -> float | None:
        """J with the GPUs that wait, best guess; None where the GPU is not known."""
        total = self.energy.total
        return None if total is None else total.typical


@dataclasses.dataclass(frozen=True)
class Front:
    """Schedules by rising finish. `trades`: none is faster and spends less on links and
    memory than another; `points`: the same for the total with waiting GPUs (equal to
    `trades` where the GPU is not known). One point: the fastest is also the leanest."""

    points: tuple[FrontPoint, ...]
    trades: tuple[FrontPoint, ...]
    interrupted: bool = False


def frontier(
    start: Schedule,
    gpu: GpuSpec | None,
    *,
    limits: Sequence[float] | None = None,
    model: EpochModel | None = None,
    corrections: Corrections | None = None,
    sm_clock: float | None = None,
    time_limit: float = 20.0,
    seed: int = 0,
    watch: Watch | None = None,
) -> Front:
    """Finish against energy from `start`, a fast schedule, on.

    `limits`: latest finishes to try, s (None: `STRETCHES` of the first finish);
    `model`: epochs for the solver, which gets as many as fit; `time_limit`: s in all.
    Ends at the first schedule that nothing can undercut, and on Ctrl-C.
    """
    finish = verify(start).finish
    memory = None if gpu is None else memory_price(gpu, sm_clock, corrections)
    prices = byte_prices(start.topology, memory)
    ends = time.monotonic() + time_limit
    asked = [finish * x for x in STRETCHES] if limits is None else sorted(limits)

    def point(schedule: Schedule, finish: float, least: bool) -> FrontPoint:
        energy = schedule_energy(schedule, gpu, corrections, sm_clock, finish)
        return FrontPoint(schedule, finish, energy, least)

    met = meets(start, prices, energy_floor(start.topology, start.demand, prices))
    found, interrupted = [point(start, finish, met)], False
    for number, limit in enumerate(asked):
        left = ends - time.monotonic()
        if met or interrupted or left <= 0:
            break
        better = least_energy(
            found[-1].schedule,
            prices,
            limit=limit,
            model=model,
            horizon=None if model is None else int(limit / model.tau + _ROUNDING),
            time_limit=left / (len(asked) - number),
            seed=seed,
            watch=watch,
        )
        interrupted, met = better.interrupted, better.meets_floor
        found.append(point(better.schedule, better.finish, met))
    return Front(_pareto(found, True), _pareto(found, False), interrupted)


def read_objective(text: str) -> Goal | float:
    """An objective as written: `time`, `energy`, or a weight in J per s of finish.

    Raises:
        ValueError: anything else.
    """
    word = text.strip().lower()
    if word == "time" or word == "energy":
        return word
    try:
        weight = float(word)
    except ValueError:
        weight = math.nan
    return _checked(weight, text)


def pick(front: Front, objective: Goal | float) -> FrontPoint:
    """The point of a front: `time` the fastest, `energy` the least total with waiting
    GPUs, or a weight in J per s of finish: least energy of links and memory + weight x
    finish (`energy` is the weight GPUs x idle power).

    Raises:
        ValueError: `energy` where the GPU is not known, or a weight below 0.
    """
    if objective == "time":
        return min(front.trades, key=lambda p: (p.finish, p.active))
    if objective == "energy":
        if any(p.total is None for p in front.points):
            raise ValueError(
                "`objective` is energy, but the topology names no GPU, so what GPUs "
                "draw while they wait is not known; name one with `--gpu`, or give a "
                "weight in J per s of finish."
            )
        return min(front.points, key=lambda p: (p.total or 0.0, p.finish))
    weight = _checked(objective, f"{objective:g}")
    return min(front.trades, key=lambda p: (p.active + weight * p.finish, p.finish))


def _checked(weight: float, text: str) -> float:
    """A weight that can be one."""
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(
            f"`objective` is {text}; allowed are time, energy, or a weight of 0 or "
            "more, in J per s of finish."
        )
    return weight


def _pareto(found: Sequence[FrontPoint], whole: bool) -> tuple[FrontPoint, ...]:
    """Points that no other beats in finish and energy (`whole`: the total, where it is
    known), by rising finish."""

    def energy(point: FrontPoint) -> float:
        return point.active if point.total is None or not whole else point.total

    front: list[FrontPoint] = []
    for point in sorted(found, key=lambda p: (p.finish, energy(p))):
        if front and energy(point) >= energy(front[-1]) * (1 - _SAME):
            continue
        if front and point.finish <= front[-1].finish * (1 + _SAME):
            front.pop()
        front.append(point)
    return tuple(front)
