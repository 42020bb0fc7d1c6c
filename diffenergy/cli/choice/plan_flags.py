"""Flags of `diffenergy plan`."""

import dataclasses

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot, switch
from ..parsing.shared import PlanFlags, PointFlags


def _percent(flag: str, text: str) -> float:
    """A share, as a percentage from 0 on."""
    value = read.number(flag, text.removesuffix("%"))
    if value < 0:
        raise ValueError(f"`{flag}` is {text}; allowed is 0 or more, in per cent.")
    return value / 100


def _gigabytes(flag: str, text: str) -> float:
    """Bytes of a number of GB, or of one with its unit."""
    plain = text.strip().replace(".", "", 1).isdecimal()
    return read.positive(flag, f"{text.strip()}GB" if plain else text, "B")


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
class SharingFlags(PlanFlags):
    """How many GPUs share a model; their number may be a list."""

    plan: str | None = option(
        "KEY=N[,...]",
        "The plan, as `estimate` takes it; of a search what is held [nothing].",
    )
    num_gpus: tuple[int, ...] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "N[,N...]", "GPUs in all; of several numbers the best is taken.", read.wholes
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Of the search; None where a flag was not given."""

    objective: str | None = option("WHAT", "time or energy of a step [time].")
    max_memory: float | None = option(
        "GB", "Most that a GPU may hold [its capacity].", _gigabytes
    )
    max_power: float | None = option(
        "W",
        "Most that all GPUs may draw; lowers the SM clock where only this fails.",
        read.watt,
    )
    sensitivity: tuple[str, ...] | None = option(
        "FIELD[,...]",
        "Derivatives of the best step by network, sm_clock, power_limit or fields of "
        "the GPU such as link_bandwidth.",
        read.names,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageClockFlags:
    """Of clocks per stage; None where a flag was not given."""

    granularity: str | None = option(
        "WHAT",
        "Own clocks for each instruction (micro-batch forward or backward), kind (all "
        "forward, all backward of a stage) or stage [instruction].",
    )
    max_slowdown: float | None = option(
        "PERCENT",
        "How much longer a step may take [0; with --node-power what that asks for].",
        _percent,
    )
    node_power: float | None = option(
        "W", "Power of the GPUs of a host together, on average over a step.", read.watt
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
    """Clocks, and one limit."""

    sm_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]",
        "SM clock [the highest]; of stages those to choose from [all steps from 40 % "
        "of the highest].",
        read.clocks,
    )
    mem_clock: tuple[float, ...] | None = option("MHZ", "Memory clock.", read.clocks)
    power_limit: tuple[float, ...] | None = option(
        "W", "Power limit of each GPU [TDP].", read.watts
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """The best plan with which GPUs train MODEL; clocks for the stages of one.

    All plans of --num-gpus are priced: tensor, pipeline, context, expert and data
    parallelism, micro-batches, ZeRO, recomputation, schedules. Exits with 3 where none
    keeps the limits, and says the least that one keeps.

    With --stage-clocks every instruction of a step of --plan has the lowest clock with
    which the step takes no longer, beside the bound of a linear program. --out FILE.csv
    has the columns of Perseus, FILE.py is what Zeus's PointSolution reads.

    \b
    Examples:
      diffenergy plan llama-3.1-8b --num-gpus 64 --global-batch 256 --json
      diffenergy plan gpt2 --num-gpus 4,8 --global-batch 32 --objective energy
      diffenergy plan gpt2 --plan pp=4 --global-batch 32 --stage-clocks
    """

    model: str = shared.model(listing=False)
    gpu: str | None = shared.gpu()
    stage_clocks: bool = switch("Clocks for the stages of --plan.")
    sharing: SharingFlags = group(SharingFlags)
    request: TrainingFlags = group(TrainingFlags)
    search: SearchFlags = group(SearchFlags)
    clocks: StageClockFlags = group(StageClockFlags)
    point: _PointFlags = group(_PointFlags)
    plot: str | None = plot("Also draw all plans, or the step with its clocks.")
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json; of clocks .csv (as Perseus) or .py (as Zeus reads it).",
        ".json", ".csv", ".py",
    )  # fmt: skip

    @property
    def out_endings(self) -> tuple[str, ...]:
        """Endings of `--out`."""
        return (".json", ".csv", ".py") if self.stage_clocks else (".json",)
