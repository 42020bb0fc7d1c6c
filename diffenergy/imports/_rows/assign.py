"""Rows of a listing from the launches of a trace, kernel by kernel.

How a row was found: `operator` (the sizes of the call that launched it), `attached`
(its time belongs to the row of another kernel of that call), `model` (its place in the
listing of the model, where no operator launched it), `twin` (name and launch of
a kernel that has an operator), `launch` (elements from grid and block), `name` (class
alone, at its traced time).
"""

import dataclasses
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...workload import Kernel, Listing, normalise_kernel
from .._launches import Launch, Operator, Trace
from . import names, operators, replay, sharing, streams
from .operators import Row, valid

_LAYOUT: Final = re.compile(r"[Nn][Cc][Hh][Ww][Tt]o|[Nn][Hh][Ww][Cc][Tt]o|[Oo]ffsets")
"""Kernels beside a convolution that are none."""


class Match(NamedTuple):
    """Row of a launch and how it was matched; `row`: None where only class and time are
    known; `carrier`: index of the launch whose row includes its time, else its own."""

    kind: str
    row: Row | None
    how: str
    carrier: int


def match_rows(
    trace: Trace, model: str | None = None, listed: replay.Replay | None = None
) -> list[Match]:
    """Match of each launch of a trace.

    `model`: config with the sizes that a serving engine's operators lack; `listed`:
    rows by the listing of the model.
    """
    launches, world = trace.launches, trace.world
    heads = max(
        (sharing.query_heads(x) for x in {y.operator for y in launches if y.operator}),
        default=0,
    )
    matches: list[Match | None] = [None] * len(launches)
    by_call: dict[Any, list[Match]] = {}
    calls: dict[int, list[int]] = defaultdict(list)
    for index, launch in enumerate(launches):
        if launch.operator is not None and launch.call >= 0:
            calls[launch.call].append(index)
    for indices in calls.values():
        group = [launches[i] for i in indices]
        key = tuple((x.name, x.grid, x.block, id(x.operator)) for x in group)
        if key not in by_call:
            by_call[key] = _of_call(group, model, heads, world)
        for i, x in zip(indices, by_call[key], strict=True):
            matches[i] = x._replace(carrier=indices[x.carrier])
    for i, carrier in listed.carriers.items() if listed else ():
        if i != carrier:
            kind = names.kernel_class(launches[i].name)
            matches[i] = Match(kind, None, "attached", carrier)
    for i, row in listed.rows.items() if listed else ():
        matches[i] = Match(names.kernel_class(launches[i].name), row, "model", i)
    twins = _twins(launches, matches)
    alone: dict[Any, Match] = {}
    for index, launch in enumerate(launches):
        if matches[index] is not None:
            continue
        geometry = _geometry(launch)
        if geometry in twins:
            time = launch.duration
            _, row = min(twins[geometry], key=lambda x: abs(x[0] - time))
        elif launch.collective:
            row = _alone(launch, world)
        else:
            if geometry not in alone:
                alone[geometry] = _alone(launch, world)
            row = alone[geometry]
        matches[index] = row._replace(carrier=index)
    return [x for x in matches if x is not None]


def _of_call(
    group: Sequence[Launch], model: str | None, heads: int, world: int
) -> list[Match]:
    """Matches of the kernels of one call; `carrier` counts within the group."""
    operator = group[0].operator
    assert operator is not None
    kinds = [names.kernel_class(launch.name) for launch in group]
    matrix = _matrix_rows(operator, group, kinds, model, heads)
    if matrix:
        first = next(iter(matrix))
        return [
            Match(_kind(kinds[i], matrix[i]), matrix[i], "operator", i)
            if i in matrix
            else Match(kind, None, "attached", first)
            for i, kind in enumerate(kinds)
        ]
    matches = []
    for i, (launch, kind) in enumerate(zip(group, kinds, strict=True)):
        stated = launch.operator or operator  # a kernel's own sizes, where it has some
        row = valid(_row(stated, launch, kind, world, len(group)))
        match = Match(_kind(kind, row), row, "operator", i)
        matches.append(_by_launch(launch, kind, i) if row is None else match)
    return _reduced_once(matches)


