"""`Spans`: amounts over spans of time, from readings or counters."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..measurements import Series

GAUGES: Final = ("power", "memory", "running", "waiting")
"""Quantities whose readings are values at a time; those of the others are totals."""
_GAP: Final = 5.0
"""Sampling periods without a reading after which nothing is known."""


class Spans(NamedTuple):
    """Spans from `start` to `end` (s), in order and apart, each with an `amount`: of a
    gauge its integral, of a counter what it gained."""

    start: np.ndarray
    end: np.ndarray
    amount: np.ndarray

    def over(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Amount from `a` to `b`, and the s of it that spans cover."""
        edges = np.ravel([self.start, self.end], order="F")
        sums = (self.amount, self.end - self.start)
        amount, covered = (
            np.interp(b, edges, total) - np.interp(a, edges, total)
            for x in sums
            for total in [np.repeat(np.cumsum(x), 2) - np.outer(x, [1, 0]).ravel()]
        )
        return amount, covered


def spans_of(series: Series) -> Spans:
    """Spans between readings.

    A counter that falls began anew at 0 (Prometheus does the same): it gained what it
    shows. Spans much longer than the others are gaps.
    """
    if series.ends is not None:
        order = np.argsort(series.times, kind="stable")
        start, end = series.times[order], series.ends[order]
        return Spans(start, np.minimum(end, np.append(start[1:], np.inf)),
                     series.values[order])  # fmt: skip
    times, first = np.unique(series.times, return_index=True)
    values = series.values[first]
    length, gained = np.diff(times), np.diff(values)
    if series.quantity in GAUGES:
        amount = length * (values[1:] + values[:-1]) / 2
    else:
        amount = np.where(gained < 0, values[1:], gained)
        if series.quantity == "energy":  # a GPU that was reset: how much is unknown
            length = np.where(gained < 0, np.inf, length)
    typical = np.median(np.diff(times)) if len(length) else 0.0
    near = length <= _GAP * typical
    return Spans(times[:-1][near], times[1:][near], amount[near])


class Total(NamedTuple):
    """Sum of several spans, such as those of replicas."""

    parts: Sequence[Spans]

    def over(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Amount from `a` to `b`, and the s that any of the spans covers at least."""
        each = [x.over(a, b) for x in self.parts if len(x.start)]
        none = np.zeros(np.shape(a))
        amount = sum((x for x, _ in each), none)
        return amount, np.max([x for _, x in each], axis=0) if each else none


def total(series: Iterable[Series], quantity: str) -> Total | None:
    """Sum of all series of a quantity, None where there is none."""
    parts = [spans_of(x) for x in series if x.quantity == quantity]
    return Total(parts) if parts else None
