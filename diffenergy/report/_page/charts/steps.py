"""A training step on many GPUs over time: slices of every stage, power of all GPUs."""

from typing import Final

import numpy as np

from ....plans import EXCHANGE_AXES, SLICE_KINDS, Timeline
from ..._format import Entry
from ..._traces.steps import WORDS, slice_name
from ..markup import si
from .figures import (
    NARROW,
    WIDE,
    Axis,
    Drawn,
    Panel,
    figure,
    linear,
    swatch,
    time_axis,
    unavailable,
)

_COLOURS: Final = ("c0", "c2", "c5", "c3", "c4", "c7")
"""Classes of `SLICE_KINDS`."""
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
    return _stages(found) + _power(summary, found)


def _stages(found: Timeline) -> str:
    kinds = np.unique(found.kind).tolist()
    keys = [(swatch(_COLOURS[i]), WORDS[SLICE_KINDS[i]]) for i in kinds]
    keys.append((swatch("wait"), "waiting for other stages"))
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
    return figure(
        "step-stages",
        "Stages",
        caption,
        lambda width: _draw_stages(found, order, points, width),
        [_text(found, i) for i in order],
        which=np.repeat(np.arange(len(order)), points[order]).tolist(),
        keys=keys,
    )


def _text(found: Timeline, i: int) -> str:
    """What a slice is, how long, how much of it are exchanges."""
    seconds = float(found.end[i] - found.start[i])
    spent = [
        f"{si(x, 's')} {axis} exposed"
        for axis, x in zip(EXCHANGE_AXES, found.exposed[i].tolist(), strict=True)
        if x > 0
    ]
    among = f" (of it {', '.join(spent)})" if spent else ""
    return (
        f"stage {found.stage[i]}, {slice_name(found, i)}: {si(seconds, 's')}{among}, "
        f"{found.power[i]:.0f} W a GPU"
    )


def _draw_stages(
    found: Timeline, order: list[int], points: np.ndarray, width: float
) -> Drawn:
    least, most = _ROW
    row = min(max(_TALL / found.stages, least), most)
    inside = row * found.stages
    every = int(np.ceil(13.0 / row))
    marks = range(0, found.stages, every)
    # from top to bottom
    ticks = tuple((found.stages - 0.5 - i, str(i)) for i in marks)
    rows = Axis(0.0, float(found.stages), ticks, "stage")
    panel = Panel(46.0, 30.0, width - 60, inside, time_axis(found.time, width), rows)
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
    return Drawn(inside + 78, [panel.frame(), *empty, *paths], places)


def _power(summary: Entry, found: Timeline) -> str:
    edges, watts = (x.tolist() for x in found.curve())
    mean, peak = (si(summary[key], "W") for key in ("power_total_w", "peak_power_w"))
    spans = list(zip(edges[:-1], edges[1:], watts, strict=False))

    def draw(width: float) -> Drawn:
        height = 220.0 if width == NARROW else 240.0
        power = linear([0.0, max(watts)], "power", "W", 5, zero=True)
        time = time_axis(found.time, width)
        panel = Panel(46.0, 34.0, width - 60, height - 80, time, power)
        base = panel.top + panel.height
        path = f"M{panel.left:.2f} {base:.1f}"
        for _, end, value in spans:
            right, high = panel.at(end, value)
            path += f"V{high:.1f}H{right:.2f}"
        area = f'<path d="{path}V{base:.1f}Z" class="slice c5"/>'
        level = panel.level(summary["power_total_w"], f"mean: {mean}")
        points = [panel.at(start, value) for start, _, value in spans]
        return Drawn(height, [panel.frame(), area, level], points)

    return figure(
        "step-power",
        f"Power of all {summary['num_gpus']} GPUs",
        f"Idle and leakage power included: {mean} on average, {peak} at most, which "
        "feeds and breakers see.",
        draw,
        [
            f"from {si(start, 's')} on: {si(value, 'W')}, "
            f"{value / summary['num_gpus']:.0f} W a GPU"
            for start, _, value in spans
        ],
        read="span",
    )
