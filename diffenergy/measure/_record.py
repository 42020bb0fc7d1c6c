"""The measuring loop: every point of a plan becomes a row."""

import dataclasses
import hashlib
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .. import __version__
from ..units import MHz, us
from ._clocks import Control
from ._plan import GAP, Point
from ._reading import Clock, Means, Sampler, means, series
from ._runner import Runner, Running, Unsupported
from ._sensor import Sensor
from ._table import Cells, Table, cell, key

_FAILURES: Final = 5
"""Points that fail one after the other before a run gives up."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """s of warm-up, reading, gap before a cold point, one chunk of launches between
    two looks at the clock, and from sample to sample."""

    warm_up: float = 1.5
    reading: float = 2.0
    gap: float = GAP
    chunk: float = 0.05
    period: float = 0.02


@dataclasses.dataclass(frozen=True)
class Bench:
    """Board, library and clock of the measuring loop.

    `gpu`: name in the rows. `strangers`: whether another process uses the board, None
    if unknown. `check`: raises where a run shall end.
    """

    gpu: str
    sensor: Sensor
    runner: Runner
    clock: Clock
    control: Control
    strangers: Callable[[], bool | None]
    check: Callable[[], None]
    timing: Timing = Timing()


@dataclasses.dataclass
class Progress:
    """What a run has done so far."""

    measured: int = 0
    failed: list[dict[str, str]] = dataclasses.field(default_factory=list)
    shared: bool = False
    stopped: str = ""
    """Why the run ended before its plan, "" if it did not."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a kernel; times are those of the clock."""

    first: float  # of the first launch
    begin: float  # of the reading
    end: float
    launches: int  # of the reading
    means: Means
    samples: Mapping[str, Any]


