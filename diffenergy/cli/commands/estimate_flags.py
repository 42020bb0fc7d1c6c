"""Flags of `diffenergy estimate`, also in one quoted string."""

import importlib
import shlex
from typing import Annotated, Any, Final

from ...estimator import EstimateRequest, SweepRequest
from ...power_time import POWER
from ...requests import Flag, part, values_of
from ..app import parse_words
from ..flags import (
    POWER_STEP,
    Json,
    flag_names,
    out_file,
    plot_file,
    power_file,
    read_flags,
)

LISTED: Final = ("gpu", "batch", "input_len", "output_len", "dtype")
"""Fields of `SweepRequest` that are lists."""


class Flags(SweepRequest):
    """Estimate time, power and energy of MODEL on one GPU or many.

    A list of clocks or power limits gives a table with the rows of least energy and
    least energy-delay product. Lists of GPUs, batches, lengths and types are crossed
    with them. FROM:TO:STEP is a list, too.

    \b
    Examples:
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900:1410:60 --json
      diffenergy estimate llama-3.1-70b --gpu h100-sxm --plan tp=4,dp=2 --batch 64
      diffenergy estimate qwen3-0.6b --phase train --input-len 4096 --tokens 36e12
    """

    trace: Annotated[
        str | None,
        Flag("Write a timeline for Perfetto (.json).", "FILE", endings=(".json",)),
    ] = None
    power_trace: Annotated[
        str | None,
        power_file(),
    ] = None
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json, .jsonl (the listing), .csv or .parquet (of lists).",
            ".json",
            ".jsonl",
            ".csv",
            ".parquet",
        ),
    ] = None

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """Lists that are crossed, beside clocks and limits; none that were left out."""
        lists = {name: getattr(self, name) for name in LISTED}
        return {name: values for name, values in lists.items() if values}

    @property
    def out_endings(self) -> tuple[str, ...]:
        """Endings of `--out`: a listing is of one estimate, a table of several."""
        crossed = any(len(values) > 1 for values in self.lists.values())
        return (".json", ".csv", ".parquet" if crossed else ".jsonl")

    def single(self) -> EstimateRequest:
        """Request with the single value of each list."""
        lists = {name: values[0] for name, values in self.lists.items()}
        fields = {**part(EstimateRequest, self), **lists}
        if self.power_trace is not None and fields["power_step"] is None:
            fields["power_step"] = POWER_STEP
        return EstimateRequest(**fields)


def estimate_flags(text: str, command: str) -> EstimateRequest:
    """Flags in `text`, for one estimate; `command` is what takes the string.

    Raises `ValueError` for flags of the output, and for lists.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into flags ({error}).") from None
    flags: Flags = read_flags(Flags, parse_words("estimate", words))
    module = importlib.import_module(f"{__package__}.{command}_flags")
    for name in (
        "as_json",
        "out",
        "plot",
        "detail",
        "trace",
        "sensitivity",
        "power_trace",
        *POWER,
    ):
        if not getattr(flags, name):
            continue
        flag = flag_names(Flags)[name]
        if name in flag_names(module.Flags):
            raise ValueError(f"`{flag}` goes behind `{command}`, not into the quotes.")
        raise ValueError(
            f"`{flag}` is of `estimate` alone; leave it out of the quotes of "
            f"`{command}`."
        )
    lists = (flags.sm_clock, flags.mem_clock, flags.power_limit, *flags.lists.values())
    if any(len(values_of(x) or ()) > 1 for x in lists):
        raise ValueError(f"`{command}` takes no lists; give one value each.")
    return flags.single()
