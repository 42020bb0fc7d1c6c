"""What smoothing costs: a floor and a store, in closed form on a curve."""

from typing import Any, Final, NamedTuple

import numpy as np

from ._curve import PowerCurve
from ._request import Smoothing

EFFICIENCY: Final = 0.95
"""Of a store one way: what is given back is charged with 1 / EFFICIENCY^2 of it."""


class Smoothed(NamedTuple):
    """A curve behind a smoothing: `burn` J of dummy work and lost in a store; `storage`
    J of a GPU would make the curve flat."""

    curve: PowerCurve
    burn: float
    storage: float

    def to_json(self) -> dict[str, Any]:
        """`smoothing` of an answer."""
        low, high = float(self.curve.watts.min()), float(self.curve.watts.max())
        return {
            "burn_j": self.burn,
            "swing_w": high - low,
            "peak_w": high,
            "storage_j": self.storage,
        }


def smoothed(curve: PowerCurve, how: Smoothing, gpus: int, tdp: float) -> Smoothed:
    """What a curve of `gpus` boards of `tdp` W becomes: a floor burns the joules below
    it; a store then narrows what is left."""
    watts, burn = curve.watts, 0.0
    if how.floor is not None:
        watts = np.maximum(watts, how.floor * tdp * gpus)
        burn += float((watts - curve.watts) @ np.diff(curve.edges))
    result = PowerCurve(curve.edges, watts, curve.periodic)
    if how.storage is not None:
        result, lost = _stored(result, how.storage * gpus)
        burn += lost
    return Smoothed(result, burn, stored_joules(curve) / gpus)


def stored_joules(curve: PowerCurve, drawn: PowerCurve | None = None) -> float:
    """Energy (J) that a store has to hold so that the grid supplies `drawn` [the mean
    power of the curve]: the range of the integral of their difference."""
    grid = curve.mean if drawn is None else drawn.watts
    total = np.cumsum((curve.watts - grid) * np.diff(curve.edges))
    total = np.append(0.0, total)
    return float(total.max() - total.min())


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
