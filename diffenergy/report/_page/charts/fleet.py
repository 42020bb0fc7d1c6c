"""A planned fleet slot by slot: who runs in a pool, power of every site."""

import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np

from ..._format import Entry
from ..._views.fleet import Pool, drawn, site_power
from ..markup import si
from .figures import HALF, WIDE, Axis, Drawn, Panel, figure, linear, swatch

if TYPE_CHECKING:
    from ....fleet import FleetResult

_HIGH: Final = 230.0
"""px of a chart."""


def pool_charts(result: "FleetResult") -> list[str]:
    """For each pool GPUs of the models, one on the other, up to its count."""
    return [_pool(pool, result.summary) for pool in drawn(result)]


def _pool(pool: Pool, summary: Entry) -> str:
    slots, count, models = summary["slots"], pool.gpus, pool.models
    texts = []
    for slot in range(slots):
        here = [f"{who} {used[slot]:g}" for _, who, used in models if used[slot]]
        free = count - sum(used[slot] for *_, used in models)
        texts.append(f"slot {slot}: {', '.join([*here, f'parked {free:g}'])}")

    def draw(width: float) -> Drawn:
        tall = _whole(linear([0.0, count], "GPUs", "", 4, zero=True))
        panel = _panel(width, summary, tall)
        floor, shapes = np.zeros(slots), []
        for colour, _, used in models:
            top = floor + used
            shapes.append(_area(panel, floor, top, f"c{colour}"))
            floor = top
        limit = _stairs(panel, np.full(slots, count), "limit")
        places = [panel.at(float(slot), float(floor[slot])) for slot in range(slots)]
        return Drawn(_HIGH, [panel.frame(), *shapes, limit], places)

    return figure(
        f"fleet-pool-{pool.number}",
        f"GPUs of {pool.name}",
        f"Its {count:g} GPUs are the dashed line; what is free is parked.",
        draw,
        texts,
        read="span",
        width=HALF,
        keys=[(swatch(colour), who) for colour, who, used in models if used.any()],
    )


def power_chart(summary: Entry) -> str:
    """W at the meter of every site, budgets dashed in the site's colour."""
    sites = site_power(summary)
    texts = [
        f"slot {slot}: "
        + ", ".join(
            f"{name} {si(power[slot], 'W')}"
            + (f" of {si(most[slot], 'W')}" if most[slot] == most[slot] else "")
            for name, (power, most) in sites.items()
        )
        for slot in range(summary["slots"])
    ]

    def draw(width: float) -> Drawn:
        top = np.nanmax(np.stack([*sites.values()]))
        tall = linear([0.0, float(top)], "power at the meter", "W", 5, zero=True)
        panel = _panel(width, summary, tall)
        parts = [panel.frame()]
        for number, (power, most) in enumerate(sites.values()):
            style = f"curve whole s{min(number, 5)}"
            parts.append(_stairs(panel, power, style))
            parts.append(_stairs(panel, most, f"{style} budget"))
        first = next(iter(sites.values())).power.tolist()
        places = [panel.at(float(slot), watts) for slot, watts in enumerate(first)]
        return Drawn(_HIGH, parts, places)

    return figure(
        "fleet-power",
        "Power at the meter",
        "Mean power of a slot with parked GPUs and PUE; budgets are dashed.",
        draw,
        texts,
        read="span",
        keys=[(swatch(min(i, 5)), name) for i, name in enumerate(sites)],
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


def _steps(values: np.ndarray) -> list[tuple[float, float]]:
    """Corners of stairs, one step a slot."""
    edges = np.arange(len(values) + 1.0)
    return list(
        zip(edges.repeat(2)[1:-1].tolist(), values.repeat(2).tolist(), strict=True)
    )


def _area(panel: Panel, low: np.ndarray, high: np.ndarray, style: str) -> str:
    """Between two stairs."""
    places = [panel.at(*corner) for corner in (*_steps(high), *_steps(low)[::-1])]
    corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return f'<path d="M{corners}Z" class="step {style}"/>'


def _stairs(panel: Panel, values: np.ndarray, style: str) -> str:
    """A line that steps from slot to slot, broken where nothing is known."""
    path, pen = "", "M"
    for corner in _steps(values):
        known = not np.isnan(corner[1])
        if known:
            path += pen + "{:.1f} {:.1f}".format(*panel.at(*corner))
        pen = "L" if known else "M"
    return f'<path d="{path}" fill="none" class="{style}"/>'
