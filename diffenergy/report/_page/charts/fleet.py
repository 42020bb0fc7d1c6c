"""A planned fleet slot by slot: who runs in a pool, power of every site."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from jaxtyping import Float

from ..._format import Entry
from ..._views.fleet import drawn
from ..markup import si
from .figures import HALF, WIDE, Axis, Drawn, Panel, figure, linear, swatch

if TYPE_CHECKING:
    from ....fleet import FleetResult

_HIGH: Final = 230.0
"""px of a chart."""
_OTHERS: Final = "c7"


def pool_charts(result: "FleetResult") -> tuple[str, ...]:
    """For each pool GPUs of the models, one on the other, up to its count."""
    found, problem = drawn(result), result.solved.problem
    others = np.setdiff1d(np.arange(len(problem.models)), found.models)
    charts = []
    for pool in found.pools.tolist():
        used = found.used[:, :, pool]
        rest = used[:, others].sum(axis=1)
        parts = [
            (f"c{place}", problem.models[model], used[:, model])
            for place, model in enumerate(found.models.tolist())
        ] + ([(_OTHERS, "others", rest)] if rest.any() else [])
        name, count = problem.pools[pool], float(problem.count[pool])
        charts.append(_pool(pool, name, count, parts, result.summary))
    return tuple(charts)


def _pool(
    number: int,
    name: str,
    count: float,
    parts: Sequence[tuple[str, str, Float[np.ndarray, " slot"]]],
    summary: Entry,
) -> str:
    slots = summary["slots"]
    texts = []
    for slot in range(slots):
        here = [f"{who} {used[slot]:g}" for _, who, used in parts if used[slot]]
        free = count - sum(used[slot] for *_, used in parts)
        texts.append(f"slot {slot}: {', '.join([*here, f'parked {free:g}'])}")

    def draw(width: float) -> Drawn:
        tall = _whole(linear([0.0, count], "GPUs", "", 4, zero=True))
        panel = _panel(width, summary, tall)
        floor, shapes = np.zeros(slots), []
        for style, _, used in parts:
            top = floor + used
            shapes.append(_area(panel, floor, top, style))
            floor = top
        limit = _stairs(panel, np.full(slots, count), "limit")
        places = [panel.at(float(slot), float(floor[slot])) for slot in range(slots)]
        return Drawn(_HIGH, [panel.frame(), *shapes, limit], places)

    return figure(
        f"fleet-pool-{number}",
        f"GPUs of {name}",
        f"Its {count:g} GPUs are the dashed line; what is free is parked.",
        draw,
        texts,
        read="span",
        width=HALF,
        keys=[(swatch(style), who) for style, who, used in parts if used.any()],
    )


def power_chart(summary: Entry) -> str:
    """W at the meter of every site, budgets dashed in the site's colour."""
    names = list(dict.fromkeys(x["site"] for x in summary["site_power"]))
    each = [[x for x in summary["site_power"] if x["site"] == name] for name in names]
    watts = [np.array([x["power_w"] for x in mine]) for mine in each]
    budgets = [
        np.array([np.nan if x["budget_w"] is None else x["budget_w"] for x in mine])
        for mine in each
    ]
    texts = [
        f"slot {slot}: "
        + ", ".join(
            f"{name} {si(power[slot], 'W')}"
            + (f" of {si(most[slot], 'W')}" if most[slot] == most[slot] else "")
            for name, power, most in zip(names, watts, budgets, strict=True)
        )
        for slot in range(summary["slots"])
    ]

    def draw(width: float) -> Drawn:
        top = np.nanmax(np.stack([*watts, *budgets]))
        tall = linear([0.0, float(top)], "power at the meter", "W", 5, zero=True)
        panel = _panel(width, summary, tall)
        parts = [panel.frame()]
        for number, (power, most) in enumerate(zip(watts, budgets, strict=True)):
            style = f"curve whole s{min(number, 5)}"
            parts.append(_stairs(panel, power, style))
            parts.append(_stairs(panel, most, f"{style} budget"))
        places = [
            panel.at(float(slot), float(watts[0][slot]))
            for slot in range(summary["slots"])
        ]
        return Drawn(_HIGH, parts, places)

    return figure(
        "fleet-power",
        "Power at the meter",
        "Mean power of a slot with parked GPUs and PUE; budgets are dashed.",
        draw,
        texts,
        read="span",
        keys=[(swatch(min(i, 5)), name) for i, name in enumerate(names)],
    )


def _whole(axis: Axis) -> Axis:
    """With ticks at whole numbers alone."""
    ticks = tuple((x, f"{x:g}") for x, _ in axis.ticks if x == round(x))
    return dataclasses.replace(axis, ticks=ticks)


def _panel(width: float, summary: Entry, tall: Axis) -> Panel:
    slots = summary["slots"]
    every = max(1, -(-slots // (12 if width == WIDE else 6)))
    ticks = tuple((float(x), str(x)) for x in range(0, slots + 1, every))
    across = Axis(0.0, float(slots), ticks, f"slot of {summary['slot_s']:g} s")
    return Panel(52.0, 34.0, width - 66, _HIGH - 80, across, tall)


def _area(panel: Panel, low: np.ndarray, high: np.ndarray, style: str) -> str:
    """Between two stairs."""
    up = [
        panel.at(float(slot + x), y)
        for slot, y in enumerate(high.tolist())
        for x in (0, 1)
    ]
    down = [
        panel.at(float(slot + x), y)
        for slot, y in reversed(list(enumerate(low.tolist())))
        for x in (1, 0)
    ]
    corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in (*up, *down))
    return f'<path d="M{corners}Z" class="step {style}"/>'


def _stairs(panel: Panel, values: np.ndarray, style: str) -> str:
    """A line that steps from slot to slot, broken where nothing is known."""
    runs: list[list[str]] = [[]]
    for slot, y in enumerate(values.tolist()):
        if y != y:
            runs.append([])
            continue
        runs[-1] += [
            "{:.1f} {:.1f}".format(*panel.at(float(slot + x), y)) for x in (0, 1)
        ]
    path = "".join(f"M{'L'.join(run)}" for run in runs if run)
    return f'<path d="{path}" fill="none" class="{style}"/>'
