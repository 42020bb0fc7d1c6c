"""Caps on the power of a stage, along the launch order.

A stage that would pass its cap runs slower: its time is worth less than the time of the
others. With a multiplier n of its cap P, energy E and time T, E + price T + n (E - P T)
is still below energy + price x time of every plan that keeps the cap.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from .._free.free import restricted
from .._problem.totals import cool_stages, default_total, stage_time, sums
from .positions import Positions
from .stall import Path, Prices

_HALVINGS: Final = 16
_STEEP: Final = 30.0
"""Price at which a stage is about as fast as it can be, in mean powers."""

Oracle = Callable[[Positions, Prices], Path]


def ceilings(places: Positions, oracle: Oracle) -> Float[np.ndarray, " stage"]:
    """Price of GPU time (W) above which a stage passes its cap; infinite if none does.

    By bisection, for all stages at once.
    """
    problem = places.problem
    stages = len(problem.stages)
    if np.isinf(problem.power_cap).all():
        return np.full(stages, np.inf)
    default = default_total(problem)
    steep = np.full(stages, _STEEP * float(default.energy / default.time))
    over = _over(places, oracle, steep)
    if not over.any():
        return np.full(stages, np.inf)
    low, high = np.where(over, -problem.power_cap, steep), steep
    for _ in range(_HALVINGS):
        middle = np.where(over, 0.5 * (low + high), steep)
        hot = _over(places, oracle, middle)
        low, high = np.where(hot, low, middle), np.where(hot, middle, high)
    return np.where(over, low, np.inf)


def _over(
    places: Positions, oracle: Oracle, time: Float[np.ndarray, " stage"]
) -> Bool[np.ndarray, " stage"]:
    """Which stages pass their caps at prices of GPU time."""
    path = oracle(places, Prices(time, np.ones_like(time)))
    return ~cool_stages(places.problem, places.spent(path.settings))


def weights(
    places: Positions,
    ceiling: Float[np.ndarray, " stage"],
    price: Float[np.ndarray, " stage"],
) -> tuple[
    Float[np.ndarray, " stage"],
    Float[np.ndarray, " stage"],
    Float[np.ndarray, " stage"],
]:
    """1 + n, what a second of GPU time is credited (W), and a constant (J).

    n is such that time costs `ceiling` where it would cost more. `price` (W) is that of
    GPU time and waiting. The stage time is at most a chord over all GPU times.
    """
    problem = places.problem
    slope, rest = _chord(places)
    capped = np.isfinite(ceiling)
    cap = np.where(capped, problem.power_cap, 0.0) - problem.wait_power
    top = np.where(capped, ceiling, 0.0) + problem.wait_power
    room = top + cap * slope
    usable = capped & (price > top) & (room > 1e-3 * np.abs(cap)) & (cap > 0)
    multiplier = np.where(usable, (price - top) / np.where(usable, room, 1.0), 0.0)
    return 1 + multiplier, multiplier * cap * slope, -multiplier * cap * rest


def _chord(
    places: Positions,
) -> tuple[Float[np.ndarray, " stage"], Float[np.ndarray, " stage"]]:
    """Slope and offset (s) of a line above the stage time."""
    problem, num = places.problem, len(places.problem.stages)
    usable = problem.usable[places.kernel]
    most = np.where(usable, places.time, 0.0).max(1)
    most = most + places.stall * (places.entered + places.again.sum())
    low = sums(places.time.min(1), places.stage, num)
    high = sums(most, places.stage, num)
    ends = stage_time(low, problem.host_time), stage_time(high, problem.host_time)
    run = high - low
    slope = np.where(run > 0, (ends[1] - ends[0]) / np.where(run > 0, run, 1.0), 1.0)
    return slope, ends[0] - slope * low


def cool_settings(places: Positions) -> Positions | None:
    """The same places with the settings at which a kernel itself keeps its cap."""
    problem = places.problem
    if np.all(np.isinf(problem.power_cap)):
        return None
    power = problem.power
    allowed: Bool[np.ndarray, "kernel setting"] = (
        power <= problem.power_cap[problem.stage][:, None]
    )
    lowest = power <= power.min(1, keepdims=True)
    return dataclasses.replace(
        places,
        problem=restricted(
            problem, allowed | (lowest & ~allowed.any(1, keepdims=True))
        ),
    )
