"""Lagrangian search along the launch order: plans, and lines that bound all of them.

At a price of time every schedule has energy + price x time of at least what the dynamic
programme finds: a half-plane in the time-energy plane. The schedules found on the way
are plans.

A stage that would pass its power cap runs slower: its time is worth less than the time
of the others. With a multiplier n of its cap P, energy E and time T, E + price T +
n (E - P T) is still below energy + price x time of every plan that keeps the cap.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ..physics import stage_slope, stage_time, tangent_offset
from ._free import restricted
from ._hulls import Line
from ._paths import Path, Prices, cheapest, cheapest_ahead, dwell, lasting
from ._positions import Positions
from ._problem import (
    TIE,
    Total,
    by_stage,
    cool_stages,
    default_total,
    sums,
    total,
    within_caps,
)

_PRICES: Final = 24
"""Most prices tried between a fast and a lean plan."""
_BENDS: Final = 5
"""Most tangents of the stage times for each price."""
_SAME_SLOPE: Final = 0.02
"""Difference to the slope of the plan at which a tangent is good enough."""
_HALVINGS: Final = 16
_STEEP: Final = 30.0
"""Price at which a stage is about as fast as it can be, in mean powers."""

Oracle = Callable[[Positions, Prices], Path]


def _gathered() -> Any:
    return dataclasses.field(default_factory=list, init=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Plans of `places` by an `oracle` that answers prices, and the half-planes energy
    + `price` x time >= `least`."""

    places: Positions
    oracle: Oracle
    latency: float | None  # s that a setting stays at least; None: any time
    cool: Positions | None  # settings within the caps; None without caps
    ceiling: Float[np.ndarray, " stage"]  # W, price of time above which a cap is passed
    settings: list[Int[np.ndarray, " position"]] = _gathered()
    time: list[float] = _gathered()
    energy: list[float] = _gathered()
    price: list[float] = _gathered()
    least: list[float] = _gathered()

    @property
    def total(self) -> Total:
        """Totals of the plans."""
        return Total(np.array(self.time), np.array(self.energy))

    def line(self) -> Line:
        """Lower boundary of the half-planes' intersection."""
        order = np.lexsort((np.negative(self.least), np.negative(self.price)))
        price, least = np.array(self.price)[order], np.array(self.least)[order]
        _, firsts = np.unique(-price, return_index=True)
        price, least = price[firsts], least[firsts]
        i, j = np.triu_indices(len(price), 1)
        x = (least[i] - least[j]) / (price[i] - price[j])
        y = least[i] - price[i] * x
        above = y + price[:, None] * x >= least[:, None] - 1e-9 * np.abs(least[:, None])
        corner = np.flatnonzero(above.all(0))
        corner = corner[np.lexsort((y[corner], x[corner]))]
        x, y = x[corner], y[corner]
        x[:1] *= 1 - TIE  # the fastest plan itself lies on the line
        return Line(x, y)

    def add(self, settings: Int[np.ndarray, " position"]) -> Total | None:
        """Keeps a plan if its clocks and caps hold; its totals."""
        problem = self.places.problem
        took = self.places.spent(settings)
        if not np.all(np.isfinite(took.time)) or not within_caps(problem, took):
            return None
        if self.latency and not lasting(self.places, settings, self.latency):
            return None
        exact = total(problem, took)
        self.settings.append(settings)
        self.time.append(float(exact.time))
        self.energy.append(float(exact.energy))
        return exact

    def at(self, price: float) -> int:
        """Index of the best plan found at a price of time (W); -1 if all break caps."""
        first = len(self.time)
        self._bend(price)
        # If all break a cap: settings at which each kernel keeps it by itself.
        if self.cool is not None and len(self.time) == first:
            prices = np.full(len(self.ceiling), price)
            flat = Prices(prices, np.ones_like(prices))
            self.add(self.oracle(self.cool, flat).settings)
        time, energy = (x[first:] for x in self.total)
        return first + int(np.argmin(energy + price * time)) if len(time) else -1

    def _bend(self, price: float) -> None:
        """Adds the cheapest plans and their half-planes.

        A stage time is at least its tangent of any slope: prices per stage. Halving
        finds the slope that the plan has itself. A stage at its cap has a weight above
        1, which makes its time cheaper (`_weights`).
        """
        problem = self.places.problem
        rate, host = problem.wait_power + price, problem.host_time
        slope = stage_slope(self._guess(), host)
        low, high = np.zeros_like(host), np.ones_like(host)
        for _ in range(_BENDS):
            weight, credit, rest = _weights(self.places, self.ceiling, rate * slope)
            time = (rate * slope - credit) / weight - problem.wait_power
            path = self.oracle(self.places, Prices(time, weight))
            rest = rest + rate * tangent_offset(slope, host)
            self.price.append(price)
            self.least.append(path.value + float(np.sum(rest)))
            self.add(path.settings)
            at_path = stage_slope(self.places.spent(path.settings).time, host)
            if np.abs(at_path - slope).max() < _SAME_SLOPE:
                return
            low = np.where(at_path > slope, slope, low)
            high = np.where(at_path < slope, slope, high)
            slope = 0.5 * (low + high)

    def _guess(self) -> Float[np.ndarray, " stage"]:
        """GPU times of the newest plan, or the default's."""
        if self.settings:
            return self.places.spent(self.settings[-1]).time
        problem = self.places.problem
        return by_stage(problem, problem.count * problem.default_time)

    def between(
        self, fast: int, lean: int, quick: Callable[[Total], bool]
    ) -> tuple[int, int]:
        """Neighbours on the hull, between a fast and a lean plan, beside a limit.

        `quick` says on which side of the limit a plan is.
        """
        time, energy = self.time, self.energy
        for _ in range(_PRICES):
            if time[lean] <= time[fast] or energy[fast] <= energy[lean]:
                break
            price = (energy[fast] - energy[lean]) / (time[lean] - time[fast])
            new = self.at(price)
            if new < 0:
                break
            level = energy[fast] + price * time[fast]
            if energy[new] + price * time[new] >= level * (1 - 1e-10):
                break
            if quick(Total(np.asarray(time[new]), np.asarray(energy[new]))):
                fast = new
            else:
                lean = new
        return fast, lean


def search(places: Positions, latency: float | None) -> Search:
    """A search with stalls, or (`latency` in s) with settings that stay that long."""
    cool, oracle = cool_settings(places), cheapest
    if latency is not None:
        stays = {id(p): dwell(p, latency) for p in (places, cool) if p}

        def oracle(places: Positions, prices: Prices) -> Path:
            return cheapest_ahead(places, stays[id(places)], prices)

    return Search(places, oracle, latency, cool, _ceilings(places, oracle))


# --- caps on the power of a stage


def _ceilings(places: Positions, oracle: Oracle) -> Float[np.ndarray, " stage"]:
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
    """Whether each stage passes its cap at prices of GPU time."""
    path = oracle(places, Prices(time, np.ones_like(time)))
    return ~cool_stages(places.problem, places.spent(path.settings))


def _weights(
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
    """`places` restricted to settings at which each kernel itself keeps its cap."""
    problem = places.problem
    if np.all(np.isinf(problem.power_cap)):
        return None
    power = problem.power
    allowed = power <= problem.power_cap[problem.stage][:, None]
    lowest = power <= power.min(1, keepdims=True)
    usable = allowed | (lowest & ~allowed.any(1, keepdims=True))
    return dataclasses.replace(places, problem=restricted(problem, usable))
