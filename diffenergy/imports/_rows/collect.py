"""Launches with their rows -> a listing of one GPU: equal rows are one, each with what
the trace says of its time."""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from ...workload import Kernel, Listing, normalise_kernel
from .._launches import Launch, Trace
from . import names
from .assign import Found

_HOW: Final = ("operator", "twin", "launch", "name")
"""How rows are found, the surest first; a row tells the surest of its launches."""


@dataclasses.dataclass
class _Rows:
    """Launches of one row."""

    kernel: Kernel
    launch: Launch
    how: str
    times: list[tuple[float, int]] = dataclasses.field(default_factory=list)


def listing_of(
    name: str, trace: Trace, found: Sequence[Found], device: int, mode: str | None
) -> Listing:
    """Listing of the launches on one device, rows in order of first appearance.

    A row without shape is `traced`, at its mean time: its launches add up to what was
    traced.
    """
    totals: dict[int, float] = defaultdict(float)  # us with what is attached
    for launch, x in zip(trace.launches, found, strict=True):
        totals[x.carrier] += launch.duration
    rows: dict[Any, _Rows] = {}
    known: dict[int, Kernel] = {}
    equal: dict[str, Kernel] = {}
    for index, (launch, x) in enumerate(zip(trace.launches, found, strict=True)):
        if launch.device != device or x.carrier != index:
            continue
        kernel: Kernel = {"op": "traced", "class": x.kind}
        if x.row is not None:
            if id(x.row) not in known:
                known[id(x.row)] = equal.setdefault(repr(x.row), x.row)
            kernel = known[id(x.row)]
        key = (id(kernel) if x.row else x.kind, launch.name)
        row = rows.setdefault(key, _Rows(kernel, launch, x.how))
        row.how = min(row.how, x.how, key=_HOW.index)
        row.times.append((totals[index], launch.times))
    merged = [_told(row) for row in rows.values()]
    return Listing(name, mode=mode, kernels=tuple(merged))


def _told(row: _Rows) -> Kernel:
    """The row with its count and what the trace says of it."""
    count = sum(n for _, n in row.times)
    total = sum(time * n for time, n in row.times)
    median = statistics.median(time for time, _ in row.times)
    kernel = dict(row.kernel)
    if kernel["op"] == "traced":
        raw = kernel | {"traced_us": total / count, "count": count}
        kernel = normalise_kernel(raw, "a traced kernel")
        median = kernel["traced_us"]
    return {
        **kernel,
        "count": count,
        "traced_us": round(float(median), 4),  # to a tenth of a nanosecond
        "traced_total_us": round(float(total), 4),
        "stream": row.launch.stream,
        "kernel": names.shown(row.launch.name),
        "how": row.how,
    }


def busy_us(launches: Sequence[Launch]) -> float:
    """us in which at least one kernel runs: the union of the intervals on each GPU.

    >>> busy_us([Launch("a", 4.0, 0.0), Launch("b", 4.0, 2.0), Launch("c", 1.0, 9.0)])
    7.0
    """
    ends: dict[int, float] = {}
    busy = 0.0
    for launch in sorted(launches, key=lambda x: x.start):
        end = launch.start + launch.duration
        last = ends.get(launch.device, launch.start)
        busy += max(end - max(last, launch.start), 0.0)
        ends[launch.device] = max(last, end)
    return busy
