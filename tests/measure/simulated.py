"""A board, a library and a clock that only pretend, all in one world."""

import bisect
import contextlib
import datetime
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from diffenergy.measure import _bench as bench
from diffenergy.measure._clocks import Control
from diffenergy.measure._plan import Point
from diffenergy.measure._reading import Clock
from diffenergy.measure._record import (
    Bench,
    Progress,
    Timing,
    measure_points,
    remaining,
)
from diffenergy.measure._runner import Unsupported
from diffenergy.measure._sensor import About, NoPermission, Sensor, SensorError
from diffenergy.measure._shapes import Kernel, footprint, gemm, stream
from diffenergy.measure._table import Table, state_path

IDLE, DYNAMIC, LEAK = 90.0, 450.0, 1.5  # W, W, W/K
CLOCKS = tuple(1e6 * mhz for mhz in range(345, 1981, 15))
LIMIT, LIMITS = 700.0, (200.0, 700.0)
NEVER = 10**9
USUAL = Timing()
QUICK = Timing(warm_up=0.3, reading=0.4, gap=0.2, chunk=0.1, period=0.2)
"""Few calls, for tests that fail at each of them."""


class World(Clock, Sensor):
    """Time, power, heat and clocks of a board; every call to it is counted.

    `fail_at`: the call that raises `error`, once. `update`: s between two steps of the
    energy counter. `noise`: relative, of each power sample.
    """

    def __init__(self, **about: Any):
        facts = {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory": 80e9}
        facts |= {"index": 0, "driver": "570.1", "cuda": "12.8", "ecc": True}
        self.about = About(**(facts | about))
        self.t, self.total, self.heat = 100.0, 5000.0, 40.0
        self.past: list[tuple[float, float]] = [(0.0, 0.0), (100.0, 5000.0)]
        self.load = 0.0
        self.locked: float | None = None
        self.limit = LIMIT
        self.update, self.noise = 0.1, 0.01
        self.silent: set[str] = set()  # readings that the board does not tell
        self.zero: set[str] = set()  # readings that it gives as 0
        self.allowed = True
        self.stubborn = False  # keeps a locked clock
        self.calls, self.fail_at = 0, NEVER
        self.error: type[BaseException] = SensorError
        self.others: set[int] = set()
        self.ran: list[Kernel] = []
        self.sets: list[float] = []  # clocks that were locked
        self.unsupported: Callable[[Kernel], bool] = lambda kernel: False
        self.rng = random.Random(0)
        self._tasks: list[list[Any]] = []

    # --- time

    def now(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def date(self) -> datetime.datetime:
        start = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
        return start + datetime.timedelta(seconds=self.t)

    @contextlib.contextmanager
    def every(self, period: float, step: Callable[[], None]) -> Iterator[None]:
        task = [self.t, period, step]
        self._tasks.append(task)
        try:
            yield
        finally:
            self._tasks.remove(task)

    def advance(self, seconds: float) -> None:
        end = self.t + seconds
        while self.t < end:
            due = min([end, *(task[0] for task in self._tasks)])
            self._pass(max(due - self.t, 0.0))
            for task in self._tasks:
                if task[0] <= self.t:
                    task[0] += task[1]
                    task[2]()

    def _pass(self, step: float) -> None:
        power = self.true_power()
        self.t += step
        self.total += power * step
        self.heat += (30 + 0.05 * power - self.heat) * (1 - math.exp(-step / 4))
        self.past.append((self.t, self.total))

    # --- physics

    def clock_now(self) -> float:
        """SM clock: locked, or the highest under the power limit."""
        wanted = self.locked or CLOCKS[-1]
        room = (self.limit - IDLE - LEAK * (self.heat - 40)) / max(self.load, 1e-9)
        return min(wanted, CLOCKS[-1] * math.sqrt(max(room, 0.01)))

    def true_power(self) -> float:
        speed = self.clock_now() / CLOCKS[-1]
        return IDLE + LEAK * (self.heat - 40) + self.load * speed**2

    def energy_at(self, t: float) -> float:
        i = bisect.bisect_left(self.past, (t, 0.0))
        (t0, e0), (t1, e1) = (
            self.past[max(i - 1, 0)],
            self.past[min(i, len(self.past) - 1)],
        )
        return e0 if t1 == t0 else e0 + (e1 - e0) * (t - t0) / (t1 - t0)

    # --- the sensor

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise self.error("the board no longer answers")

    def _reading(self, name: str, value: float) -> float:
        self._call()
        if name in self.zero:
            return 0.0
        return math.nan if name in self.silent else value

    def energy(self) -> float:
        step = math.floor(self.t / self.update) * self.update
        return self._reading("energy", self.energy_at(step))

    def power(self) -> float:
        mean = self.energy_at(self.t) - self.energy_at(self.t - 1.0)
        return self._reading("power", mean * (1 + self.noise * self.rng.gauss(0, 1)))

    def sm_clock(self) -> float:
        if self.stubborn and self.sets:
            return self._reading("sm_clock", self.sets[-1])
        return self._reading("sm_clock", self.clock_now())

    def mem_clock(self) -> float:
        return self._reading("mem_clock", 2.619e9)

    def temperature(self) -> float:
        return self._reading("temperature", float(round(self.heat)))

    def reasons(self) -> int:
        self._call()
        return 4 if self.clock_now() < (self.locked or CLOCKS[-1]) else 1

    def power_limit(self) -> float:
        return self._reading("power_limit", self.limit)

    def power_limits(self) -> tuple[float, float] | None:
        return None if "power_limits" in self.silent else LIMITS

    def clocks(self) -> tuple[float, ...]:
        return () if "clocks" in self.silent else CLOCKS

    def processes(self) -> frozenset[int] | None:
        return None if "processes" in self.silent else frozenset(self.others)

    def lock_clock(self, clock: float) -> None:
        self._permit()
        self.locked = clock
        self.sets.append(clock)

    def unlock_clock(self) -> None:
        self._permit()
        self.locked = None

    def set_power_limit(self, limit: float) -> None:
        self._permit()
        self.limit = limit

    def _permit(self) -> None:
        self._call()
        if not self.allowed:
            raise NoPermission("this user may not set clocks")

    # --- the library

    versions: Mapping[str, str] = {"torch": "9.9", "cuda": "12.8"}
    l2 = math.nan

    def prepare(self, kernel: Kernel, copies: int, zeros: bool) -> "Running":
        self._call()
        if self.unsupported(kernel):
            raise Unsupported("out of memory")
        self.ran.append(kernel)
        self.load = 20.0
        self.advance(0.3)
        self.load = 0.0
        return Running(self, kernel, 0.7 if zeros else 1.0)


class Running:
    """A kernel that loads the board for the time that its bytes and FLOP take."""

    def __init__(self, world: World, kernel: Kernel, activity: float):
        self._world, self._kernel = world, kernel
        share = random.Random(str(sorted(kernel.items()))).uniform(0.3, 1.0)
        self._load = DYNAMIC * share * activity

    def run(self, launches: int) -> int:
        world, k = self._world, self._kernel
        world._call()
        flop = 2.0 * k["m"] * k["n"] * k["k"] * k["batch"] if k["op"] == "gemm" else 0.0
        seconds = footprint(k) / 3e12 + flop / 5e14 + 2e-6
        world.load = self._load
        world.advance(launches * seconds)
        world.load = 0.0
        return launches


def points(*states: dict[str, Any], kernels: int = 3) -> list[Point]:
    """A few points, in the given states."""
    rows = [gemm(4096, 4096, 4096, "bf16"), stream("copy", 2**28, "bf16")]
    rows += [gemm(512, 512 * i, 512, "bf16") for i in range(1, kernels)]
    return [
        Point("gemm", row, 1, False, **state)
        for state in states or ({},)
        for row in rows[:kernels]
    ]


def measured(
    world: World,
    plan: Sequence[Point],
    path: Path,
    timing: Timing = USUAL,
    seconds: float = 1e6,
    said: list[str] | None = None,
) -> tuple[Table, Progress]:
    """Measures what is left of a plan, as the command does."""
    said = [] if said is None else said
    progress = Progress()
    with Control(world, world, state_path(path), said.append) as control:
        first = next((p for p in plan if p.clock or p.limit), None)
        control.prepare(first and first.clock, first and first.limit)
        watch = bench.watch(world, frozenset())
        kit = Bench(
            "h100-sxm", world, world, world, control, watch, lambda: None, timing
        )
        table = Table(path)
        left = remaining(plan, "h100-sxm", table.rows)
        deadline = world.now() + seconds
        measure_points(left, kit, table, deadline, progress, lambda done, point: None)
    return table, progress
