"""A training step on many GPUs over time: slices of every stage, power of all GPUs."""

import dataclasses
import functools
from typing import Final

import numpy as np

from ....plans import AXES, Timeline
from ....plans._steps.timeline import KINDS
from ..._format import Entry
from ..._traces.steps import WORDS, slice_name
from ..markup import si
from .figures import (
    WIDE,
    Axis,
    Chart,
    Drawn,
    Panel,
    drawing,
    figure,
    legend,
    line,
    linear,
    swatch,
    unavailable,
)

_COLOURS: Final = ("c0", "c2", "c5", "c3", "c4", "c7")
"""Classes of `KINDS`."""
_MOST: Final = 6000
"""Slices that are drawn one by one."""
_ROW: Final = (12.0, 26.0)
"""Least and largest height of a stage, px."""
_TALL: Final = 420.0
"""px of all stages, as far as rows can be so high."""
_FREE: Final = 0.12
"""Share of a row between two stages."""
_PALER: Final = 0.55
"""How far the last virtual stage of a GPU fades."""
_EDGED: Final = 4.0
"""px of a slice that has room for an edge."""
_HIT: Final = 24.0
"""px of a slice that one point of it is hit by, and most points of a slice."""
_POINTS: Final = 8


def step_charts(summary: Entry, found: Timeline | None) -> str:
    """Both charts, or why there is none."""
    if found is None or len(found.stage) > _MOST:
        why = f"the step has more than {_MOST} parts of stages."
        return unavailable("step-stages", "Stages", why)
    return figure(_stages(found)) + figure(_power(summary, found))


def _stages(found: Timeline) -> Chart:
    kinds = np.unique(found.kind).tolist()
    entries = [(swatch(_COLOURS[i]), WORDS[KINDS[i]]) for i in kinds]
    entries.append((swatch("wait"), "waiting for other stages"))
    caption = (
        f"A row is a stage, one of its {found.abreast} GPUs; a slice is what it runs "
        "of one micro-batch, exchanges that nothing hides included. The last slice is "
        "what steps take beyond their parts, such as waiting for stragglers."
    )
    if found.chunk.max():
        caption += " Paler slices are of later virtual stages."
    order = np.lexsort((found.start, found.stage)).tolist()
    length = (found.end - found.start) / found.time * WIDE / _HIT
    points = np.clip(np.round(length), 1, _POINTS).astype(int)
    return Chart(
        "step-stages",
        "Stages",
        caption,
        functools.partial(_draw_stages, found, order, points),
        [_text(found, i) for i in order],
        which=np.repeat(np.arange(len(order)), points[order]).tolist(),
        width=WIDE,
        legend=legend(entries),
    )


def _text(found: Timeline, i: int) -> str:
    """What a slice is, how long, how much of it are exchanges."""
    seconds = float(found.end[i] - found.start[i])
    spent = [
        f"{si(x, 's')} {axis} exposed"
        for axis, x in zip(AXES, found.exposed[i].tolist(), strict=True)
        if x > 0
    ]
    among = f" (of it {', '.join(spent)})" if spent else ""
    return (
        f"stage {found.stage[i]}, {slice_name(found, i)}: {si(seconds, 's')}{among}, "
        f"{found.power[i]:.0f} W a GPU"
    )


def _time(found: Timeline, shown: str) -> Axis:
    few = 8 if shown == "wide" else 4
    axis = linear([0.0, found.time], "time", "s", few, zero=True)
    return dataclasses.replace(axis, high=found.time)


