"""Picture of clocks per stage: the pipeline before and after, clocks as colour."""

from typing import TYPE_CHECKING, Final

import numpy as np

from .._format import si
from .._views.stage_clocks import line, title_line
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    from ...parallel import StageClocks
    from ...parallel._stage_clocks.result import Replicas

_HIGH: Final = (0.5, 0.88, 0.88)
"""Heights of passes forward, backward and of gradients of weights, in rows."""
_ACROSS: Final = 5.8
"""Inches of the time axis, about."""
_EDGED: Final = 0.05
"""Inches of a pass that has room for a white edge."""
_ROWS: Final = (0.1, 0.24)
"""Least and largest height of a row, inches."""
_TALL: Final = 2.2
"""Inches of all rows, as far as rows can be so high."""


@style.house()
def stage_clocks_figure(result: "StageClocks") -> "Figure":
    """Two panels of what each stage runs when, low boxes forward and high ones
    backward, and one of the power of all GPUs of the replica."""
    found, content = result.replicas[0], result.summary
    problem = found.problem
    stages = len(problem.wait)
    row = min(max(_TALL / stages, _ROWS[0]), _ROWS[1])
    gantt = 0.55 + row * stages
    figure = style.canvas(2 * gantt + 2.9)
    axes = figure.subplots(3, 1, sharex=True, height_ratios=[gantt, gantt, 1.5])
    before, after, power = axes.tolist()
    choices = (problem.usual, found.choice)
    titles = (
        f"All at {content['usual_sm_clock_mhz']:g} MHz",
        "Own clocks (low boxes: forward, high: backward)",
    )
    drawn = [
        _draw(panel, found, choice, title, row)
        for panel, choice, title in zip((before, after), choices, titles, strict=True)
    ]
    bar = figure.colorbar(drawn[-1], ax=[before, after], pad=0.01, aspect=30)
    bar.set_label("SM clock (MHz)")
    colours = (style.GREY, style.BLUE)
    for choice, colour, word in zip(choices, colours, ("before", "after"), strict=True):
        edges, watts = _curve(found, choice)
        mean = float(np.diff(edges) @ watts[:-1]) / edges[-1]
        label = f"{word}: {si(mean, 'W')} on average"
        power.step(edges, watts, where="post", color=colour, linewidth=1.2, label=label)
    power.set_title("GPUs of a replica")
    power.set_ylim(0.0, None)
    power.set_xlim(0.0, None)
    power.legend(loc="lower center", ncols=2)
    style.name_axis(power.yaxis, "power", "W")
    style.name_axis(power.xaxis, "time", "s")
    style.headline(figure, f"{title_line(content)}: {line(result)}")
    return figure


def _draw(
    axes: "Axes", found: "Replicas", choice: np.ndarray, title: str, height: float
) -> "PolyCollection":
    from matplotlib.collections import PolyCollection

    problem = found.problem
    start, end = found.times(choice)
    half = np.array(_HIGH)[problem.program.kind] / 2
    low, high = problem.stage_of - half, problem.stage_of + half
    across = np.stack([start, end, end, start], axis=1)
    shapes = np.stack([across, np.stack([low, low, high, high], axis=1)], axis=2)
    edged = bool(np.median(end - start) / end.max() * _ACROSS > _EDGED)
    boxes = PolyCollection(
        list(shapes),
        array=problem.clocks[choice] / 1e6,
        cmap=style.MAP,
        clim=(problem.clocks[-1] / 1e6, problem.clocks[0] / 1e6),
        edgecolors="white" if edged else "face",
        linewidths=0.4 if edged else 0.0,
    )
    axes.add_collection(boxes, autolim=False)
    stages = len(problem.wait)
    every = int(np.ceil(0.16 / height))
    style.rows_down(axes, [f"stage {x}" for x in range(stages)])
    axes.set_yticks(
        range(0, stages, every), [f"stage {x}" for x in range(0, stages, every)]
    )
    axes.grid(False)
    axes.set_title(title)
    return boxes


def _curve(found: "Replicas", choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where power changes, s, and W of a replica's GPUs from there on."""
    problem = found.problem
    start, end = found.times(choice)
    over = problem.cost[choice, problem.type] / (end - start)
    at = np.r_[0.0, start, end]
    change = np.r_[problem.wait.sum(), over, -over] * problem.abreast
    order = np.argsort(at, kind="stable")
    edges, first = np.unique(np.round(at[order], 9), return_index=True)
    last = np.r_[first[1:], len(at)] - 1
    return edges, np.cumsum(change[order])[last]