def campaign(clock: Clock) -> str:
    """Name of the measurements of one day on one host: `measure-DAY-HOST`, the day in
    UTC, the host as six digits of a hash."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
    return f"measure-{clock.date():%Y-%m-%d}-{host}"


def remaining(points: Sequence[Point], gpu: str, rows: Sequence[Cells]) -> list[Point]:
    """Points that no row covers yet."""
    done = {key(row) for row in rows}
    return [point for point in points if key(point_cells(point, gpu)) not in done]


def measure_points(
    points: Sequence[Point],
    bench: Bench,
    table: Table,
    deadline: float,
    progress: Progress,
    tell: Callable[[Progress, Point], None],
) -> None:
    """Measures `points` into `table` until all are there or the clock says `deadline`.

    `progress` is kept up to date, so that it holds after an exception too; `tell` is
    called before each point.
    """
    in_a_row, previous, end = 0, "", math.nan
    for point in points:
        bench.check()
        if bench.clock.now() + point.seconds > deadline:
            progress.stopped = "the time is up"
            return
        tell(progress, point)
        try:
            run = _run(point, bench)
        except Unsupported as error:
            progress.failed.append({**_kernel_name(point), "reason": cell(str(error))})
            in_a_row += 1
            if in_a_row == _FAILURES:
                raise ValueError(
                    f"{_FAILURES} kernels failed one after the other, the last with "
                    f"'{error}'; see `nvidia-smi` and run the same command again."
                ) from None
            continue
        except RuntimeError as error:
            raise ValueError(
                f"the library failed at {label(point)} ({str(error)[:160]}); the rows "
                "so far are kept and the same command goes on."
            ) from error
        shared = bench.strangers()
        progress.shared |= bool(shared)
        cells = {
            **point_cells(point, bench.gpu),
            **_reading_cells(run, bench),
            "gap_s": cell(run.first - end),
            "previous": previous,
            "shared_gpu": cell(shared),
        }
        table.append(cells, _series(point, run))
        progress.measured += 1
        in_a_row, previous, end = 0, label(point), run.end


def _run(point: Point, bench: Bench) -> Run:
    """Runs one kernel: set-up, gap, warm-up, reading."""
    clock, timing = bench.clock, bench.timing
    bench.control.apply(point.clock, point.limit)
    running = bench.runner.prepare(point.kernel, point.copies, point.zeros)
    sampler = Sampler(bench.sensor, clock)
    with clock.every(timing.period, sampler.step):
        if point.start == "cold":
            _idle(timing.gap, bench)
        first = clock.now()
        each = _launch_time(running, clock, timing)
        chunk = max(1, math.ceil(timing.chunk / each))
        _launches(running, chunk, first + timing.warm_up, bench, sampler)
        begin = clock.now()
        until = begin + timing.reading
        launches = _launches(running, chunk, until, bench, sampler)
        end = clock.now()
    sampler.check()
    run_means = means(sampler.samples, begin, end)
    return Run(first, begin, end, launches, run_means, series(sampler.samples, first))


def _idle(seconds: float, bench: Bench) -> None:
    """Waits without launching anything."""
    end = bench.clock.now() + seconds
    while bench.clock.now() < end:
        bench.check()
        bench.clock.sleep(min(0.1, seconds))


def _launch_time(running: Running, clock: Clock, timing: Timing) -> float:
    """Approximate time of one launch (s)."""
    launches = 1
    while True:
        begin = clock.now()
        launched = running.run(launches)
        spent = clock.now() - begin
        if spent >= timing.chunk / 4:
            return spent / launched
        launches = 4 * launched


def _launches(
    running: Running, chunk: int, until: float, bench: Bench, sampler: Sampler
) -> int:
    """Launches chunks until the clock reaches `until`; returns their launches."""
    count = 0
    while bench.clock.now() < until:
        count += running.run(chunk)
        bench.check()
        sampler.check()
    return count


def point_cells(point: Point, gpu: str) -> Cells:
    """Cells of a point that are known before it is measured."""
    named = {"gpu": gpu, "class": point.kind, "zero_share": 1 if point.zeros else None}
    cells = {**point.kernel, **named, **point.state}
    return {name: cell(value) for name, value in cells.items()}


def label(point: Point) -> str:
    """Short name of a kernel, such as `gemm 8192x8192x8192 bf16`."""
    k = point.kernel
    sizes = [v for v in k.values() if isinstance(v, int) and not isinstance(v, bool)]
    size = "x".join(str(v) for v in sizes)
    return " ".join([str(k["op"]), *([k["fn"]] if "fn" in k else []), size, k["dtype"]])


def _kernel_name(point: Point) -> dict[str, str]:
    return {"class": point.kind, "kernel": label(point)}


def _reading_cells(run: Run, bench: Bench) -> Cells:
    """Cells of a reading and of the software that took it."""
    time = (run.end - run.begin) / run.launches
    m, about = run.means, bench.sensor.about
    versions = bench.runner.versions
    cells: dict[str, Any] = {
        "time_us": time / us,
        "avg_power_w": m.power,
        "energy_j": m.power * time,
        "sm_clock_mhz_avg": m.sm_clock / MHz,
        "mem_clock_mhz": m.mem_clock / MHz,
        "power_limit_w": bench.sensor.power_limit(),
        "temperature_c": m.temperature,
        "iterations": run.launches,
        "window_s": run.end - run.begin,
        "run_s": run.end - run.first,
        "power_source": m.source,
        "sampled_power_w": m.sampled,
        "throttle": "+".join(m.reasons),
        "ecc": about.ecc,
        "campaign": campaign(bench.clock),
        "measured_at": f"{bench.clock.date():%Y-%m-%dT%H:%M:%SZ}",
        "device": about.name,
        "driver": about.driver,
        "cuda": about.cuda,
        "runner": " ".join(f"{name} {version}" for name, version in versions.items()),
        "software": f"diffenergy {__version__}",
    }
    return {name: cell(value) for name, value in cells.items()}


def _series(point: Point, run: Run) -> dict[str, Any]:
    """Series of a run, as the file beside the rows has it; times in s from the first
    launch."""
    window = [round(run.begin - run.first, 4), round(run.end - run.first, 4)]
    return {**_kernel_name(point), "window_s": window, **run.samples}
