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
    """Clocks for every kernel of MODEL or of a measured table: less energy, same time.

    Time and energy are those of one iteration against default clocks, beside the best
    single pair of clocks, the best per phase and a power limit, with the bound that no
    schedule can pass, and what free changes of clocks would save.

    \b
    Examples:
      diffenergy dvfs llama-3.1-8b --gpu a100-pcie-40gb --phase decode --batch 8
      diffenergy dvfs gpt3-xl --phase train --gpu h100-sxm --max-slowdown 2 --json
    """

    switch_latency: Annotated[
        float | str | None,
        Flag(
            "What a change of clocks takes; published: of the GPU, else of "
            "GPUs in general [published; 0 for --table].",
            "SECONDS",
            _seconds,
        ),
    ] = None
    switch_energy: Annotated[
        float | None, Flag("Energy of a change [0].", "JOULES", _joules)
    ] = None
    switch_kind: Annotated[
        Literal["stall", "lookahead"],
        Flag(
            "stall: the GPU waits; lookahead: requests go ahead, clocks hold so long.",
            "KIND",
        ),
    ] = "stall"
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json, .csv, or .py (applies the clocks).",
            ".json",
            ".csv",
            ".py",
        ),
    ] = None
