"""Flags of `diffenergy fleet`."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ..parsing import read
from ..parsing.field import argument, as_json, option, out, plot


def _is_file(text: str) -> bool:
    return text.lower().endswith((".csv", ".csv.gz"))


def _watts(flag: str, text: str) -> str:
    if not _is_file(text):
        read.positive(flag, text, "W")
    return text


def _plain(flag: str, text: str) -> str:
    if not _is_file(text):
        read.number(flag, text)
    return text


def _price(flag: str, text: str) -> str:
    from ...fleet import read_price

    if not _is_file(text):
        read_price(flag, text)
    return text


def series(text: str | None, unit: str = "") -> float | str | None:
    """A file as it is, a number in SI."""
    if text is None or _is_file(text):
        return text
    return read.number("series", text, unit)


def _share(flag: str, text: str) -> float:
    value = read.number(flag, text)
    if not 0 <= value < 1:
        raise ValueError(f"`{flag}` is {text}; allowed is from 0 to below 1.")
    return value


def _files(text: str) -> Iterable[str]:
    return [text] if _is_file(text) else []


def _named(text: str) -> Iterable[str]:
    """FLEET.toml and what it names; what cannot be read is told later."""
    from ...fleet import read_fleet

    try:
        return [text, *read_fleet(text).files]
    except ValueError:
        return [text]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Which model runs on which GPUs, how many, at which clock, slot by slot.

    FLEET.toml lists sites (power budget, carbon, price), pools of GPUs, models with
    their objectives of latency, and names a table of demand. The answer keeps GPUs and
    watts, and says how far it is at most from the best plan, what one more watt, GPU or
    request is worth, and how far demand can grow.

    \b
    Examples:
      diffenergy fleet fleet/fleet.toml
      diffenergy fleet fleet/fleet.toml --power-budget 40kW --json
      diffenergy fleet fleet/fleet.toml --objective carbon --out fleet.html
    """

    fleet: str = argument("TOML file of the fleet.", metavar="FLEET.toml", files=_named)
    demand: str | None = option(
        "FILE.csv", "Requests by slot and model instead.", files=_files
    )
    points: str | None = option(
        "FILE.csv", "Measured serving points instead of predicted ones.", files=_files
    )
    power_budget: Any = option(
        "W|FILE.csv", "Power budget at the meter of every site.", _watts, files=_files
    )
    carbon: Any = option(
        "G|FILE.csv", "Carbon intensity of every site, g/kWh.", _plain, files=_files
    )
    price: Any = option(
        "P|FILE.csv",
        "Price of every site, such as 0.12EUR/kWh [per MWh].",
        _price,
        files=_files,
    )
    objective: Any = option("WHAT", "energy, cost or carbon.", default="energy")
    max_gap: Any = option(
        "SHARE", "Distance from the bound that will do.", _share, default="0.001"
    )
    effort: Any = option(
        "SECONDS",
        "Work of the search on an idle core; counted, whatever the machine's load.",
        read.seconds,
        default="20",
    )
    time_limit: Any = option(
        "SECONDS",
        "Wall time of all, the last resort; half of it for pricing.",
        read.seconds,
        default="600",
    )
    plot: str | None = plot("Also draw who runs where and the power, .png or .svg.")
    as_json: bool = as_json()
    out: str | None = out("Also write the plan (.csv) or .json.", ".csv", ".json")