def _reduced_once(matches: Sequence[Match]) -> list[Match]:
    """Two kernels of one call with one row (a reduction in two passes): the second is
    attached to the first."""
    first: dict[str, int] = {}
    rows = []
    for i, x in enumerate(matches):
        same = first.setdefault(repr(x.row), i) if x.row and x.kind == "norm" else i
        rows.append(x if same == i else Match(x.kind, None, "attached", same))
    return rows


def _matrix_rows(
    operator: Operator,
    group: Sequence[Launch],
    kinds: Sequence[str],
    model: str | None,
    heads: int,
) -> dict[int, Row]:
    """Rows of a matrix operator by the kernel that carries each: the longest one, of a
    backward convolution one for each gradient."""
    base = operators.base_name(operator.name)
    places = [i for i, kind in enumerate(kinds) if _carries_matrix(kind)]
    rule = operators.RULES.get(base)
    is_sum = lambda i: "splitKreduce" in group[i].name  # noqa: E731
    order = sorted(
        places or range(len(group)), key=lambda i: (is_sum(i), -group[i].duration)
    )
    longest = order[0]
    name = group[longest].name
    if rule is not None:
        row = valid(rule(operator, name))
        if row is not None and base in operators.BACKWARD_PARTS:
            return _gradients(row, group, order, operators.BACKWARD_PARTS[base])
        return {} if row is None else {longest: row}
    row = sharing.experts_row(operator, name, model, heads)
    if row is None and "attention" in kinds:
        row = sharing.packed_attention_row(operator, name, model)
    row = valid(row)
    return {} if row is None else {longest: row}


def _gradients(
    row: Row, group: Sequence[Launch], order: Sequence[int], parts: Mapping[str, str]
) -> dict[int, Row]:
    """A row for each gradient: by the name of its kernel, the longest ones first; those
    that no name tells apart are as the forward row, of the same FLOP."""
    gradients: dict[int, Row] = {}
    for op, pattern in parts.items():
        free = (i for i in order if i not in gradients)
        place = next((i for i in free if re.search(pattern, group[i].name)), None)
        if place is not None:
            turned = {**row, "op": op} if row["op"] == "conv2d" else row
            gradients[place] = valid(turned) or row
    rest = [
        i for i in order if i not in gradients and not _LAYOUT.search(group[i].name)
    ]
    for place in rest[: len(parts) - len(gradients)]:
        gradients[place] = row
    return dict(sorted(gradients.items()))


def _row(
    operator: Operator, launch: Launch, kind: str, world: int, kernels: int
) -> Row | None:
    """Row of a kernel that no matrix operator launched, one of `kernels` of a call."""
    if kind == "collective":
        return sharing.collective_row(launch, world)
    if streams.is_region(operator, launch.name):
        return None
    if kernels > 1 and streams.is_foreign(operator):
        return None
    listed = operators.base_name(operator.name) in streams.RULES
    if _carries_matrix(kind) and not listed:
        return None
    return streams.stream_row(operator, launch)


_Twins = dict[Any, list[tuple[float, Match]]]


def _twins(launches: Sequence[Launch], matches: Sequence[Match | None]) -> _Twins:
    """By name and launch: rows of kernels that have an operator, with their mean time.

    Persistent kernels of several shapes share a launch.
    """
    times: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[str, Match] = {}
    for launch, x in zip(launches, matches, strict=True):
        if x is not None and x.row is not None and launch.grid:
            if x.kind == "collective":  # equal launches move messages of any size
                continue
            key = repr(x.row)
            rows.setdefault(key, x._replace(how="twin"))
            times[_geometry(launch)][key].append(launch.duration)
    return {
        geometry: [(sum(t) / len(t), rows[key]) for key, t in several.items()]
        for geometry, several in times.items()
    }


def _geometry(launch: Launch) -> tuple[Any, ...]:
    return launch.name, launch.grid, launch.block, launch.shared_memory


def _alone(launch: Launch, world: int) -> Match:
    """Match of a kernel without an operator and without a twin."""
    kind = names.kernel_class(launch.name)
    if kind == "collective":
        row = valid(sharing.collective_row(launch, world))
        return Match(kind, row, "name", 0)
    return _by_launch(launch, kind, 0)


