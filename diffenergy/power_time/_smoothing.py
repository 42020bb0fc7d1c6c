"""What smoothing costs: a floor, ramps and a store, in closed form on curves."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ._curve import PowerCurve, total
from ._request import Smoothing

EFFICIENCY: Final = 0.95
"""Of a store one way: what is given back is charged with 1 / EFFICIENCY^2 of it."""
_PIECE: Final = 0.02
"""s of the pieces of constant power that a ramp is drawn in: supplies bridge them."""
_MOST_PIECES: Final = 2000


class Boards(NamedTuple):
    """`number` boards that draw the same `curve` each."""

    curve: PowerCurve
    number: float


class Smoothed(NamedTuple):
    """A curve of all boards behind a smoothing: `burn` J of dummy work, drawn while
    work waits and lost in a store; `time` s that ramps up delay the work; `storage` J
    of a GPU would make the curve flat; `floor`: W of all boards."""

    curve: PowerCurve
    gpus: int
    burn: float
    time: float
    storage: float
    floor: float | None

    def to_json(self) -> dict[str, Any]:
        """`smoothing` of an answer."""
        low, high = float(self.curve.watts.min()), float(self.curve.watts.max())
        return {
            "burn_j": self.burn,
            "time_s": self.time,
            "swing_w": high - low,
            "peak_w": high,
            "storage_j": self.storage,
            "floor_w": self.floor,
        }


def smoothed(
    boards: Sequence[Boards], how: Smoothing, tdp: float, limit: float, idle: float
) -> Smoothed:
    """What the curves of all `boards` of `tdp` W become together. Floor and ramps down
    are each board's own and burn joules. A ramp up delays the work of all boards alike:
    the power above `idle` (W of a board that waits) is what works. A store then narrows
    the sum.

    Raises `ValueError` where the floor is above the power `limit` (W) of a board.
    """
    if how.floor is not None and how.floor * tdp > limit:
        raise ValueError(
            f"`smooth` has floor={how.floor:g}, {how.floor * tdp:.0f} W of a board, "
            f"above its power limit of {limit:.0f} W; give at most "
            f"{math.floor(100 * limit / tdp) / 100:g}."
        )
    gpus = round(sum(x.number for x in boards))
    demand = total([(x.curve, x.number) for x in boards])
    result, lost = total([(_lifted(x.curve, how, tdp), x.number) for x in boards]), 0.0
    if how.up is not None:
        result = _climbed(result, how.up * gpus, idle * gpus)
    if how.storage is not None:
        result, lost = _stored(result, how.storage * gpus)
    burn = max(0.0, result.energy - demand.energy) + lost
    later = 0.0 if how.up is None else max(0.0, result.time - demand.time)
    floor = None if how.floor is None else how.floor * tdp * gpus
    return Smoothed(result, gpus, burn, later, stored_joules(demand) / gpus, floor)


def _lifted(curve: PowerCurve, how: Smoothing, tdp: float) -> PowerCurve:
    """The power of a board with a floor and a ramp down."""
    if how.floor is not None:
        floor = how.floor * tdp
        curve = PowerCurve(curve.edges, np.maximum(curve.watts, floor), curve.periodic)
    if how.down is None:
        return curve
    return _descended(curve, how.down, how.hysteresis or 0.0)


def _descended(curve: PowerCurve, rate: float, hold: float) -> PowerCurve:
    """A curve that falls by `rate` W/s at most, and not before `hold` s after its
    demand: a fall by dP burns dP hold + dP^2 / (2 rate).

    A recurrence over the slices, with what is drawn and what is left of the hold
    carried from each to the next; over two periods of a periodic curve, of which the
    second is periodic.
    """
    slices = list(zip(np.diff(curve.edges).tolist(), curve.watts.tolist(), strict=True))
    power, left = slices[0][1], hold
    pieces = _Pieces()
    for _ in range(2 if curve.periodic else 1):
        pieces = _Pieces()
        for width, demand in slices:
            if demand >= power:
                power, left = demand, hold
                pieces.add(width, power)
                continue
            still = min(left, width)
            pieces.add(still, power)
            left, width = left - still, width - still
            falling = min(width, (power - demand) / rate)
            pieces.ramp(falling, power, -rate)
            power -= rate * falling
            if width > falling:
                power, left = demand, hold
                pieces.add(width - falling, demand)
    return pieces.curve(curve)


def _climbed(curve: PowerCurve, rate: float, idle: float) -> PowerCurve:
    """A curve that rises by `rate` W/s at most; what it draws above `idle` W is work,
    of which every slice has to do as much as before, so that slices take longer: a rise
    by dP above idle delays the work by dP / (2 rate)."""
    slices = list(zip(np.diff(curve.edges).tolist(), curve.watts.tolist(), strict=True))
    idle = min(idle, float(curve.watts.min()))
    # behind the lowest slice a periodic curve is where its next period is
    power = math.inf if curve.periodic else slices[0][1]
    pieces = _Pieces()
    for _ in range(2 if curve.periodic else 1):
        pieces = _Pieces()
        for width, demand in slices:
            if demand <= power:
                power = demand
                pieces.add(width, power)
                continue
            work, above = (demand - idle) * width, power - idle
            climbing = (demand - power) / rate
            if above * climbing + rate * climbing**2 / 2 >= work:
                # rate t^2 / 2 + above t = work
                root = math.sqrt(above**2 + 2 * rate * work)
                climbing = 2 * work / (root + above)
            pieces.ramp(climbing, power, rate)
            work -= above * climbing + rate * climbing**2 / 2
            power = min(demand, power + rate * climbing)
            pieces.add(max(0.0, work) / (demand - idle), power)
    return pieces.curve(curve)


class _Pieces:
    """Slices of constant power, one after another."""

    def __init__(self):
        self.widths: list[float] = []
        self.watts: list[float] = []

    def add(self, width: float, watts: float):
        """A slice of `width` s."""
        self.widths.append(width)
        self.watts.append(watts)

    def ramp(self, width: float, watts: float, rate: float):
        """Slices of a ramp of `width` s from `watts` on, with its joules."""
        if width <= 0:
            return
        number = min(max(math.ceil(width / _PIECE), 1), _MOST_PIECES)
        piece = width / number
        for i in range(number):
            self.add(piece, watts + rate * piece * (i + 0.5))

    def curve(self, like: PowerCurve) -> PowerCurve:
        """As a curve that begins where another does."""
        edges = like.edges[0] + np.append(0.0, np.cumsum(self.widths))
        return PowerCurve(edges, np.array(self.watts), like.periodic)


def stored_joules(curve: PowerCurve, drawn: PowerCurve | None = None) -> float:
    """Energy (J) that a store has to hold so that the grid supplies `drawn` [the mean
    power of the curve]: the range of the integral of their difference."""
    grid = curve.mean if drawn is None else drawn.watts
    taken = np.cumsum((curve.watts - grid) * np.diff(curve.edges))
    taken = np.append(0.0, taken)
    return float(taken.max() - taken.min())


def _stored(curve: PowerCurve, storage: float) -> tuple[PowerCurve, float]:
    """A curve behind a store of `storage` J, which takes as many joules below one power
    as it gives back above another, and the J that are lost in it."""
    width = np.diff(curve.edges)

    def clipped(joules: float) -> PowerCurve:
        """What the grid supplies where the store gives back `joules`."""
        high = _level(curve.watts, width, joules)
        low = -_level(-curve.watts, width, joules)
        return PowerCurve(curve.edges, np.clip(curve.watts, low, high), curve.periodic)

    most = float((np.maximum(curve.watts - curve.mean, 0.0) * width).sum())
    low, high = 0.0, most
    if stored_joules(curve, clipped(most)) <= storage:
        low = most
    for _ in range(60 if low < most else 0):
        middle = (low + high) / 2
        if stored_joules(curve, clipped(middle)) <= storage:
            low = middle
        else:
            high = middle
    return clipped(low), (1 / EFFICIENCY**2 - 1) * low


def _level(watts: np.ndarray, width: np.ndarray, joules: float) -> float:
    """The power (W) above which the curve has `joules`."""
    order = np.argsort(-watts)
    power, time = watts[order], np.cumsum(width[order])
    above = np.append(0.0, np.cumsum(-np.diff(power) * time[:-1]))
    place = int(np.searchsorted(above, joules, side="right")) - 1
    return float(power[place] - (joules - above[place]) / time[place])
