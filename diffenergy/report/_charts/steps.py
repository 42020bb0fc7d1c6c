"""A training step on many GPUs over time: slices of every stage, and power."""

from typing import Final

import numpy as np

from ...charts import Axis, Boxes, Chart, Line, Mark, Panel, Reading, Rule, stacked
from ...plans import EXCHANGE_AXES, SLICE_KINDS, Timeline
from .._format import Entry, percent
from .._page.markup import si
from .._tables.lines import title_line
from .._traces.steps import WORDS, slice_name

_COLOURS: Final = (0, 2, 5, 3, 4)
"""Colours of `SLICE_KINDS`."""
MOST: Final = 6000
"""Maximum number of slices that a page draws."""
_ROW: Final = (12.0, 26.0)
"""Minimum and maximum height of a stage's row (px)."""
_TALL: Final = 420.0
"""Height of all stages (px), within the limits of `_ROW`."""
_HIGH: Final = 0.86
"""Height of a slice, as a share of a row."""
_PALER: Final = 0.55
"""How much the last virtual stage of a GPU is faded."""
_HIT: Final = 1 / 45
"""Share of the step that one tooltip point of a slice covers."""
_POINTS: Final = 8


def step_chart(summary: Entry, timeline: Timeline) -> Chart:
    """Return slices of every stage, power of all GPUs and of one GPU of the busiest
    stage as one chart."""
    title = f"{title_line(summary)} ({summary['grade']})"
    return stacked(title, list(step_charts(summary, timeline, np.inf).values()))


def step_charts(
    summary: Entry, timeline: Timeline | None, most: float = MOST
) -> dict[str, Chart]:
    """Return the charts of a step by name, or one that says why there is none (no
    timeline, or more than `most` slices)."""
    if timeline is None or len(timeline.stage) > most:
        why = f"the step has more than {most:g} parts of stages."
        return {"stages": Chart("Stages", [], why)}
    return {
        "stages": _stages(summary, timeline),
        "power": _power(summary, timeline),
        "power-of-one": _power_of_one(summary, timeline),
    }


def _stages(summary: Entry, timeline: Timeline) -> Chart:
    stages, everything = timeline.stages, np.arange(len(timeline.stage))
    row = min(max(_TALL / stages, _ROW[0]), _ROW[1])
    places = (
        [x - _HIGH / 2 for x in range(stages)],
        [x + _HIGH / 2 for x in range(stages)],
    )
    whole = [timeline.time] * stages
    waits = Boxes([0.0] * stages, whole, *places, "", "light")
    marks: list[Mark] = [waits]
    several = max(int(timeline.chunk.max()), 1)
    for kind in np.unique(timeline.kind).tolist():
        mine = everything[timeline.kind == kind]
        middle = timeline.stage[mine]
        marks.append(
            Boxes(
                timeline.start[mine].tolist(), timeline.end[mine].tolist(),
                (middle - _HIGH / 2).tolist(), (middle + _HIGH / 2).tolist(),
                WORDS[SLICE_KINDS[kind]], _COLOURS[kind],
                (_PALER * timeline.chunk[mine] / several).tolist(), edged=True,
                texts=["" if x < 0 else str(x + 1) for x in timeline.batch[mine]],
            )
        )  # fmt: skip
    marks.append(Boxes((), (), (), (), "waiting for other stages", "light"))
    caption = (
        f"A row is a stage, one of its {timeline.abreast} GPUs; a slice is what it "
        "runs of one micro-batch, exchanges that nothing hides included. Waiting for "
        "stragglers and the like, which no part explains, slows all slices alike."
    )
    if timeline.chunk.max():
        caption += " Paler slices are of later virtual stages."
    readings = []
    length = np.round((timeline.end - timeline.start) / timeline.time / _HIT)
    for i in np.lexsort((timeline.start, timeline.stage)).tolist():
        number, text = int(np.clip(length[i], 1, _POINTS)), _text(timeline, i)
        start, long = (
            float(timeline.start[i]),
            float(timeline.end[i] - timeline.start[i]),
        )
        readings += [
            Reading(start + long * (k + 0.5) / number, int(timeline.stage[i]), text)
            for k in range(number)
        ]
    bubble, exposed = summary["bubble"], summary["exposed_communication"]
    lost = f"bubble {percent(bubble)}, exposed exchange {percent(exposed)}"
    shades = " (paler: later virtual stages)" if timeline.chunk.max() else ""
    names = Axis(names=[f"stage {x}" for x in range(stages)])
    title = f"Stages{shades}: {lost}"
    panel = Panel(_time(timeline), names, marks, readings, title, height=row * stages)
    return Chart("Stages", [panel], caption)


def _text(timeline: Timeline, i: int) -> str:
    """Tooltip of a slice: its duration, exposed exchanges and power."""
    seconds = float(timeline.end[i] - timeline.start[i])
    spent = [
        f"{si(x, 's')} {axis} exposed"
        for axis, x in zip(EXCHANGE_AXES, timeline.exposed[i].tolist(), strict=True)
        if x > 0
    ]
    among = f" (of it {', '.join(spent)})" if spent else ""
    return (
        f"stage {timeline.stage[i]}, {slice_name(timeline, i)}: "
        f"{si(seconds, 's')}{among}, {timeline.power[i]:.0f} W a GPU"
    )


def _time(timeline: Timeline) -> Axis:
    return Axis("time", "s", zero=True, high=timeline.time)


def _power(summary: Entry, timeline: Timeline) -> Chart:
    edges, watts = (x.tolist() for x in timeline.curve())
    gpus = summary["num_gpus"]
    mean, peak = (si(summary[key], "W") for key in ("power_total_w", "peak_power_w"))
    spans = list(zip(edges[:-1], edges[1:], watts, strict=False))
    starts, ends, heights = zip(*spans, strict=True)
    marks = [
        Boxes(starts, ends, [0.0] * len(spans), heights, "", 5),
        Rule(summary["power_total_w"], f"mean: {mean}"),
    ]
    readings = [
        Reading(x, y, f"from {si(x, 's')} on: {si(y, 'W')}, {y / gpus:.0f} W a GPU")
        for x, _, y in spans
    ]
    y, title = Axis("power", "W", zero=True), f"Power of all {gpus} GPUs"
    panel = Panel(_time(timeline), y, marks, readings, spans=True, height=150.0)
    caption = (
        f"Idle and leakage power included: {mean} on average, {peak} at most, which "
        "feeds and breakers see."
    )
    return Chart(title, [panel], caption)


def _power_of_one(summary: Entry, timeline: Timeline) -> Chart:
    """Chart of the power (W) of a GPU of the busiest stage, with its limit."""
    busy = (timeline.end - timeline.start) * (timeline.batch >= 0)
    stage = int(np.bincount(timeline.stage, busy, timeline.stages).argmax())
    edges, watts = timeline.curve(stage)
    mean = float(np.diff(edges) @ watts[:-1]) / timeline.time
    limit = summary["power_limit_w"]
    marks = [
        Line(edges.tolist(), watts.tolist(), "", "ink", 1.5, step=True),
        Rule(limit, f"its limit: {limit:.0f} W", colour=1),
    ]
    y = Axis("power", "W", zero=True)
    panel = Panel(_time(timeline), y, marks, spans=True, height=150.0)
    title = f"A GPU of stage {stage}: {mean:.0f} W on average"
    return Chart(title, [panel], "Of the stage whose GPUs are busy for longest.")
