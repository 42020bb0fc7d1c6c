"""`step_trace_text`: a training step on many GPUs as a timeline for Perfetto."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...plans import EXCHANGE_AXES, SLICE_KINDS, Timeline
from .._format import Entry
from .steps import slice_name
from .trace import counter, microseconds, named, slice_event, trace_json

_COMPUTE: Final = 1
_COMMUNICATION: Final = 2
"""Threads of a stage."""
_LEAST: Final = 1e-9
"""Share of the step below which a gap or an exchange is left out."""
_NOTE: Final = (
    "One GPU stands for those of its stage. Exchanges that nothing hides follow the "
    "computation that they belong to, hidden ones lie beside it, one after another and "
    "shortened where they take longer than it; all figures are the model's."
)


def step_trace_text(summary: Entry, found: Timeline) -> str:
    """Trace-event JSON of a training step, times in us.

    A process a stage, with two tracks: `compute`, a slice for each micro-batch, pass
    and virtual stage, for what replicas exchange late, the optimizer and what a step
    takes beyond them, and between them `bubble`s; `communication`, exchanges by axis,
    of category `hidden` or `exposed`; and a counter of a GPU's power. One more process
    has the power of all GPUs.
    """
    events = [*_names(summary, found), *_counters(found)]
    for stage in range(found.stages):
        own = found.of_stage(stage)
        for i in own.tolist():
            events += _computed(found, i)
            events += _exchanged(found, i)
        events += _bubbles(found, stage, own)
    return trace_json(summary, ("plan", "num_gpus", "global_batch"), events, note=_NOTE)


def _names(summary: Entry, found: Timeline) -> Iterator[dict[str, Any]]:
    for stage in range(found.stages):
        layers = summary["stages"][stage]["layers"]
        words = f"stage {stage}: {layers} layers on {found.abreast} GPUs"
        tracks = {_COMPUTE: "compute", _COMMUNICATION: "communication"}
        yield from named(stage + 1, words, tracks)
    yield from named(found.stages + 1, f"all {summary['num_gpus']} GPUs", {})


def _computed(found: Timeline, i: int) -> Iterator[dict[str, Any]]:
    """What a slice computes; all of one without exchanges."""
    start, end = float(found.start[i]), float(found.end[i])
    until = start + float(found.work[i])
    if not found.exposed[i].any():
        until = end
    if until <= start:
        return
    args: dict[str, Any] = {"power_w": round(float(found.power[i]), 3)}
    if found.batch[i] >= 0:
        args["micro_batch"] = int(found.batch[i]) + 1
        args["virtual_stage"] = int(found.chunk[i]) + 1
    pid, kind = int(found.stage[i]) + 1, SLICE_KINDS[found.kind[i]]
    yield slice_event(pid, slice_name(found, i), kind, start, until, args)


def _exchanged(found: Timeline, i: int) -> Iterator[dict[str, Any]]:
    """Exchanges of a slice: hidden ones beside its computation, the others behind."""
    start, work = float(found.start[i]), float(found.work[i])
    hidden = found.hidden[i]
    room = min(1.0, work / hidden.sum()) if hidden.any() else 1.0
    pid = int(found.stage[i]) + 1
    least = _LEAST * found.time
    for kind, begin, seconds, scale in (
        ("hidden", start, hidden, room),
        ("exposed", start + work, found.exposed[i], 1.0),
    ):
        for axis, takes in zip(EXCHANGE_AXES, seconds.tolist(), strict=True):
            if takes <= least:
                continue
            end, name = begin + takes * scale, f"{axis} {kind}"
            args = {"seconds": takes, "of": slice_name(found, i)}
            yield slice_event(pid, name, kind, begin, end, args, _COMMUNICATION)
            begin = end


def _bubbles(found: Timeline, stage: int, own: np.ndarray) -> Iterator[dict[str, Any]]:
    """Where a stage waits for others."""
    begins = np.append(0.0, found.end[own])
    ends = np.append(found.start[own], found.time)
    args = {"power_w": round(float(found.waiting[stage]), 3)}
    for start, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if end - start > _LEAST * found.time:
            yield slice_event(stage + 1, "bubble", "bubble", start, end, args)


def _counters(found: Timeline) -> Iterator[dict[str, Any]]:
    """Power of a GPU of each stage, and of all GPUs."""
    for stage in (*range(found.stages), None):
        pid = found.stages + 1 if stage is None else stage + 1
        name = "power of all" if stage is None else "power of a GPU"
        edges, watts = found.curve(stage)
        for at, value in zip(edges.tolist(), watts.tolist(), strict=True):
            yield counter(pid, name, "W", microseconds(at), round(value, 3))
