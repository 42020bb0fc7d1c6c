"""The GPU, clocks, limits and temperature that the flags of `estimate` ask for."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from . import parse
from .flags import Flags

if TYPE_CHECKING:
    from ..hardware import GpuCard
    from ..report.summary import Setting

_DEFAULT_GPU: Final = "h100-sxm"
_MOST_SETTINGS: Final = 4096
_MOST_TEMPERATURE: Final = 95.0


def field_changes(flags: Flags) -> dict[str, float]:
    changes: dict[str, float] = {}
    for text in flags.set_field:
        field, value = parse.assignment("--set", text)
        if field in changes:
            raise ValueError(f"`--set {field}` is given twice; give it once.")
        changes[field] = value
    return changes


def gpu_card(
    flags: Flags, changes: dict[str, float]
) -> tuple["GpuCard", dict[str, str]]:
    from ..hardware import read_gpu, with_fields

    card = read_gpu(_DEFAULT_GPU if flags.gpu is None else flags.gpu)
    return with_fields(card, changes), {} if flags.gpu else {"gpu": card.name}


def is_changed(card: "GpuCard") -> bool:
    """Whether a GPU with the corrections of a bundled one has other numbers: nobody
    measured it."""
    from ..hardware import read_gpu

    if card.corrections is None:
        return False
    return card.values != read_gpu(card.corrections).values


def settings(flags: Flags, card: "GpuCard") -> tuple[list["Setting"], dict[str, float]]:
    """Every combination of the clocks and limits given, and what was taken instead."""
    from ..report.summary import Setting

    taken: dict[str, float] = {}
    values = card.values

    def default(name: str, value: float, scale: float) -> list[float]:
        taken[name] = value / scale
        return [value]

    sm = (
        _sm_clocks(flags.sm_clock, card)
        if flags.sm_clock is not None
        else default("sm_clock_mhz", values["sm_clock_max"], 1e6)
    )
    mem = (
        _mem_clocks(flags.mem_clock, card)
        if flags.mem_clock is not None
        else default("mem_clock_mhz", values["mem_clock"], 1e6)
    )
    limits = (
        _limits(flags.power_limit, card)
        if flags.power_limit is not None
        else default("power_limit_w", values["tdp"], 1.0)
    )
    temperature = _temperature(flags.temperature)
    points = itertools.product(mem, sm, limits)
    found = [Setting(f, m, w, temperature) for m, f, w in points]
    if len(found) > _MOST_SETTINGS:
        raise ValueError(
            f"The lists of clocks and limits make {len(found)} settings; allowed "
            f"are {_MOST_SETTINGS}."
        )
    return found, taken


def _sm_clocks(text: str, card: "GpuCard") -> list[float]:
    clocks = parse.clocks("--sm-clock", text)
    low, high = card.values["sm_clock_min"], card.values["sm_clock_max"]
    for clock in clocks:
        if not low <= clock <= high:
            raise ValueError(
                f"`--sm-clock` is {clock / 1e6:g} MHz; {card.name} allows "
                f"{low / 1e6:g} to {high / 1e6:g} MHz."
            )
    return clocks


def _mem_clocks(text: str, card: "GpuCard") -> list[float]:
    clocks = parse.clocks("--mem-clock", text)
    known = sorted({*card.mem_clocks, card.values["mem_clock"]})
    low, high = known[0] / 10, known[-1]
    for clock in clocks:
        if not low <= clock <= high:
            locked = ", ".join(f"{known_clock / 1e6:g}" for known_clock in known)
            raise ValueError(
                f"`--mem-clock` is {clock / 1e6:g} MHz; {card.name} locks {locked} MHz "
                f"(what-if: {low / 1e6:g} to {high / 1e6:g} MHz)."
            )
    return clocks


def _limits(text: str, card: "GpuCard") -> list[float]:
    limits = parse.positives("--power-limit", text, "W")
    highest = card.values["power_limit_max"]
    for limit in limits:
        if limit > highest:
            slip = f"; if that is mW, give {limit / 1e3:g}" if limit >= 1e4 else ""
            raise ValueError(
                f"`--power-limit` is {limit:g} W; {card.name} allows "
                f"{card.values['power_limit_min']:g} to {highest:g} W{slip}."
            )
    return limits


def unusual(points: Sequence["Setting"], card: "GpuCard") -> list[str]:
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


def _temperature(text: str | None) -> float | None:
    if text is None:
        return None
    value = parse.positive("--temperature", text, "C")
    if value > _MOST_TEMPERATURE:
        slip = f"; if that is K, give {value - 273.15:g}" if value > 273.15 else ""
        raise ValueError(
            f"`--temperature` is {value:g}; allowed are 0 to {_MOST_TEMPERATURE:g} C, "
            f"above which boards throttle{slip}."
        )
    return value
