"""`trace_text`: an estimate as a timeline that Perfetto and chrome://tracing open."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from ...estimator import (
    Unrolled,
    kernel_module,
    one_gpu_phases,
    slice_power,
    unroll,
    wait_power,
)
from ...workload import Listing, kernel_name
from .._format import Entries, Entry

_GPU: Final = 1
_HOST: Final = 2
"""Process ids of the trace."""
_STREAM: Final = 1
_LINKS: Final = 2
"""Thread ids: kernels and launches; collectives."""
_ORDER: Final = (
    "Kernels run one after another, in an order taken from how often each is launched, "
    "waits for the host lie spread over a phase; all figures are the model's."
)


def trace_text(
    summary: Entry, kernels: Entries, listings: Sequence[Listing], dram_bandwidth: float
) -> str:
    """Return trace-event JSON of one estimate, times in us.

    Process 1 is the GPU: on its stream (collectives of a plan on a track of their own)
    a slice a phase, in it a slice a pass, in it a slice a launch; and counters of
    power, SM clock and DRAM bandwidth. Passes behind the first `MOST` launches are one
    slice a kernel, whose `launches` says how many it stands for. Process 2 is the host:
    a slice a launch that it dispatches, a mark where a graph begins.

    Arguments:

    - `summary`, `kernels`: those of `summary.single` and `summary.kernel_entries`.
    - `dram_bandwidth`: B/s at the memory clock of the estimate.
    """
    phases = one_gpu_phases(summary)
    slices = unroll(listings, kernels, list(phases.values()))
    events = [
        *_names(summary, kernels),
        *_phases(slices, phases, listings),
        *_kernels(slices, kernels),
        *_host(slices, kernels, listings),
        *_counters(slices, kernels, list(phases.values()), dram_bandwidth),
    ]
    hidden = float(slices.folded_launches.sum())
    return trace_json(
        summary, (), events, launches_not_shown_one_by_one=hidden, note=_ORDER
    )


def trace_json(
    summary: Entry, keys: Sequence[str], events: Sequence[Any], **about: Any
) -> str:
    """Return the text of a trace file: its metadata, also `keys` of the summary, and
    events."""
    names = ("model", "gpu", "phase", "dtype", "grade", *keys)
    totals = ("time_s", "energy_j", "avg_power_w")
    about = {key: summary[key] for key in (*names, *totals)} | about
    about = {"made_by": "diffenergy estimate --trace", **about}
    whole = {"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}
    return json.dumps(whole, allow_nan=False, separators=(",", ":")) + "\n"


def _names(summary: Entry, kernels: Entries) -> Iterator[dict[str, Any]]:
    """Events that name the tracks, the GPU above its host."""
    tracks = {_STREAM: "stream 1"}
    if any(_track(kernel) == _LINKS for kernel in kernels):
        tracks |= {_LINKS: "communication"}
    yield from name_tracks(_GPU, f"GPU {summary['gpu']}", tracks)
    yield from name_tracks(_HOST, "host", {_STREAM: "launches"})


def name_tracks(
    pid: int, process: str, tracks: dict[int, str]
) -> Iterator[dict[str, Any]]:
    """Yield events that name a process and its threads; `pid` is also its position."""
    common = {"ph": "M", "pid": pid, "tid": 1}
    yield {**common, "name": "process_name", "args": {"name": process}}
    for tid, thread in tracks.items():
        about = {**common, "tid": tid, "args": {"name": thread}}
        yield {**about, "name": "thread_name"}
    yield {**common, "name": "process_sort_index", "args": {"sort_index": pid}}


def _phases(
    slices: Unrolled, phases: Entry, listings: Sequence[Listing]
) -> Iterator[dict[str, Any]]:
    """Slices of the phases and, in phases of several passes, of each pass."""
    for number, (name, phase) in enumerate(phases.items()):
        start, end = slices.phases[number]
        args = {key: phase[key] for key in ("energy_j", "avg_power_w", "limited_by")}
        yield slice_event(_GPU, name, "phase", start, end, args)
        in_phase = slices.phase == number
        turns, firsts = np.unique(slices.turn[in_phase], return_index=True)
        if len(turns) < 2:
            continue
        edges = np.append(slices.start[in_phase][firsts], end)
        passes = int(listings[number].passes)
        for turn, a, b in zip(turns.tolist(), edges[:-1], edges[1:], strict=True):
            rest = slices.launches[in_phase][slices.turn[in_phase] == turn].max() > 1
            words = f"passes {turn + 1} to {passes}" if rest else f"pass {turn + 1}"
            yield slice_event(_GPU, words, "pass", a, b, {})


def _kernels(slices: Unrolled, kernels: Entries) -> Iterator[dict[str, Any]]:
    """Slices of the launches on the stream."""
    labels = [(kernel_name(k), kernel_module(k["op"]), _args(k)) for k in kernels]
    columns = (slices.row, slices.launches, slices.start, slices.time)
    for row, launches, start, time in zip(*(x.tolist() for x in columns), strict=True):
        name, kind, args = labels[row]
        if launches != 1:
            name, args = f"{name} x{launches:g}", {**args, "launches": launches}
        track = _track(kernels[row])
        yield slice_event(_GPU, name, kind, start, start + time, args, track)


def _track(kernel: Entry) -> int:
    return _LINKS if kernel["op"] == "collective" else _STREAM


def _args(kernel: Entry) -> dict[str, Any]:
    """Details of a kernel's slice, of one launch."""
    if kernel["time_s"] is None:
        return {}
    return {
        "energy_j": kernel["energy_j"],
        "power_w": round(kernel["energy_j"] / kernel["time_s"], 3),
        "limited_by": kernel["limited_by"],
    }


