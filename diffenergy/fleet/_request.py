"""`FleetRequest`: what a plan of a fleet is asked for."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from .. import reading
from ..prices import read_price
from ..requests import Argument, Flag, Note, Request, Text
from ._spec import Fleet, is_file, read_fleet

Objective = Literal["energy", "cost", "carbon"]
_DAY = 86_400


def _watts(flag: str, text: str) -> float | str:
    return text if is_file(text) else reading.positive(flag, text, "W")


def _plain(flag: str, text: str) -> float | str:
    return text if is_file(text) else reading.number(flag, text)


def _price(flag: str, text: str) -> str:
    if not is_file(text):
        read_price(flag, text)
    return text


def _share(flag: str, text: str) -> float:
    value = reading.number(flag, text)
    if not 0 <= value < 1:
        raise ValueError(f"`{flag}` is {text}; allowed is from 0 to below 1.")
    return value


def _files(text: str) -> Iterable[str]:
    return [text] if is_file(text) else []


def _named(text: str) -> Iterable[str]:
    """FLEET.toml and the files that it names; unreadable ones are reported later."""
    try:
        return [text, *read_fleet(text).files]
    except ValueError:
        return [text]


def _as_text(name: str, value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_Table = Annotated[str, Text("FILE.csv", files=_files)]
_Seconds = Annotated[
    float,
    Meta(gt=0, le=_DAY, description="allowed is above 0 s, up to a day"),
    Text("SECONDS", reading.seconds, unit="s"),
]
_Gap = Annotated[
    float,
    Meta(ge=0, lt=1, description="allowed is from 0 to below 1"),
    Text("SHARE", _share),
]


class FleetRequest(Request):
    """Which model runs on which GPUs, how many replicas, at which clock."""

    fleet: Annotated[
        Fleet | str | os.PathLike[str],
        Argument("TOML file of the fleet.", "FLEET.toml", files=_named),
        Text("FLEET.toml", take=_as_text),
    ] = dataclasses.field(kw_only=False)
    demand: Annotated[
        _Table | None, "Table of demand by slot and model, instead of the file's."
    ] = None
    points: Annotated[
        _Table | None, "Table of measured serving points, instead of predicted ones."
    ] = None
    power_budget: Annotated[
        float | str | None,
        Flag(
            "Power budget at the meter of every site.",
            "W|FILE.csv",
            _watts,
            files=_files,
        ),
    ] = None
    carbon: Annotated[
        float | str | None,
        Flag(
            "Carbon intensity of every site, g/kWh.", "G|FILE.csv", _plain, files=_files
        ),
    ] = None
    price: Annotated[
        float | str | None,
        Flag(
            "Price of every site, such as 0.12EUR/kWh [per MWh].",
            "P|FILE.csv",
            _price,
            files=_files,
        ),
    ] = None
    objective: Annotated[Objective, "Quantity to minimize: energy, cost or carbon"] = (
        "energy"
    )
    max_gap: Annotated[
        _Gap, "Relative distance from the bound at which the search ends"
    ] = 0.001
    effort: Annotated[
        _Seconds,
        "Work of the search, in seconds of an idle core; counted, not timed",
    ] = 20.0
    time_limit: Annotated[_Seconds, "Maximum wall time, half of it for pricing"] = 600.0
    progress: Annotated[
        Callable[[str, int, int], None] | None,
        Note("Called with what is done, how much of it, and of how much."),
    ] = None
