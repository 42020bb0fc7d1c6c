"""Flags of `diffenergy plan`."""

import dataclasses

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot
from ..parsing.shared import PointFlags


def _gigabytes(flag: str, text: str) -> float:
    """Bytes of a number of GB, or of one with its unit."""
    plain = text.strip().replace(".", "", 1).isdecimal()
    return read.positive(flag, f"{text.strip()}GB" if plain else text, "B")


def _watts(flag: str, text: str) -> float:
    return read.positive(flag, text, "W")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """How the model trains; None where a flag was not given."""

    input_len: int | None = option("N", "Tokens of a sequence [512].", read.whole)
    dtype: str | None = option(
        "TYPE", "Of linear layers, as in `estimate` [bf16].", read.dtype
    )
    attention: str | None = option("KIND", "flash or eager [flash].")
    stack: str | None = option("KIND", "serving or eager [serving].")
    dispatch: str | None = option("KIND", "eager or graph.")
    routing: str | None = option(
        "KIND", "How tokens spread over experts: random, balanced or power_law_X."
    )
    topology: str | None = option(
        "NAME", "Machine, as in `estimate` [that of the GPU].", files=shared.file
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """What is searched."""

    objective: str | None = option("WHAT", "time or energy of a step [time].")
    max_memory: float | None = option(
        "GB", "Most that a GPU may hold [its capacity].", _gigabytes
    )
    max_power: float | None = option(
        "W",
        "Most that all GPUs may draw; lowers the SM clock where only this fails.",
        _watts,
    )
    sensitivity: tuple[str, ...] | None = option(
        "FIELD[,...]",
        "Derivatives of the best step by network, sm_clock, power_limit or fields of "
        "the GPU such as link_bandwidth.",
        read.names,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """The best plan with which GPUs train MODEL.

    All plans of so many GPUs are priced: tensor, pipeline, context, expert and data
    parallelism, micro-batches, ZeRO, recomputation and schedules. Exits with 3 where
    none keeps the limits, and says the least that one keeps.

    \b
    Examples:
      diffenergy plan llama-3.1-8b --num-gpus 64 --global-batch 256
      diffenergy plan llama-3.1-70b --num-gpus 64 --global-batch 64 --max-power 30kW
      diffenergy plan gpt2 --num-gpus 4,8 --global-batch 32 --objective energy --json
    """

    model: str = shared.model(", but no listing.")
    gpu: str | None = shared.gpu()
    num_gpus: tuple[int, ...] | None = option(
        "N[,N...]", "GPUs in all; of several numbers the best.", read.wholes
    )
    global_batch: int | None = option("N", "Sequences of a step.", read.whole)
    plan: str | None = option(
        "KEY=N[,...]", "What of a plan is held, as `estimate` takes it [nothing]."
    )
    training: TrainingFlags = group(TrainingFlags)
    search: SearchFlags = group(SearchFlags)
    point: PointFlags = group(PointFlags)
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out("Also write .json.", ".json")
