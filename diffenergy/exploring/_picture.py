"""The picture beside the sliders: totals, time and energy over clocks, energy by unit.

SVG, as on the page of a report: a picture of matplotlib takes longer than an estimate.
"""

from typing import Final

import numpy as np

from ..charts import (
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    bars,
    to_picture,
)
from ..report import KINDS, si
from ._numbers import Shown

_UNITS: Final = {unit: colour for colour, units in KINDS.values() for unit in units}
_LEAST: Final = 5e-3
"""Share of the energy below which a unit is left out."""
_FAR: Final = 3.0
"""Ratio of two curves from which on they do not share an axis."""
_TOTALS: Final = (
    ("time", "s", lambda x: x.time),
    ("per token", "J", lambda x: x.energy_per_token),
    ("mean power", "W", lambda x: x.power),
    ("first token", "s", lambda x: x.ttft),
    ("next token", "s", lambda x: x.tpot),
)


def picture(shown: Shown, begin: Shown | None = None) -> str:
    """SVG of what is `shown`.

    Args:
        shown: what is seen at the values of the sliders.
        begin: the same where they began, drawn in grey beside it.

    Returns:
        Text of one `svg` element, complete in itself.
    """
    return to_picture(explore_chart(shown, begin))


def explore_chart(shown: Shown, begin: Shown | None = None) -> Chart:
    """Time and energy per token over clocks, energy per token by unit."""
    grey = "" if begin is None else " Grey: where the sliders began."
    panels = [
        _curve(shown, begin, "times", "time", "s", 0),
        _curve(shown, begin, "energies", "energy per token", "J", 1),
        _units(shown, begin),
    ]
    return Chart(_totals(shown, begin), panels, _clock(shown) + grey, columns=2)


def _totals(shown: Shown, begin: Shown | None) -> str:
    """Figures in a row, each with how it changed."""
    words = []
    for what, unit, of in _TOTALS:
        value, first = of(shown), begin and of(begin)
        if value is None:
            continue
        change = 100 * (value / first - 1) if first else 0.0
        more = f" ({change:+.0f} %)" if abs(change) >= 0.5 else ""
        words.append(f"{what} {si(value, unit)}{more}")
    return ", ".join(words)


def _clock(shown: Shown) -> str:
    """What becomes of the clock that is asked for, and what is amiss."""
    requested, actual = (
        f"{x / 1e6:.0f} MHz" for x in (shown.requested_clock, shown.sm_clock)
    )
    words = [
        f"SM clock {requested}" + ("" if actual == requested else f", held at {actual}")
    ]
    if not shown.feasible:
        words = [f"The power limit cannot be kept; shown is the lowest clock, {actual}"]
    if shown.memory > shown.capacity:
        needs, has = (f"{x / 1e9:.1f} GB" for x in (shown.memory, shown.capacity))
        words.append(f"the request does not fit the memory: {needs} of {has}")
    return "; ".join(words) + "."


def _curve(
    shown: Shown, begin: Shown | None, name: str, what: str, unit: str, colour: int
) -> Panel:
    """A quantity over the clocks that are asked for, the one chosen as a dot; where the
    sliders began in grey, as far as it is of the same size."""
    scale = {"times": lambda _: 1.0, "energies": lambda x: 1 / x.tokens}[name]
    mega = (shown.clocks / 1e6).tolist()
    now = getattr(shown, name) * scale(shown)
    point = shown.time if name == "times" else shown.energy_per_token
    marks: list[Mark] = []
    if begin is not None:
        before = getattr(begin, name) * scale(begin)
        if _near(before, max([point, *now[np.isfinite(now)]])):
            x = (begin.clocks / 1e6).tolist()
            marks.append(Line(x, before.tolist(), "", "soft", 1.5, dashed=True))
    marks.append(Line(mega, now.tolist(), "", colour, 2.2))
    at = shown.requested_clock / 1e6
    marks.append(Points([at], [point], "", colour, size=5.5, outlined=True))
    x = Axis("SM clock that is asked for", "MHz")
    return Panel(x, Axis(what, unit), marks, height=110.0)


def _near(before: np.ndarray, most: float) -> bool:
    """Whether a curve can stand on the axis of one that reaches `most`."""
    finite = before[np.isfinite(before)]
    return bool(finite.size and 1 / _FAR < finite.max() / most < _FAR)


def _units(shown: Shown, begin: Shown | None) -> Panel:
    """Energy per token of every unit, coloured by what it is for."""
    units = {
        name: energy / shown.tokens
        for name, energy in shown.energy_by_unit.items()
        if energy > _LEAST * shown.energy
    }
    order = sorted(units, key=lambda name: -units[name])
    values = [units[name] for name in order]
    shares = [f"{100 * x / shown.energy_per_token:.0f} %" for x in values]
    pairs = zip(values, shares, strict=True)
    texts = [f"{si(value, 'J')}, {share}" for value, share in pairs]
    marks: list[Mark] = []
    if begin is not None:  # a wider bar behind
        first = [begin.energy_by_unit.get(x, 0.0) / begin.tokens for x in order]
        marks += bars(first, (), colour="light", thick=0.95)
    looks = [_UNITS[name] for name in order]
    marks += bars(values, texts, colour=looks, thick=0.6)
    names = [name.replace("_", " ") for name in order]
    x = Axis("energy per token by unit", "J", zero=True)
    return Panel(x, Axis(names=names), marks)
