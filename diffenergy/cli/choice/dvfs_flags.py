"""Flags of `diffenergy dvfs`."""

import dataclasses
import functools
import math
from typing import Any, Final

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot, switch
from ..parsing.shared import PointFlags, RequestFlags

PUBLISHED: Final = "published"


def _percent(flag: str, text: str) -> float:
    """A percentage; infinite for `none`."""
    return math.inf if text == "none" else read.number(flag, text, "%")


def _at_least_0(flag: str, text: str, unit: str) -> float:
    if text.strip().lower() in ("inf", "infinite"):
        return math.inf
    value = read.number(flag, text, unit)
    if value < 0:
        raise ValueError(f"`{flag}` is {text}; allowed is 0 or more, or inf.")
    return value


def _seconds(flag: str, text: str) -> float | str:
    return PUBLISHED if text == PUBLISHED else _at_least_0(flag, text, "s")


_joules = functools.partial(_at_least_0, unit="J")


def _kind(flag: str, text: str) -> str:
    if text not in ("stall", "lookahead"):
        raise ValueError(f"`{flag}` is '{text}'; allowed are stall, lookahead.")
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PointFlags(PointFlags):
    """Clocks to choose from, and one limit."""

    sm_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]", "SM clocks to choose from [all steps].", read.clocks
    )
    mem_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]", "Memory clocks to choose from [all].", read.clocks
    )
    power_limit: tuple[float, ...] | None = option(
        "W", "Power limit of the GPU [TDP].", read.watts
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Clocks for every kernel of MODEL or of a measured table: less energy, same time.

    Time and energy are those of one iteration against default clocks, beside the best
    single pair of clocks, the best per phase and a power limit, with the bound that no
    schedule can pass, and what free changes of clocks would save.

    \b
    Examples:
      diffenergy dvfs llama-3.1-8b --gpu a100-pcie-40gb --phase decode --batch 8
      diffenergy dvfs gpt3-xl --phase train --gpu h100-sxm --max-slowdown 2 --json
    """

    model: str | None = shared.model("; not with --table.", needed=False)
    gpu: str | None = shared.gpu()
    table: str | None = option(
        "FILE.csv", "Measured times and energies by clock instead.", files=shared.file
    )
    default_clock: str | None = option("MHZ[,MHZ]", "Default clocks of a table [auto].")
    smooth: bool = switch(
        "Readings of the table are noisy: plan on what is behind them, state a 95 % "
        "bound; needs --gpu."
    )
    objective: Any = option("WHAT", "energy, edp, ed2p or time.", default="energy")
    max_slowdown: float | None = option(
        "PERCENT",
        "Longest time against default clocks; negative asks for a speed-up; none "
        "[0 for energy, else none].",
        _percent,
    )
    granularity: Any = option(
        "WHAT", "Own clocks for each kernel, phase, iteration.", default="kernel"
    )
    aggregation: Any = option(
        "WHAT", "global: the sum keeps the limit; local: each does.", default="global"
    )
    per_launch: bool = switch("Launches of one kernel may differ.")
    switch_latency: float | str | None = option(
        "SECONDS",
        "What a change of clocks takes; published: of the GPU, else of GPUs in "
        "general [published; 0 for --table].",
        _seconds,
    )
    switch_energy: float | None = option("JOULES", "Energy of a change [0].", _joules)
    switch_kind: Any = option(
        "KIND",
        "stall: the GPU waits; lookahead: requests go ahead, clocks hold so long.",
        _kind,
        default="stall",
    )
    solver: Any = option(
        "WHICH", "exact, or descent (gradients through the model).", default="exact"
    )
    seed: int | None = option("N", "Where the descent starts [0].", read.seed)
    starts: int | None = option("N", "How many starts of the descent [8].", read.whole)
    power_curve: bool = switch("Also time and energy by power limit.")
    workload: str | None = shared.picked()
    request: RequestFlags = group(RequestFlags)
    point: _PointFlags = group(_PointFlags)
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json, .csv, or .py (applies the clocks).", ".json", ".csv", ".py"
    )
