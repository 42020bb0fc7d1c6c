"""Picture of a training step on many GPUs: what each stage runs when, and power."""

from typing import TYPE_CHECKING, Final

import numpy as np

from ...plans import SLICE_KINDS, Timeline
from .._format import Entry, percent, si
from .._tables.lines import title_line
from .._traces.steps import WORDS
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS: Final = (
    style.BLUE,
    style.GREEN,
    style.SKY,
    style.ORANGE,
    style.PURPLE,
    style.GREY,
)
"""Of `SLICE_KINDS`."""
_HIGH: Final = 0.84
"""Height of a slice in rows."""
_PALER: Final = 0.55
"""How far the last virtual stage of a GPU is from its colour to white."""
_NUMBERED: Final = 0.19
"""Inches of a slice that has room for the number of its micro-batch."""
_EDGED: Final = 0.05
"""Inches of a slice that has room for a white edge."""
_ACROSS: Final = 6.4
"""Inches of the time axis, about."""
_ROWS: Final = (0.13, 0.34)
"""Least and largest height of a row, inches."""
_TALL: Final = 5.4
"""Inches of all rows, as far as rows can be so high."""


@style.house()
def step_figure(summary: Entry, found: Timeline) -> "Figure":
    """Three panels over time: slices of every stage; power of all GPUs; power of a GPU
    of the busiest stage."""
    low, high = _ROWS
    row = min(max(_TALL / found.stages, low), high)
    gantt = 0.75 + row * found.stages
    figure = style.canvas(gantt + 4.3)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=[gantt, 1.5, 1.5])
    stages, whole, one = panels.tolist()
    _draw_stages(summary, found, stages, row)
    _draw_power(summary, found, whole, one)
    one.set_xlim(0.0, found.time)
    style.name_axis(one.xaxis, "time", "s")
    style.headline(figure, f"{title_line(summary)} ({summary['grade']})")
    return figure


def _draw_stages(summary: Entry, found: Timeline, axes: "Axes", height: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    inches = (found.end - found.start) / found.time * _ACROSS
    runs = found.batch >= 0
    several = int(found.chunk.max()) or 1
    paler = _PALER * found.chunk / several
    colour = np.array([to_rgb(_COLOURS[i]) for i in range(len(SLICE_KINDS))])[
        found.kind
    ]
    colour = colour + paler[:, None] * (1 - colour)
    edged = bool(np.median(inches[runs]) > _EDGED)
    plain = {"edgecolors": "none", "linewidths": 0.0}
    plain |= {"antialiaseds": False, "snap": False}  # else slits between neighbours
    look = {"edgecolors": "white", "linewidths": 0.5, "snap": True} if edged else plain
    nothing, rows = np.zeros(found.stages), np.arange(found.stages)
    end = nothing + found.time
    style.add_boxes(axes, nothing, end, rows, _HIGH, facecolors=style.LIGHT, **plain)
    shapes = (found.start, found.end, found.stage)
    style.add_boxes(axes, *shapes, _HIGH, facecolors=colour, **look)
    if np.quantile(inches[runs], 0.1) > _NUMBERED and height > 0.18:
        middle = (found.start + found.end) / 2
        for i in np.flatnonzero(runs):
            axes.text(
                middle[i], found.stage[i], str(found.batch[i] + 1), color="white",
                ha="center", va="center", fontsize=style.SMALL,
            )  # fmt: skip
    style.stage_rows(axes, found.stages, height)
    kinds = np.unique(found.kind).tolist()
    keys = [Patch(color=_COLOURS[i], label=WORDS[SLICE_KINDS[i]]) for i in kinds]
    keys.append(Patch(color=style.LIGHT, label="waiting"))
    axes.legend(
        handles=keys, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(keys),
        frameon=False, borderpad=0.2, borderaxespad=0.0, handlelength=1.0,
        columnspacing=1.0, handletextpad=0.5,
    )  # fmt: skip
    shades = " (paler: later virtual stages)" if found.chunk.max() else ""
    bubble, exposed = summary["bubble"], summary["exposed_communication"]
    lost = f"bubble {percent(bubble)}, exposed exchange {percent(exposed)}"
    axes.set_title(f"Stages{shades}: {lost}", pad=19)


def _draw_power(summary: Entry, found: Timeline, whole: "Axes", one: "Axes") -> None:
    edges, watts = found.curve()
    mean, peak = (si(summary[key], "W") for key in ("power_total_w", "peak_power_w"))
    whole.step(edges, watts, where="post", color=style.BLACK, linewidth=1.2)
    whole.set_ylim(0.0, 1.12 * watts.max())
    gpus = summary["num_gpus"]
    whole.set_title(f"All GPUs ({gpus}): {mean} on average, {peak} at most")
    style.name_axis(whole.yaxis, "power", "W")
    busy = (found.end - found.start) * (found.batch >= 0)
    stage = int(np.bincount(found.stage, busy, found.stages).argmax())
    limit = summary["power_limit_w"]
    edges, watts = found.curve(stage)
    one.step(edges, watts, where="post", color=style.BLACK, linewidth=1.2)
    one.axhline(limit, color=style.VERMILION, linewidth=1.0, linestyle="--")
    one.set_ylim(0.0, 1.12 * max(limit, watts.max()))
    mean = float(np.diff(edges) @ watts[:-1]) / found.time
    one.set_title(
        f"A GPU of stage {stage}: {mean:.0f} W on average (dashed: its limit)"
    )
    style.name_axis(one.yaxis, "power", "W")
