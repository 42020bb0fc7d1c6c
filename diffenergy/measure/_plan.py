"""Points to measure, in an order that may end anywhere, and their duration."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from ..hardware import GpuCard
from ..units import MHz
from ._shapes import CLASSES, Board, Kernel, copies, is_resident, kernels

Start = Literal["warm", "cold"]

SETUP: Final = 0.9
"""s that operands, first launches and the change to the next kernel take, guessed."""
WARM_UP: Final = 1.6
"""s in the kernel before the reading: the sensor averages over a second."""
READING: Final = 2.1
"""s of the reading."""
GAP: Final = 5.0
"""s without work before a cold point."""

_SWEPT: Final = 8
"""Clocks of an automatic sweep."""
_LOWEST: Final = 0.35
"""Least of them, as a share of the highest clock; far below the knee of V(f)."""
_REPEATS: Final = 2
"""Cold and warm pairs of each reference kernel where nothing is swept."""
FREE: Final = 0.4
"""Share of the memory that buffers may take."""
TYPES: Final = ("bf16", "fp16", "fp8", "tf32")
"""Types of tensor cores that both runners know."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One run: a kernel in a state. `clock` (Hz) and `limit` (W) are set by us, None:
    left to the GPU. `resident`: its tensors stay in the L2."""

    kind: str
    kernel: Kernel
    copies: int
    resident: bool
    zeros: bool = False
    start: Start = "warm"
    clock: float | None = None
    limit: float | None = None
    repeat: int = 1

    @property
    def state(self) -> dict[str, Any]:
        """Cells of the requested state of operands and board (`STATE_COLUMNS`)."""
        return {
            "contents": "zeros" if self.zeros else "random",
            "copies": self.copies,
            "start": self.start,
            "repeat": self.repeat,
            "sm_clock_mhz_set": None if self.clock is None else self.clock / MHz,
            "power_limit_w_set": self.limit,
        }

    @property
    def seconds(self) -> float:
        """Approximate duration of the point (s)."""
        return SETUP + WARM_UP + READING + (GAP if self.start == "cold" else 0.0)


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """Options of a plan. `clocks` (Hz) and `limits` (W): values to sweep."""

    points: int = 200
    seed: int = 0
    only: tuple[str, ...] = CLASSES
    zeros: bool = False
    clocks: tuple[float, ...] = ()
    limits: tuple[float, ...] = ()


def board_of(card: GpuCard) -> Board:
    """Board of a known GPU, from its file."""
    v = card.values
    steps = round((v["sm_clock_max"] - v["sm_clock_min"]) / v["sm_clock_step"])
    clocks = (v["sm_clock_min"] + i * v["sm_clock_step"] for i in range(steps + 1))
    return Board(
        name=card.name,
        l2=v["l2_capacity"],
        memory=FREE * v["dram_capacity"],
        dtypes=tuple(x for x in TYPES if v[f"tensor_flop_per_cycle_{x}"] > 0),
        clocks=tuple(round(clock / MHz) * MHz for clock in clocks),
        limits=(v["power_limit_min"], v["power_limit_max"]),
    )


def unknown_board(name: str, memory: float, l2: float) -> Board:
    """Board of a GPU without a file; its tensor cores are assumed to have the 16-bit
    types and tf32."""
    return Board(name, l2, FREE * memory, ("bf16", "fp16", "tf32"))


def auto_clocks(clocks: Sequence[float]) -> tuple[float, ...]:
    """Clocks of a sweep: evenly spread over what matters, top and bottom first, so
    that an early end leaves a coarser sweep.

    >>> [clock / 1e6 for clock in auto_clocks([100e6 * i for i in range(2, 21)])]
    [2000.0, 700.0, 1400.0, 1100.0, 1800.0, 900.0, 1300.0, 1600.0]
    """
    top = max(clocks)
    low = max(min(clocks), _LOWEST * top)
    even = [low + i * (top - low) / (_SWEPT - 1) for i in range(_SWEPT)]
    order = [even[i] for i in (7, 0, 4, 2, 6, 1, 3, 5)]
    nearest = (min(clocks, key=lambda clock: abs(clock - x)) for x in order)
    return tuple(dict.fromkeys(nearest))


def make_plan(board: Board, options: PlanOptions) -> list[Point]:
    """Plans the points in the order of measuring.

    First the reference kernels (tensor-bound, streaming, resident in the L2), cold and
    warm, then one kernel of every other class, then the references over all clocks and
    limits, then the classes in turn. The same arguments give the same plan.
    """
    kinds = [kind for kind in CLASSES if kind in options.only]
    queues = {kind: _points(kind, board, options) for kind in kinds}
    firsts = {kind: p for kind in kinds if (p := next(queues[kind], None))}
    busy = "tensor" if board.dtypes else "fma"
    references = [firsts[kind] for kind in (busy, "dram", "l2") if kind in firsts]
    swept = _sweep(references, options)
    heads = [p for p in firsts.values() if p not in references]
    begin = 2 * len(references)
    rest = _in_turn(list(queues.values()))
    ordered = itertools.chain(swept[:begin], heads, swept[begin:], rest)
    return list(itertools.islice(_distinct(ordered), options.points))


def within(points: Sequence[Point], seconds: float) -> list[Point]:
    """The first points that fit into `seconds`."""
    spent = itertools.accumulate(point.seconds for point in points)
    return list(points[: sum(end <= seconds for end in spent)])


def _distinct(points: Iterable[Point]) -> Iterator[Point]:
    """Points without repeats: some kernels are of two classes."""
    runs: set[str] = set()
    for point in points:
        run = repr(dataclasses.replace(point, kind="", resident=False))
        if run not in runs:
            runs.add(run)
            yield point


def _points(kind: str, board: Board, options: PlanOptions) -> Iterator[Point]:
    """Warm points of a class at the clocks that the GPU chooses."""
    resident = is_resident(kind)
    for kernel in kernels(kind, board, options.seed):
        sets = copies(kernel, board, resident)
        yield Point(kind, kernel, sets, resident, options.zeros)


def _sweep(references: Sequence[Point], options: PlanOptions) -> list[Point]:
    """The references, cold and then warm: left to the GPU, then in every state."""
    states = [{"clock": clock} for clock in options.clocks]
    states += [{"limit": limit} for limit in options.limits]
    free = 1 if states else _REPEATS
    repeats = [{"repeat": number} for number in range(1, free + 1)]
    starts: tuple[Start, ...] = ("cold", "warm")
    return [
        dataclasses.replace(point, start=start, **state)
        for state in [*repeats, *states]
        for point in references
        for start in starts
    ]


def _in_turn(queues: list[Iterator[Point]]) -> Iterator[Point]:
    """One point of each queue after the other until all are empty."""
    for some in itertools.zip_longest(*queues):
        yield from (point for point in some if point is not None)
