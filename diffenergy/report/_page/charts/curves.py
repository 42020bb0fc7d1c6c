"""Energy against time over SM clocks, and both under power limits."""

import functools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..._format import Entries, Entry
from ..markup import si
from .figures import HALF, NARROW, WIDE, Axis, Panel, linear, mark, unavailable, words
from .lines import Line, Places, line_chart

_SLOWEST: Final = 3.0
"""Time of the slowest clock that is drawn / of the fastest."""
_BELOW: Final = 0.06
"""Room for a label below the least energy, as a share of the most."""
_LABEL: Final = 130.0
"""Least middle of that label, px, so that it stays off the axis."""


class Side(NamedTuple):
    """One GPU's curves: points at rising SM clocks, and under rising power limits,
    those left out that cannot be kept; `chosen`: its estimate."""

    gpu: str
    clocks: Entries
    limits: Entries
    chosen: Entry


def clock_chart(sides: Sequence[Side]) -> str:
    """Time and energy of every SM clock that keeps the limit."""
    identity, title = "clock-curve", "Time and energy over SM clocks"
    sides = [_quick(side) for side in sides if side.clocks]
    if not sides:
        return unavailable(identity, title, "no SM clock keeps the power limit.")

    def text(point: Entry) -> str:
        set_to = f"{point['sm_clock_set_mhz']:.0f} MHz"
        return f"{set_to}: {_costs(point)}, {point['avg_power_w']:.0f} W{_held(point)}"

    lines = [
        _line(side, sides, side.clocks, "time_s", "energy_j", text)._replace(
            labels=functools.partial(_ends, side.clocks)
        )
        for side in sides
    ]
    every = [*(p for side in sides for p in side.clocks), *(x.chosen for x in sides)]
    times, energies = (
        [point[key] for point in every] for key in ("time_s", "energy_j")
    )
    energies.append(min(energies) - _BELOW * max(energies))

    def axes(width: float) -> tuple[Axis, Axis]:
        few = 10 if width == WIDE else 4
        return linear(times, "time", "s", few), linear(energies, "energy", "J")

    return line_chart(
        identity,
        title,
        "Every point is the whole workload at one SM clock under the power limit of "
        "the estimate, which is the large mark; its relative intervals hold for all "
        f"points. Clocks that take over {_SLOWEST:g} times as long as the fastest are "
        "left out.",
        lines, axes, 330.0, WIDE, keys=_keys(sides),
    )  # fmt: skip


def limit_chart(sides: Sequence[Side], key: str, what: str, unit: str) -> str:
    """`key` under every power limit that can be kept."""
    identity, title = f"limit-{what}", f"{what.capitalize()} under power limits"
    sides = [side for side in sides if side.limits]
    if not sides:
        why = "no power limit of this board can be kept by this workload."
        return unavailable(identity, title, why)

    def text(point: Entry) -> str:
        limit = f"limit {point['power_limit_w']:.0f} W"
        return f"{limit}: {_costs(point)}, {point['sm_clock_mhz']:.0f} MHz"

    lines = [_line(x, sides, x.limits, "power_limit_w", key, text) for x in sides]
    points = [point for side in sides for point in side.limits]
    limits = [point["power_limit_w"] for point in points]
    values = [point[key] for point in [*points, *(side.chosen for side in sides)]]

    def axes(width: float) -> tuple[Axis, Axis]:
        across = linear(limits, "power limit", "W", 5 if width == NARROW else 8)
        return across, linear(values, what, unit, 5, zero=True)

    return line_chart(
        identity,
        title,
        "The whole workload under each power limit that the board accepts and the "
        "model can keep; the governor picks the clock. The large mark is the estimate.",
        lines, axes, 270.0, HALF, keys=_keys(sides),
    )  # fmt: skip


def _line(
    side: Side,
    sides: Sequence[Side],
    points: Entries,
    x: str,
    y: str,
    text: Callable[[Entry], str],
) -> Line:
    """Keys `x` and `y` of a side's `points`."""
    name = f"{side.gpu}, " if len(sides) > 1 else ""
    places = [(point[x], point[y]) for point in points]
    texts = [name + text(point) for point in points]
    return Line(side.gpu, places, texts, (side.chosen[x], side.chosen[y]))


def _quick(side: Side) -> Side:
    """Without the clocks that nobody would choose."""
    most = _SLOWEST * min(point["time_s"] for point in side.clocks)
    return side._replace(clocks=[p for p in side.clocks if p["time_s"] <= most])


def _ends(points: Entries, panel: Panel, places: Places) -> list[str]:
    """Labels of the lowest clock, the highest, and the one of least energy; those far
    right are on the left of their points."""
    right = panel.left + panel.width - 94
    least = min(range(len(points)), key=lambda i: points[i]["energy_j"])
    found = []
    for i in dict.fromkeys((0, least, len(points) - 1)):
        (x, y), clock = places[i], points[i]["sm_clock_set_mhz"]
        text = f"{clock:.0f} MHz" + (", least energy" if i == least else "")
        if i == least:
            found.append(words(max(x, _LABEL), y + 22, text, "tick halo mid"))
        elif x > right:
            found.append(words(x - 10, y - 8, text, "tick halo end"))
        else:
            found.append(words(x + 10, y - 8, text, "tick halo"))
    return found


def _costs(point: Entry) -> str:
    return f"{si(point['time_s'], 's')}, {si(point['energy_j'], 'J')}"


def _held(point: Entry) -> str:
    """The clock that is held, where the power limit lowers it."""
    held, asked = point["sm_clock_mhz"], point["sm_clock_set_mhz"]
    return f", held at {held:.0f} MHz" if held < asked * (1 - 1e-6) else ""


def _keys(sides: Sequence[Side]) -> list[tuple[str, str]]:
    """Of several GPUs, by the marks of their points."""
    keys = [
        '<svg viewBox="0 0 16 16" class="key" aria-hidden="true">'
        f"{mark(8.0, 8.0, 5.0, i, f'point c{i}')}</svg>"
        for i in range(len(sides))
    ]
    pairs = zip(keys, (side.gpu for side in sides), strict=True)
    return list(pairs) if len(sides) > 1 else []
