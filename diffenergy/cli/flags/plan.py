"""Flags of `diffenergy plan`."""

import dataclasses
from typing import Any

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot, switch
from ..parsing.shared import PlanFlags, PointFlags


def _percent(flag: str, text: str) -> float:
    """A share, as a percentage from 0 on."""
    value = read.number(flag, text.removesuffix("%"))
    if value < 0:
        raise ValueError(f"`{flag}` is {text}; allowed is 0 or more, in per cent.")
    return value / 100


def _watts(flag: str, text: str) -> float:
    return read.positive(flag, text, "W")


def _straggler(flag: str, text: str) -> tuple[int, float]:
    """STAGE=PERCENT."""
    stage, equals, slower = (x.strip() for x in text.partition("="))
    if not equals or not stage.isdecimal():
        raise ValueError(f"`{flag}` is '{text}'; give STAGE=PERCENT, such as 3=20.")
    return int(stage), _percent(flag, slower)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """What is trained; None where a flag was not given."""

    input_len: int | None = option("N", "Tokens of a sequence [512].", read.whole)
    dtype: str | None = option(
        "TYPE", "Of linear layers, as in `estimate` [bf16].", read.dtype
    )
    attention: str | None = option("KIND", "flash or eager [flash].")
    stack: str | None = option(
        "KIND", "serving (fused kernels) or eager (Hugging Face modules) [serving]."
    )
    dispatch: str | None = option("KIND", "eager or graph [eager].")
    routing: str | None = option(
        "KIND", "How tokens spread over experts: balanced, random or power_law_X."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageClockFlags:
    """Of clocks per stage; None where a flag was not given."""

    granularity: Any = option(
        "WHAT",
        "Own clocks for each instruction (micro-batch forward or backward), kind (all "
        "forward, all backward of a stage) or stage.",
        default="instruction",
    )
    max_slowdown: float | None = option(
        "PERCENT",
        "How much longer a step may take [0; with --node-power what that asks for].",
        _percent,
    )
    node_power: float | None = option(
        "W", "Power of the GPUs of a host together, on average over a step.", _watts
    )
    straggler: tuple[int, float] | None = option(
        "STAGE=PERCENT",
        "GPUs of this stage (from 0) of one replica take so much longer.",
        _straggler,
    )
    deadline: float | None = option(
        "SECONDS", "A step takes as long anyway: others are slower.", read.seconds
    )
    interval: bool = switch(
        "Also the 5 to 95 % interval of the saving (solves several times)."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PointFlags(PointFlags):
    """Clocks to choose from, and one limit."""

    sm_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]",
        "SM clocks to choose from [all steps from 40 % of the highest].",
        read.clocks,
    )
    mem_clock: tuple[float, ...] | None = option("MHZ", "Memory clock.", read.clocks)
    power_limit: tuple[float, ...] | None = option(
        "W", "Power limit of each GPU [TDP].", read.watts
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Clocks for the stages of a pipeline, so that no GPU hurries to wait.

    With --stage-clocks every instruction of a training step has the lowest clock with
    which the step takes no longer: layers are split so that the slowest stage is
    fastest, and energy stands beside the bound of a linear program. --out FILE.csv has
    the columns of Perseus, FILE.py is what Zeus's PointSolution reads.

    \b
    Examples:
      diffenergy plan gpt3-xl --gpu a40 --plan pp=8,microbatch=4 --global-batch 128 \
--input-len 1024 --stage-clocks
      diffenergy plan gpt2-xl --gpu a100-pcie-80gb --plan pp=4 --global-batch 32 \
--stage-clocks --max-slowdown 5 --out clocks.csv --json
    """

    model: str = shared.model()
    gpu: str | None = shared.gpu()
    stage_clocks: bool = switch("Clocks for the stages of --plan.")
    request: TrainingFlags = group(TrainingFlags)
    sharing: PlanFlags = group(PlanFlags)
    clocks: StageClockFlags = group(StageClockFlags)
    point: _PointFlags = group(_PointFlags)
    plot: str | None = plot("Also draw the step before and after, .png or .svg.")
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json, .csv (as Perseus) or .py (as Zeus reads it).",
        ".json", ".csv", ".py",
    )  # fmt: skip
