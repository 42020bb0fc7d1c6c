"""The clocks of a schedule over an iteration, drawn."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...dvfs._apply.launches import Launches
from ...dvfs._problem.problem import Problem
from ...units import MHz
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = (style.BLUE, style.VERMILION)
"""Of the SM and the memory clock."""
_SCALES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_MOST_CHANGES: Final = 60
"""Changes of clocks that a picture shows one by one; above, loops are drawn once."""
_WIDE_ENOUGH: Final = 0.05
"""Share of the width that a mark or the name of a stage needs."""
_TICKS_APART: Final = 0.13
"""Least distance between ticks as a share of the range."""


class Drawn(NamedTuple):
    """Launches as far as they are drawn, from left to right."""

    edges: Float[np.ndarray, " edge"]  # s, one more than launches
    setting: Int[np.ndarray, " launch"]
    stage: Int[np.ndarray, " launch"]
    loops: tuple[tuple[float, float, int], ...]  # start, end (s), turns drawn as one


def drawn(problem: Problem, order: Launches) -> Drawn:
    """All launches, or every loop once if there are too many changes to see.

    A loop whose turns differ is drawn in full.
    """
    kept, marks = np.ones(len(order.kernel), dtype=bool), []
    if len(order.changes()) > _MOST_CHANGES:
        end = 0
        for loop in problem.loops:
            start, width = end, len(loop.kernels)
            end = start + width * loop.turns
            turns = order.setting[start:end].reshape(loop.turns, width)
            if loop.turns > 1 and (turns == turns[0]).all():
                kept[start + width : end] = False
                marks.append((start, start + width - 1, loop.turns))
    edges = np.concatenate([[0.0], np.cumsum(np.where(kept, order.time, 0.0))])
    return Drawn(
        np.concatenate([[0.0], edges[1:][kept]]),
        order.setting[kept],
        problem.stage[order.kernel[kept]],
        tuple((float(edges[a]), float(edges[b + 1]), turns) for a, b, turns in marks),
    )


def draw_clocks(shown: Drawn, problem: Problem, axes: "Axes", which: int) -> None:
    """Step line of the SM (0) or memory (1) clock over `shown`; stages are shaded."""
    scale, unit = _scale(shown.edges[-1])
    clocks = problem.settings[shown.setting, which] / MHz
    levels, ticks = _levels(clocks)
    axes.stairs(
        np.where(np.isnan(clocks), levels[-1], clocks),
        shown.edges / scale,
        baseline=None,
        color=_COLOURS[which],
        linewidth=1.6,
    )
    low, high = levels[0], levels[-1]
    room = max(high - low, 0.1 * high)
    axes.set_ylim(low - 0.15 * room, high + 0.15 * room)
    axes.set_yticks(*ticks)
    axes.set_xlim(0.0, shown.edges[-1] / scale)
    axes.set_ylabel(f"{('SM', 'memory')[which]} clock,\nMHz")
    for start, end, stage in _spans(shown):
        if stage % 2:
            axes.axvspan(start / scale, end / scale, color="#EEEEEE", zorder=0)
    once = " (repeated layers drawn once)" if shown.loops else ""
    axes.set_xlabel(f"time in the iteration, {unit}{once}")


def draw_marks(shown: Drawn, problem: Problem, axes: "Axes") -> None:
    """Names of stages above `axes`, and how often what is drawn once runs."""
    scale, _ = _scale(shown.edges[-1])
    across = axes.get_xaxis_transform()  # x in data, y in heights of the axes
    whole = shown.edges[-1]
    for start, end, stage in _spans(shown):
        if end - start >= _WIDE_ENOUGH * whole and len(problem.stages) > 1:
            axes.text(
                (start + end) / 2 / scale, 1.17 if shown.loops else 1.04,
                problem.stages[stage], transform=across, ha="center", fontsize=10,
            )  # fmt: skip
    apart = 0.002 * whole
    for start, end, turns in shown.loops:
        axes.plot(
            [(start + apart) / scale, (end - apart) / scale], [1.03, 1.03],
            color=style.BLACK, linewidth=2,
            transform=across, clip_on=False, solid_capstyle="butt",
        )  # fmt: skip
        if end - start >= _WIDE_ENOUGH * whole:
            axes.text(
                (start + end) / 2 / scale, 1.06, f"x{turns}",
                transform=across, ha="center", fontsize=style.SMALL,
            )  # fmt: skip


def _levels(
    clocks: Float[np.ndarray, " launch"],
) -> tuple[Float[np.ndarray, " level"], tuple[list[float], list[str]]]:
    """Heights of the clocks (MHz), "auto" above them all, and the ticks to show."""
    known = np.unique(clocks[~np.isnan(clocks)])
    levels = known if len(known) else np.array([0.0])
    if np.isnan(clocks).any():
        gap = max(0.15 * (levels[-1] - levels[0]), 0.05 * levels[-1], 1.0)
        levels = np.append(levels, levels[-1] + gap)
    ticks = _apart(known)
    labels = [f"{tick:g}" for tick in ticks]
    if np.isnan(clocks).any():
        ticks, labels = [*ticks, float(levels[-1])], [*labels, "auto"]
    return levels, (ticks, labels)


def _apart(values: Float[np.ndarray, " value"]) -> list[float]:
    """The rising values that leave room for their labels, the last one among them."""
    kept: list[float] = []
    for value in values[::-1].tolist():
        if not kept or kept[-1] - value >= _TICKS_APART * (values[-1] - values[0]):
            kept.append(value)
    return kept[::-1]


def _spans(shown: Drawn) -> list[tuple[float, float, int]]:
    """Start, end (s) and stage of every run of launches of one stage."""
    first = np.flatnonzero(np.diff(shown.stage, prepend=-1))
    ends = np.append(first[1:], len(shown.stage))
    return [
        (float(shown.edges[a]), float(shown.edges[b]), int(shown.stage[a]))
        for a, b in zip(first, ends, strict=True)
    ]


def _scale(time: float) -> tuple[float, str]:
    """Unit of time (s) in which `time` is a handy number."""
    return next(((s, unit) for s, unit in _SCALES if time >= s), _SCALES[-1])
