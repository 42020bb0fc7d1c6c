"""`Setting`: clocks, limit and temperature asked for; checks against the GPU."""

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..hardware import GpuCard, OperatingPoint

_MOST_SETTINGS: Final = 4096
_MOST_TEMPERATURE: Final = 95.0


class Setting(NamedTuple):
    """Clocks (Hz) and power limit (W) asked for; temperature (C) or None; whether the
    memory clock is locked or left to the board."""

    sm_clock: float
    mem_clock: float
    power_limit: float
    temperature: int | float | None = None
    mem_locked: bool = False


def operating_points(settings: Sequence[Setting]) -> OperatingPoint:
    """Settings as one record with a leading axis."""
    return OperatingPoint(*np.array(settings, dtype=float).T)  # None: NaN


def settings(
    card: GpuCard,
    sm_clock: Sequence[float] | None = None,
    mem_clock: Sequence[float] | None = None,
    power_limit: Sequence[float] | None = None,
    temperature: int | float | None = None,
) -> tuple[list[Setting], dict[str, float]]:
    """Every combination of the clocks (Hz) and limits (W) given, and what was taken
    for those that were not, in MHz and W. `ValueError` for what the GPU has not."""
    values = card.values
    taken: dict[str, float] = {}
    if sm_clock is None:
        sm_clock = (values["sm_clock_max"],)
        taken["sm_clock_mhz"] = sm_clock[0] / 1e6
    if locked := mem_clock is not None:
        _check_mem_clocks(mem_clock, card)
    else:
        mem_clock = (values["mem_clock"],)
        taken["mem_clock_mhz"] = mem_clock[0] / 1e6
    if power_limit is None:
        power_limit = (values["tdp"],)
        taken["power_limit_w"] = power_limit[0]
    _check_sm_clocks(sm_clock, card)
    _check_limits(power_limit, card)
    _check_temperature(temperature)
    found = [
        Setting(clock, memory, limit, temperature, locked)
        for memory, clock, limit in itertools.product(mem_clock, sm_clock, power_limit)
    ]
    if len(found) > _MOST_SETTINGS:
        raise ValueError(
            f"The lists of clocks and limits make {len(found)} settings; allowed "
            f"are {_MOST_SETTINGS}."
        )
    return found, taken


def unusual(points: Sequence[Setting], card: GpuCard) -> list[str]:
    """What the board itself would refuse, although the model can answer."""
    remarks = []
    lowest = card.values["power_limit_min"]
    if any(setting.power_limit < lowest for setting in points):
        remarks.append(f"{card.name} accepts no power limit below {lowest:g} W.")
    known = {*card.mem_clocks, card.values["mem_clock"]}
    if any(setting.mem_clock not in known for setting in points):
        names = ", ".join(f"{clock / 1e6:g}" for clock in sorted(known))
        remarks.append(f"{card.name} can lock its memory clock to {names} MHz only.")
    return remarks


def throttling(temperature: float) -> list[str]:
    """That a board would slow down before it is so hot."""
    if temperature <= _MOST_TEMPERATURE:
        return []
    return [
        f"the chip would reach {temperature:.0f} C, above the {_MOST_TEMPERATURE:g} C "
        "at which boards throttle; the figures are those of better cooling."
    ]


def _check_sm_clocks(clocks: Sequence[float], card: GpuCard):
    low, high = card.values["sm_clock_min"], card.values["sm_clock_max"]
    for clock in clocks:
        if not low <= clock <= high:
            raise ValueError(
                f"`sm_clock` is {clock / 1e6:g} MHz; {card.name} allows "
                f"{low / 1e6:g} to {high / 1e6:g} MHz."
            )


def _check_mem_clocks(clocks: Sequence[float], card: GpuCard):
    known = sorted({*card.mem_clocks, card.values["mem_clock"]})
    low, high = known[0] / 10, known[-1]
    for clock in clocks:
        if not low <= clock <= high:
            locked = ", ".join(f"{known_clock / 1e6:g}" for known_clock in known)
            raise ValueError(
                f"`mem_clock` is {clock / 1e6:g} MHz; {card.name} locks {locked} MHz "
                f"(what-if: {low / 1e6:g} to {high / 1e6:g} MHz)."
            )


def _check_limits(limits: Sequence[float], card: GpuCard):
    highest = card.values["power_limit_max"]
    for limit in limits:
        if not 0 < limit <= highest:
            slip = f"; if that is mW, give {limit / 1e3:g}" if limit >= 1e4 else ""
            raise ValueError(
                f"`power_limit` is {limit:g} W; {card.name} allows "
                f"{card.values['power_limit_min']:g} to {highest:g} W{slip}."
            )


def _check_temperature(value: float | None):
    if value is not None and not 0 < value <= _MOST_TEMPERATURE:
        slip = f"; if that is K, give {value - 273.15:g}" if value > 273.15 else ""
        raise ValueError(
            f"`temperature` is {value:g}; allowed are 0 to {_MOST_TEMPERATURE:g} C, "
            f"above which boards throttle{slip}."
        )
