"""`Setting`: clocks, limit and temperature asked for; checks against the GPU."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from ...hardware import GpuCard, OperatingPoint, mem_clocks, sm_clocks, unsupported
from ...physics import MAX_TEMPERATURE
from ...units import MHz

_MOST_SETTINGS: Final = 4096


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


def point_of(setting: Setting) -> OperatingPoint:
    """A setting as a record of single numbers, which stay with NumPy: to put each on
    the device takes longer than all other checks."""
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    return jax.tree.unflatten(_point(), np.array(setting, "f8" if wide else "f4"))


@functools.cache
def _point() -> Any:
    return jax.tree.structure(OperatingPoint(1e9, 1e9, 1.0))


def settings(
    card: GpuCard,
    sm_clock: Sequence[float] | None = None,
    mem_clock: Sequence[float] | None = None,
    power_limit: Sequence[float] | None = None,
    temperature: int | float | None = None,
) -> tuple[list[Setting], dict[str, float]]:
    """Every combination of the clocks (Hz) and limits (W) given, and what was taken
    for those that were not, in MHz and W. `ValueError` for what the GPU has not: values
    outside its range everywhere, steps between its clocks where they are set."""
    values = card.values
    defaults: dict[str, float] = {}
    if sm_clock is None:
        sm_clock = (values["sm_clock_max"],)
        defaults["sm_clock_mhz"] = sm_clock[0] / MHz
    locked = mem_clock is not None
    if mem_clock is None:
        mem_clock = (values["mem_clock"],)
        defaults["mem_clock_mhz"] = mem_clock[0] / MHz
    if power_limit is None:
        power_limit = (values["tdp"],)
        defaults["power_limit_w"] = power_limit[0]
    memory = mem_clocks(card)
    ends = (values["sm_clock_min"], values["sm_clock_max"])
    _check_range("sm_clock", sm_clock, ends, card)
    ends = (float(memory[0]), float(memory[-1]))
    _check_range("mem_clock", mem_clock, ends, card)
    ends = (values["power_limit_min"], values["power_limit_max"])
    _check_range("power_limit", power_limit, ends, card, ("W", 1.0))
    _check_temperature(temperature)
    combinations = [
        Setting(clock, memory, limit, temperature, locked)
        for memory, clock, limit in itertools.product(mem_clock, sm_clock, power_limit)
    ]
    if len(combinations) > _MOST_SETTINGS:
        raise ValueError(
            f"The lists of clocks and limits make {len(combinations)} settings; "
            f"allowed are {_MOST_SETTINGS}."
        )
    return combinations, defaults


def unavailable(
    card: GpuCard,
    sm_clock: float | None = None,
    mem_clock: float | None = None,
    power_limit: float | None = None,
) -> ValueError | None:
    """Why a board has not such a setting (Hz, Hz, W); None where it has."""

    def alone(value: float | None) -> Sequence[float] | None:
        return None if value is None else (value,)

    try:
        settings(card, alone(sm_clock), alone(mem_clock), alone(power_limit))
    except ValueError as error:
        return error
    return None


def of_clocks(point: OperatingPoint, card: GpuCard) -> list[str]:
    """Remarks on clocks of an operating point that the board cannot be locked to."""
    clocks = float(point.sm_clock), float(point.mem_clock)
    return unusual([Setting(*clocks, power_limit=float(point.power_cap))], card)


def unusual(points: Sequence[Setting], card: GpuCard) -> list[str]:
    """Clocks between those that the board can be locked to, although the model can
    answer."""
    remarks = []
    domains = {
        "SM": ({x.sm_clock for x in points}, sm_clocks(card)),
        "memory": ({x.mem_clock for x in points}, mem_clocks(card)),
    }
    for word, (chosen, steps) in domains.items():
        clocks = np.array(sorted(chosen))
        for clock in unsupported(clocks, steps):
            near = np.sort(steps[np.argsort(np.abs(steps - clock))[:2]]) / MHz
            remarks.append(
                f"{card.name} cannot set its {word} clock to {clock / MHz:g} MHz; "
                f"nearest: {', '.join(f'{x:g}' for x in near)} MHz."
            )
    return remarks


def throttling(temperature: float) -> list[str]:
    """Warning that a board would slow down before it is so hot; else none."""
    if temperature <= MAX_TEMPERATURE:
        return []
    return [
        f"the chip would reach {temperature:.0f} C, above the {MAX_TEMPERATURE:g} C "
        "at which boards throttle; the figures are those of better cooling."
    ]


def _check_range(
    name: str,
    values: Sequence[float],
    ends: tuple[float, float],
    card: GpuCard,
    unit: tuple[str, float] = ("MHz", MHz),
) -> None:
    """Raises `ValueError` at the first of `values` outside what the board accepts: one
    rule for clocks and limits, wherever they are asked for."""
    word, size = unit
    low, high = (end / size for end in ends)
    span = f"{low:g} to {high:g}" if low < high else f"{low:g}"
    for value in values:
        if not ends[0] <= value <= ends[1]:
            raise ValueError(
                f"`{name}` is {value / size:g} {word}; {card.name} allows {span} "
                f"{word}{_slip(value, word, ends)}."
            )


def _slip(value: float, word: str, ends: tuple[float, float]) -> str:
    """The unit that makes a clock (Hz) or a limit (W) one that the board accepts, and
    what to give; "" where there is none."""
    hertz = {"kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
    scales = {"W": {"mW": 1e-3, "kW": 1e3}, "MHz": hertz}
    for unit, scale in scales[word].items():
        if ends[0] <= value * scale <= ends[1]:
            return f"; if that is {unit}, give {value * scale:g}"
    return ""


def _check_temperature(value: float | None):
    if value is not None and not 0 < value <= MAX_TEMPERATURE:
        slip = f"; if that is K, give {value - 273.15:g}" if value > 273.15 else ""
        raise ValueError(
            f"`temperature` is {value:g}; allowed are 0 to {MAX_TEMPERATURE:g} C, "
            f"above which boards throttle{slip}."
        )
