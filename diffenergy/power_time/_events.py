"""Events of a long job (checkpoints, evaluations, stragglers), which interrupt its
steps."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ..files import read_toml
from ..schema import Positive, Table, fitted
from ._curve import PowerCurve
from ._smoothing import Boards

_MOST: Final = 1_000_000
"""Slices of a job's curve; above, neighbours are merged."""
_MOST_PERIODS: Final = 9
"""Of the rarest event, into which the others have to fit."""


class Event(Table, frozen=True):
    """`every_s`: from one beginning to the next; `lasts_s`: meanwhile no step goes on.
    `share`: of the boards that pause while the others work, or that work while the
    others wait, by `kind`."""

    every_s: Positive
    lasts_s: Positive
    kind: Literal["pause", "work"] = "pause"
    share: Annotated[
        float, Meta(gt=0, le=1, description="allowed is a share above 0 up to 1")
    ] = 1.0

    @property
    def waits(self) -> float:
        """Share of the boards that wait."""
        return self.share if self.kind == "pause" else 1 - self.share

    @property
    def taken(self) -> float:
        """Share of the time of the job."""
        return self.lasts_s / self.every_s


class _File(Table, frozen=True):
    events: list[Event]


class Job(NamedTuple):
    """Steps of a training that `events` interrupt."""

    events: tuple[Event, ...]

    @property
    def share(self) -> float:
        """Share of the job's time that events take."""
        return math.fsum(x.taken for x in self.events)

    @property
    def paused(self) -> float:
        """Share of the time of all boards in which events let them wait."""
        return math.fsum(x.taken * x.waits for x in self.events)

    def added(self, time: float) -> list[tuple[float, float]]:
        """What a step of `time` s brings of each event: its s, and the share of the
        boards that wait meanwhile."""
        whole = time / (1 - self.share)
        return [(x.taken * whole, x.waits) for x in self.events]

    def curves(self, boards: Sequence[Boards], idle: float) -> list[Boards]:
        """Curves of the steps of boards with the events cut in, of one period of all
        events. Meanwhile boards draw the mean of their steps, those that wait `idle`
        W."""
        cuts, length = self._cuts()
        number = _MOST * boards[0].curve.time / length / len(boards)
        return [
            x._replace(curve=_interrupted(x.curve, cuts, length, idle, number))
            for x in boards
        ]

    def _cuts(self) -> tuple[list[tuple[float, float, float]], float]:
        """(begin, end, share that waits) of every event of a period, which is as many
        of the longest `every_s` as make the others nearly whole; and its length (s).
        Events that meet come one after another."""
        longest = max(x.every_s for x in self.events)

        def misfit(times: int) -> float:
            numbers = [times * longest / x.every_s for x in self.events]
            return max(abs(x / round(x) - 1) for x in numbers)

        length = longest * min(range(1, _MOST_PERIODS), key=lambda n: (misfit(n), n))
        ends: list[tuple[float, Event]] = []
        for event in self.events:
            number = round(length / event.every_s)
            ends += [(length * (i + 1) / number, event) for i in range(number)]
        cuts, before = list[tuple[float, float, float]](), length
        for planned, event in sorted(ends, key=lambda x: -x[0]):
            end = min(planned, before)
            before = max(0.0, end - event.lasts_s)
            cuts.append((before, end, event.waits))
        return cuts[::-1], length


def _interrupted(
    steps: PowerCurve,
    cuts: Sequence[tuple[float, float, float]],
    length: float,
    idle: float,
    number: float,
) -> PowerCurve:
    """Power over `length` s of a board whose steps are interrupted by `cuts`; of a step
    `number` slices at most are told apart."""
    if number < 2:
        steps = PowerCurve(steps.edges[[0, -1]], np.array([steps.mean]), True)
    elif number < len(steps.watts):
        steps = steps.merged(steps.time / int(number))
    edges, watts, now, worked = [0.0], list[float](), 0.0, 0.0
    for begin, end, waits in (*cuts, (length, length, 0.0)):
        if begin > now:
            gap = begin - now
            if len(steps.watts) == 1:
                edges.append(begin)
                watts.append(float(steps.watts[0]))
            else:
                piece = steps.repeated(worked, worked + gap)
                edges += (now + piece.edges[1:] - worked).tolist()
                watts += piece.watts.tolist()
            worked += gap
        edges.append(end)
        watts.append(waits * idle + (1 - waits) * steps.mean)
        now = end
    return PowerCurve(np.array(edges), np.array(watts), periodic=True)


def read_events(path: str | Path) -> Job:
    """The events of a TOML file. Raises `ValueError` with what is wrong in it."""
    where = f"{Path(path).name}: "
    table = read_toml(Path(path), "events", "")
    job = Job(tuple(fitted(table, _File, where).events))
    if not job.events:
        raise ValueError(f"{where}`events` is empty; give one [[events]] at least.")
    if job.share >= 1:
        raise ValueError(
            f"{where}`events` take {100 * job.share:.3g} % of the time; make `every_s` "
            "longer than all `lasts_s`."
        )
    return job
