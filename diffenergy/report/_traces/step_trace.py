"""`step_trace_text`: a training step on many GPUs as a timeline for Perfetto."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...nodes import Site
from ...plans import EXCHANGE_AXES, SLICE_KINDS, Timeline
from ...power_time import PowerCurve
from .._format import Entry
from .steps import slice_name
from .trace import counter, microseconds, name_tracks, slice_event, trace_json

_COMPUTE: Final = 1
_COMMUNICATION: Final = 2
"""Thread ids of a stage."""
_LEAST: Final = 1e-9
"""Share of the step below which a gap or an exchange is left out."""
_NOTE: Final = (
    "One GPU stands for those of its stage. Exchanges that nothing hides follow the "
    "computation that they belong to, hidden ones lie beside it, one after another and "
    "shortened where they take longer than it; all figures are the model's."
)


def step_trace_text(
    summary: Entry, timeline: Timeline, site: Site | None = None
) -> str:
    """Return trace-event JSON of a training step, times in us.

    A process a stage, with two tracks: `compute`, a slice for each micro-batch, pass
    and virtual stage, for what replicas exchange late, the optimizer and what a step
    takes beyond them, and between them `bubble`s; `communication`, exchanges by axis,
    of category `hidden` or `exposed`; and a counter of a GPU's power. One more process
    has the power of all GPUs and, of a `site`, of their nodes (DC) and at the wall.
    """
    gpus = summary["num_gpus"]
    events = [*_names(summary, timeline), *_counters(timeline, site, gpus)]
    for stage in range(timeline.stages):
        slices = timeline.of_stage(stage)
        for i in slices.tolist():
            events += _computed(timeline, i)
            events += _exchanged(timeline, i)
        events += _bubbles(timeline, stage, slices)
    return trace_json(summary, ("plan", "num_gpus", "global_batch"), events, note=_NOTE)


def _names(summary: Entry, timeline: Timeline) -> Iterator[dict[str, Any]]:
    for stage in range(timeline.stages):
        layers = summary["stages"][stage]["layers"]
        words = f"stage {stage}: {layers} layers on {timeline.abreast} GPUs"
        tracks = {_COMPUTE: "compute", _COMMUNICATION: "communication"}
        yield from name_tracks(stage + 1, words, tracks)
    yield from name_tracks(timeline.stages + 1, f"all {summary['num_gpus']} GPUs", {})


def _computed(timeline: Timeline, i: int) -> Iterator[dict[str, Any]]:
    """Slice of the computation; the whole slice if it has no exposed exchanges."""
    start, end = float(timeline.start[i]), float(timeline.end[i])
    until = start + float(timeline.work[i])
    if not timeline.exposed[i].any():
        until = end
    if until <= start:
        return
    args: dict[str, Any] = {"power_w": round(float(timeline.power[i]), 3)}
    if timeline.batch[i] >= 0:
        args["micro_batch"] = int(timeline.batch[i]) + 1
        args["virtual_stage"] = int(timeline.chunk[i]) + 1
    pid, kind = int(timeline.stage[i]) + 1, SLICE_KINDS[timeline.kind[i]]
    yield slice_event(pid, slice_name(timeline, i), kind, start, until, args)


def _exchanged(timeline: Timeline, i: int) -> Iterator[dict[str, Any]]:
    """Slices of exchanges: hidden ones beside the computation, exposed ones after
    it."""
    start, work = float(timeline.start[i]), float(timeline.work[i])
    hidden = timeline.hidden[i]
    room = min(1.0, work / hidden.sum()) if hidden.any() else 1.0
    pid = int(timeline.stage[i]) + 1
    least = _LEAST * timeline.time
    for kind, begin, seconds, scale in (
        ("hidden", start, hidden, room),
        ("exposed", start + work, timeline.exposed[i], 1.0),
    ):
        for axis, takes in zip(EXCHANGE_AXES, seconds.tolist(), strict=True):
            if takes <= least:
                continue
            end, name = begin + takes * scale, f"{axis} {kind}"
            args = {"seconds": takes, "of": slice_name(timeline, i)}
            yield slice_event(pid, name, kind, begin, end, args, _COMMUNICATION)
            begin = end


def _bubbles(
    timeline: Timeline, stage: int, slices: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Slices in which a stage waits for others."""
    begins = np.append(0.0, timeline.end[slices])
    ends = np.append(timeline.start[slices], timeline.time)
    args = {"power_w": round(float(timeline.waiting[stage]), 3)}
    for start, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if end - start > _LEAST * timeline.time:
            yield slice_event(stage + 1, "bubble", "bubble", start, end, args)


def _counters(
    timeline: Timeline, site: Site | None, gpus: int
) -> Iterator[dict[str, Any]]:
    """Counters of the power of a GPU of each stage, of all GPUs, and beyond them
    (W)."""
    if site is not None:
        edges, watts = timeline.curve()
        beyond = site.curves(PowerCurve(edges, watts[:-1], periodic=True), gpus)
        for name in ("node", "wall"):
            curve = beyond[name]
            for at, value in zip(curve.edges[:-1], curve.watts, strict=True):
                pid, rounded = timeline.stages + 1, round(float(value), 3)
                yield counter(pid, name, "W", microseconds(at), rounded)
    for stage in (*range(timeline.stages), None):
        pid = timeline.stages + 1 if stage is None else stage + 1
        name = "power of all" if stage is None else "power of a GPU"
        edges, watts = timeline.curve(stage)
        for at, value in zip(edges.tolist(), watts.tolist(), strict=True):
            yield counter(pid, name, "W", microseconds(at), round(value, 3))