def _host(
    slices: Unrolled, kernels: Entries, listings: Sequence[Listing]
) -> Iterator[dict[str, Any]]:
    """Slices of host launches; a graph is one launch per pass, of unknown cost."""
    names = [kernel_name(kernel) for kernel in kernels]
    issued = np.flatnonzero(slices.host_time > 0)
    ends = slices.host_start + slices.host_time
    for i in issued.tolist():
        name = f"launch {names[slices.row[i]]}"
        yield slice_event(_HOST, name, "launch", slices.host_start[i], ends[i], {})
    turns = np.diff(slices.turn, prepend=-1) != 0
    firsts = np.flatnonzero(turns | (np.diff(slices.phase, prepend=-1) != 0))
    for i in firsts.tolist():
        if listings[slices.phase[i]].dispatch == "graph":
            yield {
                "ph": "i", "s": "t", "pid": _HOST, "tid": 1, "cat": "launch",
                "name": "graph launch", "ts": microseconds(slices.start[i]),
            }  # fmt: skip


def _counters(
    slices: Unrolled, kernels: Entries, phases: Entries, dram_bandwidth: float
) -> Iterator[dict[str, Any]]:
    """Counters of power, SM clock and DRAM bandwidth at every change."""
    use = [(k["utilization"] or {}).get("dram", 0.0) for k in kernels]
    bandwidth = np.array(use)[slices.row] * dram_bandwidth / 1e9
    clock = np.array([phase["sm_clock_mhz"] for phase in phases])[slices.phase]
    end = slices.start + slices.time
    following = np.append(slices.start[1:], slices.phases[-1, 1])
    waits = following - end > _PICOSECOND
    idle = wait_power(slices, kernels, phases)[slices.phase]
    waits &= np.isfinite(idle)
    at = np.concatenate([slices.start, end[waits]])
    order = np.argsort(at, kind="stable")
    nothing = np.zeros(int(waits.sum()))
    rows = (
        ("power", "W", slice_power(slices, kernels), idle[waits]),
        ("SM clock", "MHz", clock, clock[waits]),
        ("DRAM bandwidth", "GB/s", bandwidth, nothing),
    )
    for name, unit, *parts in rows:
        values = np.round(np.concatenate(parts)[order], 3)
        changed = np.append(True, values[1:] != values[:-1])
        for ts, value in zip(at[order][changed], values[changed], strict=True):
            yield counter(_GPU, name, unit, microseconds(ts), float(value))


def counter(pid: int, name: str, unit: str, at: float, value: float) -> dict[str, Any]:
    """Return an event that sets a counter's value from `at` (us) on."""
    place = {"ph": "C", "pid": pid, "name": f"{name} ({unit})", "ts": at}
    return {**place, "args": {unit: value}}


_PICOSECOND: Final = 1e-12
"""Grid of all times: neighbours share an edge exactly."""


def microseconds(time: float | Float[np.ndarray, ""]) -> float:
    """Convert s to us, rounded to whole picoseconds."""
    return round(float(time) * 1e6, 6)


def slice_event(
    pid: int,
    name: str,
    kind: str,
    start: float,
    end: float,
    args: dict[str, Any],
    tid: int = _STREAM,
) -> dict[str, Any]:
    """Return a slice from `start` to `end` (s)."""
    begin = microseconds(start)
    event = {
        "ph": "X", "pid": pid, "tid": tid, "name": name, "cat": kind,
        "ts": begin, "dur": round(microseconds(end) - begin, 6),
    }  # fmt: skip
    return {**event, "args": args} if args else event
