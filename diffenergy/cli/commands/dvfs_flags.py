"""Flags of `diffenergy dvfs`."""

import functools
import math
from typing import Annotated, Final, Literal

from ... import reading
from ...dvfs import DvfsRequest
from ...requests import Flag
from ..flags import Json, out_file, plot_file

PUBLISHED: Final = "published"


def _at_least_0(flag: str, text: str, unit: str) -> float:
    if text.strip().lower() in ("inf", "infinite"):
        return math.inf
    value = reading.number(flag, text, unit)
    if value < 0:
        raise ValueError(f"`{flag}` is {text}; allowed is 0 or more, or inf.")
    return value


def _seconds(flag: str, text: str) -> float | str:
    return PUBLISHED if text == PUBLISHED else _at_least_0(flag, text, "s")


_joules = functools.partial(_at_least_0, unit="J")


class Flags(DvfsRequest):
    """Choose clocks for every kernel of MODEL or of a measured table.

    The output compares one iteration at default clocks, at the best single pair of
    clocks, at the best pair per phase and under a power limit, and states a bound that
    no schedule passes.

    \b
    Examples:
      diffenergy dvfs llama-3.1-8b --gpu a100-pcie-40gb --phase decode --batch 8
      diffenergy dvfs gpt3-xl --phase train --gpu h100-sxm --max-slowdown 2 --json
    """

    switch_latency: Annotated[
        float | str | None,
        Flag(
            "Time of a change of clocks; published: that of the GPU, or of GPUs "
            "in general [published; 0 for --table].",
            "SECONDS",
            _seconds,
        ),
    ] = None
    switch_energy: Annotated[
        float | None, Flag("Energy of a change of clocks [0].", "JOULES", _joules)
    ] = None
    switch_kind: Annotated[
        Literal["stall", "lookahead"],
        Flag(
            "Kind of change: stall, the GPU waits; lookahead, requests are sent ahead.",
            "KIND",
        ),
    ] = "stall"
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json, .csv, or .py (a program that applies the clocks).",
            ".json",
            ".csv",
            ".py",
        ),
    ] = None
