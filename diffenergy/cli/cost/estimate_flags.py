"""Flags of `diffenergy estimate`, also in one quoted string."""

import dataclasses
import shlex
from typing import Any, Final

from .. import completing
from ..app import parsed
from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot, read_flags, switch
from ..parsing.shared import PlanFlags, PointFlags, RequestFlags


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedRequestFlags(RequestFlags):
    """The same, where batch, lengths and type may be lists."""

    batch: tuple[int, ...] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "N[,N...]",
        "Sequences or images [1]; in training of a micro-batch.",
        read.wholes,
    )
    input_len: tuple[int, ...] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "N[,N...]", "Tokens in, per sequence [512].", read.wholes
    )
    output_len: tuple[int, ...] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "N[,N...]", "Tokens out, per sequence [128].", read.wholes
    )
    dtype: tuple[str, ...] | None = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "TYPE[,...]", shared.DTYPE, read.dtypes
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleFlags:
    """What one estimate is asked for."""

    model: str = shared.model()
    gpu: str | None = shared.gpu()
    workload: str | None = shared.picked()
    request: RequestFlags = group(RequestFlags)
    tokens: float | None = None
    sharing: PlanFlags = group(PlanFlags)
    point: PointFlags = group(PointFlags)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Time, power and energy of MODEL on one GPU, on many, or of lists of them.

    Lists (FROM:TO:STEP is one) of clocks or power limits give a table with the best row
    for energy and for energy-delay product; lists of GPUs, batches, lengths and types
    are crossed with them.

    \b
    Examples:
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900:1410:60 --json
      diffenergy estimate llama-3.1-70b --gpu h100-sxm --plan tp=4,dp=2 --batch 64
      diffenergy estimate qwen3-0.6b --phase train --input-len 4096 --tokens 36e12
    """

    model: str = shared.model()
    gpu: tuple[str, ...] | None = option(
        "NAME[,...]",
        "GPU names or .toml files [h100-sxm].",
        read.names,
        completed=completing.gpus,
        files=shared.file,
    )
    workload: str | None = shared.picked()
    request: ListedRequestFlags = group(ListedRequestFlags)
    tokens: float | None = option(
        "N",
        "Tokens of a whole training run, as 15e12: its time, energy and GPU-hours.",
        read.positive,
    )
    sharing: PlanFlags = group(PlanFlags)
    point: PointFlags = group(PointFlags)
    detail: bool = switch("Show every kernel.")
    sensitivity: bool = switch(
        "Show what one more of each number of the GPU does to time and energy."
    )
    trace: str | None = option(
        "FILE", "Write a timeline for Perfetto, .json.", endings=(".json",)
    )
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json, .jsonl (the listing), .csv, or .parquet (of lists).",
        ".json", ".jsonl", ".csv", ".parquet",
    )  # fmt: skip

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """What may be crossed beside clocks and limits, as far as it was given."""
        request = vars(self.request)
        given = {"gpu": self.gpu, **{name: request[name] for name in LISTED}}
        return {name: values for name, values in given.items() if values}

    @property
    def out_endings(self) -> tuple[str, ...]:
        """Endings of `--out`: a listing is of one estimate, a table of several."""
        crossed = any(len(values) > 1 for values in self.lists.values())
        return (".json", ".csv", ".parquet" if crossed else ".jsonl")

    def single(self) -> SingleFlags:
        """With the one value of every list that has one."""
        lists = {name: values[0] for name, values in self.lists.items()}
        gpu = lists.pop("gpu", None)
        request = RequestFlags(**{**vars(self.request), **lists})
        kept = ("model", "workload", "tokens", "sharing", "point")
        rest = {name: getattr(self, name) for name in kept}
        return SingleFlags(gpu=gpu, request=request, **rest)


LISTED: Final = ("batch", "input_len", "output_len", "dtype")
"""Fields of `ListedRequestFlags` that are lists."""


def estimate_flags(text: str, command: str) -> SingleFlags:
    """Flags in `text`, for one estimate; `command` is what takes the string.

    Raises `ValueError` for what belongs behind the command, and for lists.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into flags ({error}).") from None
    flags: Flags = read_flags(Flags, parsed("estimate", words))
    for name, value in (
        ("detail", flags.detail),
        ("json", flags.as_json),
        ("out", flags.out),
        ("trace", flags.trace),
        ("plot", flags.plot),
    ):
        if value:
            raise ValueError(
                f"`--{name}` goes behind `{command}`, not into the quotes."
            )
    if flags.sensitivity:
        raise ValueError(
            f"`--sensitivity` is of `estimate` alone; leave it out of the quotes of "
            f"`{command}`."
        )
    point = flags.point
    lists = (point.sm_clock, point.mem_clock, point.power_limit, *flags.lists.values())
    if any(len(values) > 1 for values in lists if values):
        raise ValueError(f"`{command}` takes no lists; give one value each.")
    return flags.single()
