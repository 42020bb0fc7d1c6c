"""Energy against time over SM clocks, and both under power limits."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...charts import Axis, Chart, Label, Line, Mark, Panel, Points, Reading
from .._format import Entries, Entry
from .._page.markup import si

_SLOWEST: Final = 3.0
"""Time of the slowest clock drawn, relative to the fastest."""
_BELOW: Final = 0.06
"""Space for a label below the least energy, as a share of the largest."""


class Side(NamedTuple):
    """Curves of one GPU: its points at rising SM clocks and rising power limits
    (feasible ones only), and `chosen`, its estimate."""

    gpu: str
    clocks: Entries
    limits: Entries
    chosen: Entry


def curve_charts(sides: Sequence[Side]) -> dict[str, Chart]:
    """Return charts of time and energy over clocks, and of energy and time under power
    limits."""
    return {
        "clocks": _clocks(sides),
        "energy-by-limit": _limits(sides, "energy_j", "energy", "J"),
        "time-by-limit": _limits(sides, "time_s", "time", "s"),
    }


def _clocks(sides: Sequence[Side]) -> Chart:
    """Chart of time and energy at every SM clock that keeps the power limit."""
    title = "Time and energy over SM clocks"
    sides = [_quick(side) for side in sides if side.clocks]
    if not sides:
        return Chart(title, [], "no SM clock keeps the power limit.")

    def text(point: Entry) -> str:
        clock = f"{point['sm_clock_set_mhz']:.0f} MHz"
        power = f"{point['avg_power_w']:.0f} W{_clock_words(point)}"
        return f"{clock}: {_costs(point)}, {power}"

    marks, readings = _curves(
        sides, [x.clocks for x in sides], "time_s", "energy_j", text
    )
    marks += [label for side in sides for label in _ends(side.clocks)]
    every = [*(p for side in sides for p in side.clocks), *(x.chosen for x in sides)]
    energies = [point["energy_j"] for point in every]
    low = min(energies) - _BELOW * max(energies)
    return Chart(
        title,
        [
            Panel(
                Axis("time", "s"), Axis("energy", "J", low=low), marks, readings,
                height=250.0,
            )
        ],
        "Every point is the whole workload at one SM clock under the power limit of "
        "the estimate, which is the large mark; its relative intervals hold for all "
        f"points. Clocks that take over {_SLOWEST:g} times as long as the fastest are "
        "left out.",
    )  # fmt: skip


def _limits(sides: Sequence[Side], key: str, what: str, unit: str) -> Chart:
    """Chart of `key` under every feasible power limit."""
    title = f"{what.capitalize()} under power limits"
    sides = [side for side in sides if side.limits]
    if not sides:
        why = "no power limit of this board can be kept by this workload."
        return Chart(title, [], why, half=True)

    def text(point: Entry) -> str:
        limit = f"limit {point['power_limit_w']:.0f} W"
        return f"{limit}: {_costs(point)}, {point['sm_clock_mhz']:.0f} MHz"

    rows = [side.limits for side in sides]
    marks, readings = _curves(sides, rows, "power_limit_w", key, text)
    x, y = Axis("power limit", "W"), Axis(what, unit, zero=True)
    return Chart(
        title,
        [Panel(x, y, marks, readings, height=190.0)],
        "The whole workload under each power limit that the board accepts and the "
        "model can keep; the governor picks the clock. The large mark is the estimate.",
        half=True,
    )


def _curves(
    sides: Sequence[Side],
    rows: Sequence[Entries],
    x: str,
    y: str,
    text: Callable[[Entry], str],
) -> tuple[list[Mark], list[Reading]]:
    """One line per GPU, named if there are two, and a large mark at its estimate."""
    lines: list[Mark] = []
    chosen: list[Mark] = []
    readings = []
    for i, (side, points) in enumerate(zip(sides, rows, strict=True)):
        name = side.gpu if len(sides) > 1 else ""
        places = [(point[x], point[y]) for point in points]
        across, up = zip(*places, strict=True)
        lines.append(Line(across, up, name, i, dashed=i > 0, shape=i))
        at = side.chosen
        chosen.append(Points([at[x]], [at[y]], "", i, shape=i, size=6.0, outlined=True))
        first = f"{name}, " if name else ""
        for place, point in zip(places, points, strict=True):
            readings.append(Reading(*place, first + text(point)))
        clock, watts = at["sm_clock_mhz"], at["avg_power_w"]
        answer = f"the estimate, {clock:.0f} MHz: {_costs(at)}, {watts:.0f} W"
        readings.append(Reading(at[x], at[y], first + answer))
    return [*lines, *chosen], readings


def _quick(side: Side) -> Side:
    """`side` without clocks more than `_SLOWEST` times slower than the fastest."""
    most = _SLOWEST * min(point["time_s"] for point in side.clocks)
    return side._replace(clocks=[p for p in side.clocks if p["time_s"] <= most])


def _ends(points: Entries) -> list[Mark]:
    """Labels of the lowest clock, the highest, and the one of least energy."""
    least = min(range(len(points)), key=lambda i: points[i]["energy_j"])
    marks: list[Mark] = []
    for i in dict.fromkeys((0, least, len(points) - 1)):
        point = points[i]
        text = f"{point['sm_clock_set_mhz']:.0f} MHz"
        text, side = (
            (f"{text}, least energy", "below") if i == least else (text, "right")
        )
        marks.append(Label(point["time_s"], point["energy_j"], text, side))
    return marks


def _costs(point: Entry) -> str:
    return f"{si(point['time_s'], 's')}, {si(point['energy_j'], 'J')}"


def _clock_words(point: Entry) -> str:
    """Text on the mean clock, where the power limit lowers it."""
    clock, requested = point["sm_clock_mhz"], point["sm_clock_set_mhz"]
    return f", mean clock {clock:.0f} MHz" if clock < requested * (1 - 1e-6) else ""
