"""What both drawers share: ends and ticks of axes, heights, legends."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ..units import scaled
from ._data import (
    SI,
    Axis,
    Band,
    Boxes,
    Label,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Scale,
    viridis,
)

Ticks = Sequence[tuple[float, str]]
Named = Line | Points | Boxes | Band | Rule
"""Marks that a legend can name."""

LINE: Final = 15.0
"""px from a line of text to the next."""
_ROW: Final = 24.0
"""px of a category whose name is one line."""
_HEIGHT: Final = 200.0
CHARACTER: Final = 6.8
"""px of a character of a tick, about."""
_NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_ROOM: Final = 0.04
"""Room between the data and the ends of an axis, as a share of it."""
_SHADES: Final = 64
_LEAST_ROW: Final = 13.0
"""px of a category that has room for its name."""
LOG_STEPS: Final = (
    (5.0, (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)),
    (50.0, (1.0, 2.0, 5.0)),
    (400.0, (1.0, 3.0)),
)
"""Ticks within a power of ten, by the largest ratio of an axis' ends they suit."""
_NARROW: Final = 2.0
"""Ratio of ends below which a logarithmic axis has evenly spaced ticks."""


@dataclasses.dataclass(frozen=True)
class Range:
    """An axis with its ends, ticks and full title; `down`: it runs from top to
    bottom."""

    low: float
    high: float
    ticks: Ticks
    title: str
    log: bool = False
    down: bool = False

    def share(self, value: float) -> float:
        """Position of `value`: 0 at the low end, 1 at the high end, clipped."""
        if self.log:
            value = max(value, self.low)
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        place = min(max(place, 0.0), 1.0)
        return 1.0 - place if self.down else place


def ranges(
    panel: Panel, width: float, height: float, beside: Iterable[Panel] = ()
) -> tuple[Range, Range]:
    """Both axes of a panel whose data take `width` x `height` px; those `beside` it
    have the same x axis."""
    xs, ys = extent(panel.marks)
    xs += [x for other in beside for x in extent(other.marks)[0]]
    few = max(3, min(9, int(width / 70)))
    across = resolve(panel.x, xs, few)
    for _ in range(0 if across.log else 8):  # room for words narrows the bars
        across = resolve(panel.x, [*xs, *_label_ends(panel.marks, across, width)], few)
    up = resolve(panel.y, ys, max(3, min(7, int(height / 28))))
    if panel.y.names:  # as many as there is room for
        every = math.ceil(_LEAST_ROW * len(up.ticks) / height)
        up = dataclasses.replace(up, ticks=up.ticks[::every])
    return across, up


def extent(marks: Iterable[Mark]) -> tuple[list[float], list[float]]:
    """All x and all y of the marks, without NaN."""
    xs: list[float] = []
    ys: list[float] = []
    for mark in marks:
        match mark:
            case Line() | Points():
                xs += mark.x
                ys += mark.y
            case Boxes():
                xs += [*mark.left, *mark.right]
                ys += [*mark.low, *mark.high]
            case Band():
                xs += mark.x
                ys += [*mark.low, *mark.high]
            case Rule():
                (xs if mark.axis == "x" else ys).append(mark.at)
            case Label():
                pass
    return [x for x in xs if math.isfinite(x)], [y for y in ys if math.isfinite(y)]


def resolve(axis: Axis, values: Sequence[float], most: int) -> Range:
    """The axis around `values` with about `most` ticks.

    >>> resolve(Axis("time", "s", zero=True), [0.0878], 8).title
    'time, ms'
    """
    if axis.names:
        last = len(axis.names) - 0.5
        ticks = [(float(i), name) for i, name in enumerate(axis.names)]
        return Range(-0.5, last, ticks, _title(axis.title, axis.unit), down=True)
    low, high = _log_ends(axis, values) if axis.log else _ends(axis, values)
    if axis.ticks is not None:
        ticks, unit = axis.ticks, axis.unit
    elif axis.log:
        ticks, unit = _log_ticks(axis, low, high, most)
    else:
        ticks, unit = _ticks(axis, low, high, most)
    slack = 1e-9 * (high - low)
    ticks = [x for x in ticks if low - slack <= x[0] <= high + slack]
    return Range(low, high, ticks, _title(axis.title, unit), axis.log)


def _label_ends(marks: Iterable[Mark], axis: Range, width: float) -> list[float]:
    """Ends of the axis that leave room for the words behind bars."""
    ends, whole = [], axis.high - axis.low
    for mark in marks:
        if isinstance(mark, Label) and mark.side in ("left", "right"):
            room = min((len(mark.text) * CHARACTER + 10) / width, 0.75) - 0.95 * _ROOM
            ends.append(mark.x + (room if mark.side == "right" else -room) * whole)
    return ends


