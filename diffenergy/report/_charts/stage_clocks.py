"""Charts of the clocks of every pipeline pass, before and after, and the power of its
GPUs."""

from typing import TYPE_CHECKING, Final

import numpy as np

from ...charts import (
    Axis,
    Boxes,
    Chart,
    Line,
    Mark,
    Panel,
    Reading,
    ramp,
    stacked,
)
from .._page.markup import si

if TYPE_CHECKING:
    from ...parallel import Replicas, StageClocks

_HIGH: Final = (0.5, 0.88, 0.88)
"""Box heights of forward, backward and weight-gradient passes, as shares of a row."""
_ROW: Final = (9.0, 22.0)
"""Minimum and maximum height of a row (px)."""
_TALL: Final = 210.0
"""Height of all rows (px), within the limits of `_ROW`."""
_KINDS: Final = ("forward", "backward", "gradients of weights")


def stage_clock_charts(result: "StageClocks", title: str) -> dict[str, Chart]:
    """Return all panels as one chart, then the clocks before and after and the power as
    charts of their own."""
    replicas, content = result.replicas[0], result.summary
    usual = f"All at {content['usual_sm_clock_mhz']:g} MHz"
    title_of_clocks = "Optimized clocks (low boxes: forward, high: backward)"
    charts = {
        "before": _passes(replicas, replicas.problem.usual, usual),
        "after": _passes(replicas, replicas.choice, title_of_clocks),
        "power": _power(replicas),
    }
    return {"stage-clocks": stacked(title, list(charts.values())), **charts}


def _passes(replicas: "Replicas", choice: np.ndarray, title: str) -> Chart:
    """Chart of every stage's passes over time, coloured by SM clock."""
    problem = replicas.problem
    start, end = (x.tolist() for x in replicas.times(choice))
    clocks = problem.clocks / 1e6
    mine = clocks[choice].tolist()
    scale, shade = ramp("SM clock, MHz", float(clocks.min()), float(clocks.max()))
    half = (np.array(_HIGH)[problem.program.kind] / 2).tolist()
    rows, stages = problem.stage_of.tolist(), len(problem.wait)
    boxes = Boxes(
        start, end, [x - y for x, y in zip(rows, half, strict=True)],
        [x + y for x, y in zip(rows, half, strict=True)],
        colour=shade(mine), edged=True,
    )  # fmt: skip
    kinds = problem.program.kind.tolist()
    order = sorted(range(len(rows)), key=lambda i: (rows[i], start[i]))
    readings = [
        Reading(
            (start[i] + end[i]) / 2, rows[i],
            f"stage {rows[i]}, {_KINDS[kinds[i]]}: {mine[i]:g} MHz, "
            f"{si(end[i] - start[i], 's')}",
        )
        for i in order
    ]  # fmt: skip
    row = min(max(_TALL / stages, _ROW[0]), _ROW[1])
    panel = Panel(
        Axis("time", "s", zero=True, high=_last(replicas)),
        Axis(names=[f"stage {x}" for x in range(stages)]),
        [boxes], readings, title, scale=scale,
        height=row * stages,
    )  # fmt: skip
    return Chart(title, [panel])


def _last(replicas: "Replicas") -> float:
    """End of the longer of both steps (s), so that all panels share one axis."""
    choices = (replicas.problem.usual, replicas.choice)
    return float(max(replicas.times(choice)[1].max() for choice in choices)) * 1.005


def _power(replicas: "Replicas") -> Chart:
    choices = (replicas.problem.usual, replicas.choice)
    marks: list[Mark] = []
    looks = zip(choices, ("soft", 0), ("before", "after"), strict=True)
    for choice, colour, word in looks:
        edges, watts = _curve(replicas, choice)
        mean = float(np.diff(edges) @ watts[:-1]) / edges[-1]
        name = f"{word}: {si(mean, 'W')} on average"
        marks.append(Line(edges.tolist(), watts.tolist(), name, colour, 1.5, step=True))
    x = Axis("time", "s", zero=True, high=_last(replicas))
    panel = Panel(x, Axis("power", "W", zero=True), marks, height=140.0)
    return Chart("GPUs of a replica", [panel])


def _curve(replicas: "Replicas", choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times at which power changes (s), and the power of a replica's GPUs from each on
    (W)."""
    problem = replicas.problem
    start, end = replicas.times(choice)
    over = problem.cost[choice, problem.type] / (end - start)
    at = np.r_[0.0, start, end]
    change = np.r_[problem.wait.sum(), over, -over] * problem.abreast
    order = np.argsort(at, kind="stable")
    edges, first = np.unique(np.round(at[order], 9), return_index=True)
    last = np.r_[first[1:], len(at)] - 1
    return edges, np.cumsum(change[order])[last]
