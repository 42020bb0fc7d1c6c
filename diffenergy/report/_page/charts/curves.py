"""Energy against time over SM clocks, and both under power limits."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..._format import Entries, Entry
from ..markup import si
from .figures import (
    HALF,
    WIDE,
    Axis,
    Chart,
    Drawn,
    Panel,
    drawing,
    figure,
    legend,
    linear,
    unavailable,
    words,
)
from .roofline import mark

_SLOWEST: Final = 3.0
"""Time of the slowest clock that is drawn / of the fastest."""
_BELOW: Final = 0.06
"""Room for a label below the least energy, as a share of the most."""
_LABEL: Final = 130.0
"""Least middle of that label, px, so that it stays off the axis."""
_ROOM: Final = (52.0, 34.0)
"""Left of and above the data, px."""


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
    points = [point for side in sides for point in side.clocks]
    texts = [
        f"{_name(side, sides)}{p['sm_clock_set_mhz']:.0f} MHz: {_costs(p)}, "
        f"{p['avg_power_w']:.0f} W{_held(p)}"
        for side in sides
        for p in side.clocks
    ]

    every = [*points, *(side.chosen for side in sides)]
    times, energies = _column(every, "time_s"), _column(every, "energy_j")
    energies.append(min(energies) - _BELOW * max(energies))

    def axes(shown: str) -> tuple[Axis, Axis]:
        few = 10 if shown == "wide" else 4
        return linear(times, "time", "s", few), linear(energies, "energy", "J")

    chart = Chart(
        identity,
        title,
        "Every point is the whole workload at one SM clock under the power limit of "
        "the estimate, which is the large mark; its relative intervals hold for all "
        f"points. Clocks that take over {_SLOWEST:g} times as long as the fastest are "
        "left out.",
        _drawn(sides, True, ("time_s", "energy_j"), axes, 330.0),
        texts,
        width=WIDE,
        legend=_legend(sides),
    )
    return figure(chart)


def limit_chart(sides: Sequence[Side], key: str, what: str, unit: str) -> str:
    """`key` under every power limit that can be kept."""
    identity, title = f"limit-{what}", f"{what.capitalize()} under power limits"
    sides = [side for side in sides if side.limits]
    if not sides:
        why = "no power limit of this board can be kept by this workload."
        return unavailable(identity, title, why)
    points = [point for side in sides for point in side.limits]
    texts = [
        f"{_name(side, sides)}limit {p['power_limit_w']:.0f} W: {_costs(p)}, "
        f"{p['sm_clock_mhz']:.0f} MHz"
        for side in sides
        for p in side.limits
    ]

    values = _column([*points, *(side.chosen for side in sides)], key)
    limits = _column(points, "power_limit_w")

    def axes(shown: str) -> tuple[Axis, Axis]:
        few = 8 if shown == "wide" else 5
        across = linear(limits, "power limit", "W", few)
        return across, linear(values, what, unit, 5, zero=True)

    chart = Chart(
        identity,
        title,
        "The whole workload under each power limit that the board accepts and the "
        "model can keep; the governor picks the clock. The large mark is the estimate.",
        _drawn(sides, False, ("power_limit_w", key), axes, 270.0),
        texts,
        width=HALF,
        legend=_legend(sides),
    )
    return figure(chart)


def _drawn(
    sides: Sequence[Side],
    clocks: bool,
    keys: tuple[str, str],
    axes: Callable[[str], tuple[Axis, Axis]],
    height: float,
) -> Callable[[float, str], Drawn]:
    """How curves over SM clocks (else over limits) are drawn at a width, the first of
    `keys` across."""

    def draw(width: float, shown: str) -> Drawn:
        left, top = _ROOM
        panel = Panel(left, top, width - left - 16, height - top - 46, *axes(shown))
        parts, places = [panel.frame()], []
        for number, side in enumerate(sides):
            points = side.clocks if clocks else side.limits
            own = [panel.at(p[keys[0]], p[keys[1]]) for p in points]
            parts.append(path(own, number))
            parts += [mark(x, y, 2.6, number, f"point c{number}") for x, y in own]
            parts += _ends(own, points, width - 110) if clocks else []
            place = panel.at(side.chosen[keys[0]], side.chosen[keys[1]])
            parts.append(mark(*place, 7.0, number, f"chosen c{number}"))
            places += own
        return Drawn(drawing(width, height, *parts, shown=shown), places)

    return draw


def _quick(side: Side) -> Side:
    """Without the clocks that nobody would choose."""
    most = _SLOWEST * min(point["time_s"] for point in side.clocks)
    return side._replace(clocks=[p for p in side.clocks if p["time_s"] <= most])


def path(places: Sequence[tuple[float, float]], number: int) -> str:
    """A line through `places`, in the style of a curve."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" class="curve s{number}"/>'


def _ends(
    places: Sequence[tuple[float, float]], points: Entries, right: float
) -> list[str]:
    """Labels of the lowest clock, the highest, and the one of least energy; those
    beyond `right` are on the left of their points."""
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


def _column(points: Entries, key: str) -> list[float]:
    return [point[key] for point in points]


def _name(side: Side, sides: Sequence[Side]) -> str:
    return f"{side.gpu}, " if len(sides) > 1 else ""


def _costs(point: Entry) -> str:
    return f"{si(point['time_s'], 's')}, {si(point['energy_j'], 'J')}"


def _held(point: Entry) -> str:
    """The clock that is held, where the power limit lowers it."""
    held, asked = point["sm_clock_mhz"], point["sm_clock_set_mhz"]
    return f", held at {held:.0f} MHz" if held < asked * (1 - 1e-6) else ""


def _legend(sides: Sequence[Side]) -> str:
    if len(sides) < 2:
        return ""
    shapes: Callable[[int], str] = lambda i: (  # noqa: E731
        f'<svg viewBox="0 0 16 16" class="key" aria-hidden="true">'
        f"{mark(8.0, 8.0, 5.0, i, f'point c{i}')}</svg>"
    )
    return legend([(shapes(i), side.gpu) for i, side in enumerate(sides)])