def _ends(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    low, high = (min(values), max(values)) if len(values) else (0.0, 1.0)
    if axis.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high <= low:
        high, low = high + (abs(high) or 1.0) * 0.05, low - abs(low) * 0.05
    room = _ROOM * (high - low)
    low = low if axis.zero and low == 0 else low - room
    high = high if axis.zero and high == 0 else high + room
    return (
        low if axis.low is None else axis.low,
        high if axis.high is None else axis.high,
    )


def _log_ends(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    positive = [x for x in values if x > 0] or [1.0]
    low, high = min(positive), max(positive)
    room = max((high / low) ** _ROOM, 1.08)
    return (
        low / room if axis.low is None else axis.low,
        high * room if axis.high is None else axis.high,
    )


def _ticks(axis: Axis, low: float, high: float, most: int) -> tuple[Ticks, str]:
    """Evenly spaced round ticks, and the unit with the prefix that suits them."""
    marks = _even(low, high, most)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    if axis.whole:
        step = max(1.0, math.ceil(step))
        marks = [float(x) for x in range(math.ceil(low), math.floor(high) + 1)]
        marks = [x for x in marks if x % step == 0]
    scale, prefix = 1.0, ""
    if axis.unit in SI:
        scale, prefix = _prefix(max(abs(low), abs(high)))
    places = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    shown = step / scale * 10**places
    if abs(shown - round(shown)) > 1e-6:  # 2.5
        places += 1
    labels = (f"{x / scale + 0.0:.{places}f}" for x in marks)
    texts = [x.replace("-", "\N{MINUS SIGN}") for x in labels]
    return list(zip(marks, texts, strict=True)), prefix + axis.unit


def _log_ticks(axis: Axis, low: float, high: float, most: int) -> tuple[Ticks, str]:
    """Ticks at 1, 2, 5 and the like, as many as suit the ends, and the unit: with a
    prefix if all share one, else none, since each tick has its own."""
    if high / low < _NARROW:
        marks = _even(low, high, most)
    else:
        within = next((s for end, s in LOG_STEPS if high / low < end), (1.0,))
        first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
        every = max(1, math.ceil((last - first) / (most + 1)))
        powers = [e for e in range(first, last + 1) if e % every == 0]
        marks = [x * 10.0**e for e in powers for x in within]
        marks = [x for x in marks if low * (1 - 1e-9) <= x <= high * (1 + 1e-9)]
    if axis.unit not in SI:
        return [(x, _plain(x)) for x in marks], axis.unit
    scales = {_prefix(x) for x in marks}
    if len(scales) == 1:
        ((scale, prefix),) = scales
        return [(x, f"{x / scale:.6g}") for x in marks], prefix + axis.unit
    texts = []
    for x in marks:
        scale, prefix = _prefix(x)
        texts.append((x, f"{x / scale:.6g} {prefix}{axis.unit}"))
    return texts, ""


def _even(low: float, high: float, most: int) -> list[float]:
    step = _step((high - low) / most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(nice for nice in _NICE if nice * power >= rough * (1 - 1e-9)) * power


def _prefix(value: float) -> tuple[float, str]:
    scale, prefix = scaled(value * (1 + 1e-9))
    return scale, prefix.replace("u", "µ")


def _plain(value: float) -> str:
    return f"{value:.6g}" if 1e-4 <= value < 1e6 else f"{value:.0e}".replace("e+", "e")


def _title(what: str, unit: str) -> str:
    return ", ".join(filter(None, (what, unit)))


def data_height(panel: Panel) -> float:
    """px of the data: what the panel asks for, or what its categories need."""
    if panel.height is not None or not panel.y.names:
        return panel.height or _HEIGHT
    lines = max(name.count("\n") + 1 for name in panel.y.names)
    return len(panel.y.names) * (_ROW + LINE * (lines - 1))


def legends(panels: Iterable[Panel]) -> list[list[Named]]:
    """Marks of the legend of every panel, the first one of each name; none where a
    panel above has the same names."""
    rows: list[list[Named]] = []
    above: set[tuple[str, ...]] = set()
    for panel in panels:
        marks: dict[str, Named] = {}
        for mark in panel.marks:
            if not isinstance(mark, Label) and mark.name:
                marks.setdefault(mark.name, mark)
        names = tuple(marks)
        rows.append([] if names in above else list(marks.values()))
        above.add(names)
    return rows


def fitting(texts: Sequence[str], room: Sequence[float]) -> list[int]:
    """Which texts are written where `room` is for so many letters: all, or none if
    most of them do not fit."""
    shown = [i for i, text in enumerate(texts) if text]
    fit = [i for i in shown if len(texts[i]) <= room[i]]
    return fit if len(fit) >= 0.9 * len(shown) else []


def shortened(name: str, most: int) -> str:
    """`name`, its middle left out if it is longer than `most` characters.

    >>> shortened("gemm 1x50257x768 bf16", 15)
    'gemm 1…768 bf16'
    """
    if len(name) <= most:
        return name
    begin = max((most - 1) // 2 - 1, 1)
    return f"{name[:begin]}…{name[len(name) - (most - 1 - begin) :]}"


def ramp(title: str, low: float, high: float) -> tuple[Scale, Callable[..., list[str]]]:
    """A scale of colours from `low` to `high`, and the colours of values on it.

    Args:
        title: what the colours mean, with its unit.
        low: least value.
        high: largest value.
    """
    if high <= low:
        high = low + (abs(low) or 1.0) * 0.01
    marks = _even(low, high, 5)
    labels = {
        round((x - low) / (high - low) * (_SHADES - 1)): f"{x:.6g}" for x in marks
    }
    colours = [viridis(i / (_SHADES - 1)) for i in range(_SHADES)]
    return Scale(title, colours, labels), lambda values: [
        viridis((x - low) / (high - low)) for x in values
    ]


def each(value: object, count: int) -> list:
    """One value for each of `count` items, of one for all or of as many."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return list(value)
    return [value] * count
