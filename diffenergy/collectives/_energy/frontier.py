"""Finish time against energy: the Pareto front of schedules, and a choice from it.

For later and later limits `least_energy` looks for the cheapest schedule of links and
memory. Waiting GPUs draw power all the while, so a later schedule is worth it only if
it saves more than GPUs x idle power x delay; where it does not, the front of finish and
total energy is the fastest schedule alone.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

from ...hardware import GpuSpec
from ...search import USUAL, Solving
from .._machine.routes import EpochModel
from .._schedule.schedule import Schedule
from .energy import CollectiveEnergy, byte_prices, memory_price, schedule_energy
from .energy_search import SAME, least_energy, priced

Goal = Literal["time", "energy"]
_STRETCHES: Final = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Latest finishes that are tried, in finishes of the first schedule."""
_ROUNDING: Final = 1e-6
"""Share of an epoch by which a limit may miss it."""


@dataclasses.dataclass(frozen=True)
class FrontPoint:
    """A schedule with its `finish` (s) and what it takes."""

    schedule: Schedule
    finish: float
    energy: CollectiveEnergy

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
    out_of_time: bool = False


def frontier(
    start: Schedule,
    gpu: GpuSpec | None,
    how: Solving = USUAL,
    *,
    model: EpochModel | None = None,
) -> Front:
    """Finish against energy from `start`, a fast schedule, on.

    `model`: epochs for the solver, which gets as many as fit; the limits are for all
    searches. Ends at the first schedule that nothing can undercut, and on Ctrl-C.
    """
    memory = None if gpu is None else memory_price(gpu)
    prices = byte_prices(start.topology, memory)
    found, seconds, work = [priced(start, prices)], 0.0, 0.0
    for number, stretch in enumerate(_STRETCHES):
        left = how.less(seconds, work)
        out = seconds >= how.time_limit or work >= how.work
        if found[-1].meets_floor or found[-1].interrupted or out:
            break
        limit, rest = found[0].finish * stretch, len(_STRETCHES) - number
        share = dataclasses.replace(left, work=left.work / rest)
        horizon = None if model is None else int(limit / model.tau + _ROUNDING)
        found.append(
            least_energy(
                found[-1], prices, share, limit=limit, model=model, horizon=horizon
            )
        )
        seconds, work = seconds + found[-1].seconds, work + found[-1].work
    points = [
        FrontPoint(x.schedule, x.finish, schedule_energy(x.schedule, gpu, x.finish))
        for x in found
    ]
    ended = found[-1].interrupted, seconds >= how.time_limit
    return Front(_pareto(points, True), _pareto(points, False), *ended)


def front_rows(front: Front) -> list[dict[str, Any]]:
    """The front for JSON, by rising finish: `moved_j` of links and memory, `energy_j`
    with the GPUs that wait."""
    return [
        {"finish_s": p.finish, "moved_j": p.energy.active, "energy_j": p.total}
        for p in front.trades
    ]


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
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(
            f"`objective` is '{text}'; allowed are time, energy, or a weight of 0 or "
            "more, in J per s of finish."
        )
    return weight


def pick(front: Front, objective: Goal | float) -> FrontPoint:
    """The point of a front: `time` the fastest, `energy` the least total with waiting
    GPUs, or a weight in J per s of finish: least energy of links and memory + weight x
    finish (`energy` is the weight GPUs x idle power, of a known GPU).
    """
    if objective == "time":
        return min(front.trades, key=lambda p: (p.finish, p.energy.active))
    if objective == "energy":
        return min(front.points, key=lambda p: (p.total or 0.0, p.finish))
    return min(
        front.trades, key=lambda p: (p.energy.active + objective * p.finish, p.finish)
    )


def _pareto(found: Sequence[FrontPoint], whole: bool) -> tuple[FrontPoint, ...]:
    """Points that no other beats in finish and energy (`whole`: the total, where it is
    known), by rising finish."""

    def energy(point: FrontPoint) -> float:
        return point.energy.active if point.total is None or not whole else point.total

    front: list[FrontPoint] = []
    for point in sorted(found, key=lambda p: (p.finish, energy(p))):
        if front and energy(point) >= energy(front[-1]) * (1 - SAME):
            continue
        if front and point.finish <= front[-1].finish * (1 + SAME):
            front.pop()
        front.append(point)
    return tuple(front)
