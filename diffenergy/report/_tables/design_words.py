"""Numbers of designs, their multipliers and objectives in words and common units."""

import math
from typing import Final

from ...codesign import TILES, UNITS, rule_of
from .._format import Entry, digits, plain, si

_PREFIXED: Final = ("Hz", "B", "B/s", "s", "W", "V", "B/SM")
METRIC_KEYS: Final = {
    "time": "time_s",
    "energy": "energy_j",
    "area": "area_mm2",
    "energy_per_token": "energy_j_per_token",
    "cost": "cost",
}
"""Key of each objective that is a metric of the summary."""
_STEPS: Final = {
    "Hz": (1e6, "MHz"),
    "B": (1e6, "MB"),
    "B/SM": (1e3, "kB a SM"),
    "B/s": (1e9, "GB/s"),
    "s": (1e-3, "ms"),
    "share of DRAM": (1e-2, "%"),
}
"""Increment for which a multiplier is printed, by unit; otherwise one unit."""
_WORDS: Final = {
    "num_sms": "SM",
    "max_latency": "latency",
    "max_power": "mean power",
    "max_area": "area",
    "max_cost": "cost",
    "max_ttft": "TTFT",
    "max_tpot": "TPOT",
    "dram_capacity": "DRAM capacity",
    "tdp": "TDP",
}
_CAPITALS: Final = ("sm", "l1", "l2", "dram", "smem", "fma", "sfu", "vf", "cta")


def active_lines(summary: Entry) -> list[str]:
    """Return a line on what each active limit or bound costs."""
    lines = [
        _active(summary, active)
        for active in summary["active_constraints"]
        if active["multiplier"] is not None
    ]
    return lines or ["no limit or bound holds the design back"]


def effort_line(summary: Entry) -> str:
    """Return a line on the number of evaluations and the time of the search."""
    cut = ", interrupted" if summary["interrupted"] else ""
    return (
        f"{summary['evaluations']:,} model evaluations (a gradient counts as three) in "
        f"{digits(summary['wall_s'], 3)} s, seed {summary['seed']}{cut}"
    )


def design_words(fields: Entry) -> str:
    """Return the fields of a design in one line."""
    words = [
        f"{name} {field_text(name, value)}"
        for name, value in fields.items()
        if name != TILES
    ]
    return ", ".join(words) or "tiles alone"


def field_text(name: str, value: float | str) -> str:
    """Return a field's value with its unit.

    >>> field_text("dram_bandwidth", 3.352e12), field_text("num_sms", 132.0)
    ('3.352 TB/s', '132')
    """
    if isinstance(value, str):
        return value
    unit = unit_of(name)
    if unit in _PREFIXED:
        return si(value, unit)
    return plain(value)


def in_unit(metric: str, value: float | None) -> str:
    """Return a metric's value with its unit.

    >>> in_unit("time", 0.0123), in_unit("area", 814.0)
    ('12.30 ms', '814.0 mm2')
    """
    unit = UNITS.get(metric, "")
    if value is None or metric == "cost":
        return digits(value)
    if metric == "memory":
        return f"{digits(100 * value)} %"
    if unit.startswith(("s", "J", "W")):
        return si(value, unit)
    return f"{digits(value)} {unit}".strip()


def span(name: str, low: float, high: float) -> str:
    """Return two bounds in the unit of the upper one.

    >>> span("sm_clock", 345e6, 1980e6)
    '0.345 to 1.98 GHz'
    """
    if unit_of(name) not in _PREFIXED:
        return f"{plain(low)} to {plain(high)}"
    number, _, unit = si(high, unit_of(name)).partition(" ")
    scale = 10.0 ** round(math.log10(high / float(number)))
    return f"{digits(low / scale, 3)} to {digits(high / scale, 3)} {unit}"


def unit_of(name: str) -> str:
    """Return the unit of a field of the GPU or of the operating point."""
    return rule_of(name).unit.split(",")[0]


def _active(summary: Entry, active: Entry) -> str:
    """A multiplier in words: one more GB/s of DRAM bandwidth saves 0.12 mJ."""
    goal, name = first_goal(summary), active["name"]
    field, _, end = name.partition(" ")
    bound = bool(end)
    unit = unit_of(field) if bound else active["unit"].partition("/(")[2][:-1]
    step, word = _STEPS.get(unit, (1.0, unit))
    gain = in_unit(goal, active["multiplier"] * step)
    token = " per token" if goal == "energy_per_token" else ""
    more = "less" if end == "(low)" else "more"
    if unit == "count":
        amount = f"one {more} {_words(field)}"
    elif field == "dram_capacity" and not bound:
        amount = f"1 % more {_words(field)}"
    elif word in ("", "price"):
        amount = f"one {more} of {_words(field)}"
    else:
        amount = f"one {word} {more} of {_words(field)}"
        amount = amount.replace(f"{word} more", f"more {word}")
    return f"{name}: {amount} saves {gain}{token}"


def _words(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name]
    words = [x.upper() if x in _CAPITALS else x for x in name.split("_")]
    return " ".join(words)


def first_goal(summary: Entry) -> str:
    """Return the objective that designs are ranked by."""
    return summary["objective"].split(",")[0]


def short(goal: str) -> str:
    """Return an objective as a column heading."""
    return {"edp": "EDP", "ed2p": "ED2P"}.get(goal, goal.replace("_", " "))
