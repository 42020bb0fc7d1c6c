"""Samples of a board while a kernel runs, their means over a window, and the clock."""

import contextlib
import dataclasses
import datetime
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from ..units import MHz
from ._sensor import REASONS, Sensor

_LEAST_SHARE: Final = 0.5
"""Share of a window that changes of the energy counter must span to be used."""


class Clock:
    """The clock of this machine, with periodic calls in a thread."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextlib.contextmanager
    def every(self, period: float, step: Callable[[], None]) -> Iterator[None]:
        """Calls `step`, which must not raise, every `period` s in the context, in a
        thread."""
        done = threading.Event()

        def work():
            while not done.is_set():
                step()
                done.wait(period)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def date(self) -> datetime.datetime:
        """Time of day, UTC."""
        return datetime.datetime.now(datetime.UTC)


class Sample(NamedTuple):
    """A board at one moment, its readings named as the sensor has them: s; J; W; Hz;
    Hz; C; bits of `REASONS`. NaN: not told."""

    time: float
    energy: float
    power: float
    sm_clock: float
    mem_clock: float
    temperature: float
    reasons: int


class Sampler:
    """Collects samples in a thread; `check` raises errors of the thread."""

    def __init__(self, sensor: Sensor, clock: Clock):
        self._sensor, self._clock = sensor, clock
        self._error: BaseException | None = None
        self.samples: list[Sample] = []

    def step(self) -> None:
        if self._error is not None:
            return
        try:
            time = self._clock.now()
            readings = [getattr(self._sensor, name)() for name in Sample._fields[1:]]
            self.samples.append(Sample(time, *readings))
        except BaseException as error:  # of a thread: raised where it can be seen
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


@dataclasses.dataclass(frozen=True)
class Means:
    """Means over a window, SI, NaN where the board told nothing. `power` is that of the
    counter where `source` says so; `sampled` that of the power samples."""

    power: float
    source: Literal["counter", "samples", ""]
    sampled: float
    sm_clock: float
    mem_clock: float
    temperature: float
    reasons: tuple[str, ...]


def means(samples: Sequence[Sample], begin: float, end: float) -> Means:
    """Means of the samples in the window; readings of 0 or less count as missing.

    The counter moves in steps: its rate is taken from the first to the last step inside
    the window, which is exact to about two sampling periods.
    """
    inside = [s for s in samples if begin <= s.time <= end]
    counted = _counter_power(samples, begin, end)
    sampled = _mean([s.power for s in inside])
    has_counter = not math.isnan(counted)
    reasons = {name for s in inside for bit, name in REASONS.items() if s.reasons & bit}
    source = "counter" if has_counter else "" if math.isnan(sampled) else "samples"
    return Means(
        counted if has_counter else sampled,
        source,
        sampled,
        _mean([s.sm_clock for s in inside]),
        _mean([s.mem_clock for s in inside]),
        _mean([s.temperature for s in inside]),
        tuple(sorted(reasons)),
    )


def series(samples: Sequence[Sample], origin: float) -> dict[str, Any]:
    """Columns of samples as JSON has them, times from `origin`; None: not told."""
    return {
        "t_s": [round(s.time - origin, 4) for s in samples],
        "power_w": [_plain(s.power, 2) for s in samples],
        "energy_j": [_plain(s.energy, 3) for s in samples],
        "sm_clock_mhz": [_plain(s.sm_clock / MHz, 0) for s in samples],
        "mem_clock_mhz": [_plain(s.mem_clock / MHz, 0) for s in samples],
        "temperature_c": [_plain(s.temperature, 0) for s in samples],
        "throttle": [s.reasons for s in samples],
    }


def _counter_power(samples: Sequence[Sample], begin: float, end: float) -> float:
    steps = [
        (now.time, now.energy)
        for before, now in zip(samples, samples[1:], strict=False)
        if now.energy > before.energy > 0 and begin <= now.time <= end
    ]
    if len(steps) < 2 or steps[-1][0] - steps[0][0] < _LEAST_SHARE * (end - begin):
        return math.nan
    (first, low), (last, high) = steps[0], steps[-1]
    rate = (high - low) / (last - first)
    return rate if rate > 0 else math.nan  # a counter that began anew


def _mean(values: Sequence[float]) -> float:
    positive = [value for value in values if value > 0]
    return statistics.fmean(positive) if positive else math.nan


def _plain(value: float, digits: int) -> float | None:
    return round(value, digits) if value > 0 else None