def _by_launch(launch: Launch, kind: str, place: int) -> Match:
    """Match of a kernel by its grid and block, else by its name."""
    row = valid(streams.launched_row(launch))
    return Match(_kind(kind, row), row, "launch" if row else "name", place)


def _kind(named: str, row: Row | None) -> str:
    """Class by the kernel's name; where that is unknown, by its row."""
    if named != names.UNKNOWN_CLASS or row is None:
        return named
    from ...kernels import trace_class  # the kernel classes load JAX

    return trace_class(row["op"])


def _carries_matrix(kind: str) -> bool:
    """Whether kernels of a class carry the row of a matrix operator."""
    from ...kernels import trace_classes  # the kernel classes load JAX

    return kind != names.UNKNOWN_CLASS and trace_classes()[kind].matrix


# --- Launches with their rows -> a listing of one GPU: equal rows are one, each with
# what the trace says of its time.

_HOW: Final = ("operator", "model", "twin", "launch", "name")
"""How rows are matched, the surest first; a row has the surest of its launches."""


@dataclasses.dataclass
class _Rows:
    """Launches of one row."""

    kernel: Kernel
    launch: Launch
    how: str
    times: list[tuple[float, int]] = dataclasses.field(default_factory=list)


def listing_of(
    name: str, trace: Trace, matches: Sequence[Match], device: int, mode: str | None
) -> Listing:
    """Listing of the launches on one device, rows in order of first appearance.

    A row without shape is `traced`, at its mean time: its launches add up to what was
    traced.
    """
    totals: dict[int, float] = defaultdict(float)  # us with what is attached
    for launch, x in zip(trace.launches, matches, strict=True):
        totals[x.carrier] += launch.duration
    least = _least_times(trace.launches, matches)
    rows: dict[Any, _Rows] = {}
    kernels: dict[int, Kernel] = {}
    equal: dict[str, Kernel] = {}
    for index, (launch, x) in enumerate(zip(trace.launches, matches, strict=True)):
        if launch.device != device or x.carrier != index:
            continue
        kernel: Kernel = {"op": "traced", "class": x.kind}
        if x.row is not None:
            if id(x.row) not in kernels:
                kernels[id(x.row)] = equal.setdefault(repr(x.row), x.row)
            kernel = kernels[id(x.row)]
        key = (id(kernel) if x.row else x.kind, launch.name)
        row = rows.setdefault(key, _Rows(kernel, launch, x.how))
        row.how = min(row.how, x.how, key=_HOW.index)
        row.times.append((totals[index], launch.times))
    merged = [_listed_row(x, least.get(repr(x.kernel))) for x in rows.values()]
    return Listing(name, mode=mode, kernels=tuple(merged))


def _least_times(
    launches: Sequence[Launch], matches: Sequence[Match]
) -> dict[str, float]:
    """Least time of equal collectives over ranks and repetitions (us), by their row:
    the rest of the others' time is waiting for the last rank to come."""
    least: dict[str, float] = {}
    for launch, x in zip(launches, matches, strict=True):
        if x.row is not None and x.kind == "collective":
            key = repr(x.row)
            least[key] = min(least.get(key, launch.duration), launch.duration)
    return least


def _listed_row(row: _Rows, transfer: float | None) -> Kernel:
    """The row with its count and its times in the trace; `transfer`: time of a
    collective without waiting (us)."""
    count = sum(n for _, n in row.times)
    total = sum(time * n for time, n in row.times)
    median = statistics.median(time for time, _ in row.times)
    kernel = dict(row.kernel)
    if kernel["op"] == "traced":
        raw = kernel | {"traced_us": total / count, "count": count}
        kernel = normalise_kernel(raw, "a traced kernel")
        median = kernel["traced_us"]
    wait = {}
    if transfer is not None:
        wait = {"wait_us": round(max(total - transfer * count, 0.0), 4)}
        median, total = transfer, transfer * count
    return {
        **kernel,
        "count": count,
        "traced_us": round(float(median), 4),  # to a tenth of a nanosecond
        "traced_total_us": round(float(total), 4),
        **wait,
        "stream": row.launch.stream,
        "kernel": names.short_name(row.launch.name),
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
