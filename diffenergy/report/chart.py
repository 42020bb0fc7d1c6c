"""`chart`: a small chart in plain text, lines in braille, for a terminal."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .format import si

WIDTH: Final = 60
HEIGHT: Final = 15
"""Characters and lines of a chart, its axes and their names included."""
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""Bit of each dot of a braille character: 4 rows, 2 columns."""
_BLANK: Final = 0x2800
_BESIDE: Final = 4
"""Lines that are not the drawing: name of y, axis of x, its ticks, its name."""
_ROOM: Final = 0.04
"""Share of the range that is left free on either side."""
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Of ticks, times a power of ten."""


class Axis(NamedTuple):
    """Name of an axis and its unit; units of SI get prefixes, "%" and "MHz" none."""

    name: str
    unit: str


class Mark(NamedTuple):
    """A point with a character of its own and what it stands for, if it is named."""

    symbol: str
    x: float
    y: float
    name: str


def chart(
    curves: Sequence[Float[np.ndarray, "point 2"]],
    marks: Sequence[Mark],
    x: Axis,
    y: Axis,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> str:
    """Curves (points in order, joined by lines) and marks over labelled axes, `width`
    characters and `height` lines; below, a line for each mark that has a name.

    Points that are not finite interrupt a curve. Raises `ValueError` if nothing is
    left to draw.
    """
    every = [*curves, np.array([[mark.x, mark.y] for mark in marks]).reshape(-1, 2)]
    known = np.concatenate(every).astype(float)
    known = known[np.isfinite(known).all(axis=1)]
    if not len(known):
        raise ValueError("the chart has no points; give at least one.")
    low, high = _range(known)
    rows = height - _BESIDE
    down = _ticks(float(low[1]), float(high[1]), max(2, rows // 2))
    names = _tick_names(down, y.unit)
    left = max(len(name) for name in names)
    columns = max(8, width - left - 2)
    lit = np.zeros((4 * rows, 2 * columns), dtype=bool)
    for curve in curves:
        _draw(lit, (np.asarray(curve, float) - low) / (high - low))
    cells = _braille(lit)
    at: dict[Mark, tuple[int, int]] = {}
    for mark in marks:
        place = (np.array([mark.x, mark.y]) - low) / (high - low)
        if np.isfinite(place).all():
            column = min(int(place[0] * columns), columns - 1)
            row = min(int((1 - place[1]) * rows), rows - 1)
            cells[row][column] = mark.symbol
            at[mark] = (row, column)
    lines = [y.name]
    ends = float(low[1]), float(high[1])
    ticked = {_row(down[i], *ends, rows): name for i, name in enumerate(names)}
    for row in range(rows):
        edge, name = "┤" if row in ticked else "│", ticked.get(row, "")
        lines.append(f"{name:>{left}} {edge}{''.join(cells[row])}".rstrip())
    lines += _below(float(low[0]), float(high[0]), x, left, columns)
    for mark in marks:
        if mark.name:
            row, column = at.get(mark, (0, 0))
            above = cells[row][column] if mark in at else mark.symbol
            where = f" (at {above})" if above != mark.symbol else ""
            lines.append(f"{mark.symbol} {mark.name}{where}")
    return "\n".join(lines)


def _range(
    points: Float[np.ndarray, "point 2"],
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]]:
    """Ends of both axes, with some room."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.maximum(np.abs(low), np.abs(high))
    room = np.where(high > low, _ROOM * (high - low), np.maximum(0.1 * size, 1e-300))
    return low - room, high + room


def _draw(
    lit: Bool[np.ndarray, "row column"], curve: Float[np.ndarray, "point 2"]
) -> None:
    """Lights the dots of a curve; its points are shares of width and height."""
    rows, columns = lit.shape
    ends = curve[1:] if len(curve) > 1 else curve  # a single point joins itself
    for begin, end in zip(curve, ends, strict=False):
        if not (np.isfinite(begin).all() and np.isfinite(end).all()):
            continue
        far = np.abs((end - begin) * [columns, rows]).max()
        along = np.linspace(begin, end, 2 + 2 * math.ceil(far))
        column = np.minimum((along[:, 0] * columns).astype(int), columns - 1)
        row = np.minimum(((1 - along[:, 1]) * rows).astype(int), rows - 1)
        lit[row, column] = True


def _braille(lit: Bool[np.ndarray, "row column"]) -> list[list[str]]:
    """Characters, 4 rows and 2 columns of dots each."""
    rows, columns = lit.shape
    blocks = lit.reshape(rows // 4, 4, columns // 2, 2)
    codes = np.einsum("iajb,ab->ij", blocks, _DOTS)
    return [[chr(_BLANK + code) if code else " " for code in line] for line in codes]


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers from `low` to `high`, at least one."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (*_STEPS, 20.0, 50.0, 100.0):
        first = math.ceil(low / (step * power) - 1e-9)
        last = math.floor(high / (step * power) + 1e-9)
        if 0 < last - first + 1 <= most:
            return [n * step * power for n in range(first, last + 1)]
    return [(low + high) / 2]


def _tick_names(ticks: Sequence[float], unit: str) -> list[str]:
    """Ticks with their unit, all with the prefix of the largest."""
    largest = max(abs(tick) for tick in ticks)
    if unit in ("%", "MHz", "mm2", "") or largest == 0:
        return [f"{_plain(tick)}{' ' + unit if unit else ''}" for tick in ticks]
    number, prefixed = si(largest, unit).split(" ", 1)
    scale = 10.0 ** (3 * round(math.log10(largest / float(number)) / 3))
    return [f"{_plain(tick / scale)} {prefixed}" for tick in ticks]


def _plain(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.5g}"


def _row(value: float, low: float, high: float, rows: int) -> int:
    """Line of a value, from the top."""
    return min(int((1 - (value - low) / (high - low)) * rows), rows - 1)


def _below(low: float, high: float, x: Axis, left: int, columns: int) -> list[str]:
    """Ticks of x with their names, and the name of x."""
    ticks = _ticks(low, high, max(2, columns // 12))
    edge, words = ["─"] * columns, [" "] * (left + 2 + columns)
    for tick, name in zip(ticks, _tick_names(ticks, x.unit), strict=True):
        column = min(int((tick - low) / (high - low) * columns), columns - 1)
        edge[column] = "┬"
        first = left + 2 + column - len(name) // 2
        first = max(0, min(first, len(words) - len(name)))
        words[first : first + len(name)] = name
    return [
        f"{' ' * left} └{''.join(edge)}",
        "".join(words).rstrip(),
        f"{x.name:>{left + 2 + columns}}",
    ]