def _draw_stages(
    found: Timeline, order: list[int], points: np.ndarray, width: float, shown: str
) -> Drawn:
    least, most = _ROW
    row = min(max(_TALL / found.stages, least), most)
    inside = row * found.stages
    every = int(np.ceil(13.0 / row))
    marks = range(0, found.stages, every)
    # from top to bottom
    ticks = tuple((found.stages - 0.5 - i, str(i)) for i in marks)
    rows = Axis(0.0, float(found.stages), ticks, "stage")
    panel = Panel(46.0, 30.0, width - 60, inside, _time(found, shown), rows)
    frame = dataclasses.replace(panel, y=dataclasses.replace(rows)).frame()
    shapes: dict[tuple[int, int], list[str]] = {}
    places: list[tuple[float, float]] = []
    half = row * (1 - _FREE) / 2
    starts, ends = found.start.tolist(), found.end.tolist()
    for i in order:
        left, middle = panel.at(starts[i], found.stages - 0.5 - int(found.stage[i]))
        right = panel.at(ends[i], 0.0)[0]
        key = int(found.kind[i]), int(found.chunk[i])
        shapes.setdefault(key, []).append(
            f"M{left:.2f} {middle - half:.1f}H{right:.2f}V{middle + half:.1f}"
            f"H{left:.2f}Z"
        )
        number = int(points[i])
        steps = ((k + 0.5) / number for k in range(number))
        places += [(left + (right - left) * x, middle) for x in steps]
    several = max(int(found.chunk.max()), 1)
    across = np.median(found.end - found.start) / found.time * panel.width
    look = "step" if across > _EDGED else ""
    paths = [
        f'<path d="{"".join(parts)}" class="{look} {_COLOURS[kind]}" '
        f'fill-opacity="{1 - _PALER * chunk / several:.2f}"/>'
        for (kind, chunk), parts in shapes.items()
    ]
    empty = []
    for stage in range(found.stages):
        middle = panel.at(0.0, found.stages - 0.5 - stage)[1]
        empty.append(
            f'<rect x="{panel.left:.1f}" y="{middle - half:.1f}" '
            f'width="{panel.width:.1f}" height="{2 * half:.1f}" class="wait"/>'
        )
    svg = drawing(width, inside + 78, frame, *empty, *paths, shown=shown)
    return Drawn(svg, places)


def _power(summary: Entry, found: Timeline) -> Chart:
    edges, watts = found.curve()
    mean, peak = (si(summary[key], "W") for key in ("power_total_w", "peak_power_w"))
    caption = (
        f"Idle and leakage power included: {mean} on average, {peak} at most, which "
        "feeds and breakers see."
    )
    texts = [
        f"from {si(at, 's')} on: {si(value, 'W')}, {value / summary['num_gpus']:.0f} W "
        "a GPU"
        for at, value in zip(edges.tolist(), watts.tolist(), strict=True)
    ][:-1]
    return Chart(
        "step-power",
        f"Power of all {summary['num_gpus']} GPUs",
        caption,
        functools.partial(_draw_power, summary, found, edges, watts),
        texts,
        read="span",
        width=WIDE,
    )


def _draw_power(
    summary: Entry,
    found: Timeline,
    edges: np.ndarray,
    watts: np.ndarray,
    width: float,
    shown: str,
) -> Drawn:
    height = 240.0 if shown == "wide" else 220.0
    top = float(watts.max())
    power = linear([0.0, top], "power", "W", 5, zero=True)
    panel = Panel(46.0, 34.0, width - 60, height - 80, _time(found, shown), power)
    base = panel.top + panel.height
    words, points = [f"M{panel.left:.2f} {base:.1f}"], []
    pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), watts.tolist(), strict=False)
    for start, end, value in pairs:
        left, high = panel.at(start, value)
        words.append(f"V{high:.1f}H{panel.at(end, value)[0]:.2f}")
        points.append((left, high))
    path = f'<path d="{"".join(words)}V{base:.1f}Z" class="slice c5"/>'
    mean = panel.at(0.0, summary["power_total_w"])[1]
    rule = line(panel.left, mean, panel.left + panel.width, mean, "limit")
    label = panel.note(f"- - -  mean: {si(summary['power_total_w'], 'W')}")
    svg = drawing(width, height, panel.frame(), path, rule, label, shown=shown)
    return Drawn(svg, points)
