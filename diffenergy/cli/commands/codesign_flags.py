"""Flags of `diffenergy codesign`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ... import reading as read
from ...codesign import ChoiceRequest, Effort
from ...estimator import MODEL_WORDS
from ...hardware import GpuName
from ...requests import Argument, Flag, Request
from ...workload import ModelName
from ..flags import Json, inputs, out_file, plot_file
from .estimate_flags import estimate_flags


def _most(unit: str) -> Callable[[str, str], Any]:
    """A limit: a number, or a share of what the start design has."""

    def read_limit(flag: str, text: str) -> Any:
        from ...codesign import Share

        if not text.strip().endswith("%"):
            return read.positive(flag, text, unit)
        return Share(read.positive(flag, text, "%") / 100)

    return read_limit


def _numbers(flag: str, texts: list[str]) -> tuple[float, ...]:
    return tuple(read.positive(flag, text) for text in texts)


class Limited(Request):
    """Limits of designs, in SI or as a `Share`, and the mix of workloads."""

    max_latency: Annotated[
        Any,
        Flag(
            "Maximum time of the workload: s, or as 900ms, or 110% of the "
            "start design's.",
            "S|%",
            _most("s"),
        ),
    ] = None
    max_power: Annotated[Any, Flag("Maximum mean power.", "W|%", _most("W"))] = None
    max_area: Annotated[
        Any, Flag("Maximum area of the die.", "MM2|%", _most("mm2"))
    ] = None
    max_ttft: Annotated[
        Any, Flag("Maximum time to the first token.", "S|%", _most("s"))
    ] = None
    max_tpot: Annotated[
        Any, Flag("Maximum time per output token.", "S|%", _most("s"))
    ] = None
    max_cost: Annotated[
        Any, Flag("Maximum cost: area times --price.", "C|%", _most(""))
    ] = None
    workload: Annotated[
        tuple[str, ...],
        Flag(
            "Another workload of the mix, quoted with its flags of "
            "estimate; repeatable. The bare name of a workload picks it "
            "from the listing MODEL.",
            '"MODEL FLAGS"',
            many=True,
            files=lambda text: inputs(estimate_flags(text, "codesign")),
        ),
    ] = ()
    weight: Annotated[
        tuple[float, ...],
        Flag(
            "Number of runs of a workload, one for each --workload in their "
            "order [1]; with one more, the first is MODEL's [1].",
            "W",
            _numbers,
            many=True,
        ),
    ] = ()


class Flags(ChoiceRequest, Limited, Effort):
    """Search for the hardware, clocks and tiles on which MODEL, or a mix, costs least.

    Gradients through the model lead from many starts to legal designs within the
    limits. Every figure is an exact estimate. Ctrl-C ends the search with the best
    design so far.

    \b
    Examples:
      diffenergy codesign llama-3.1-8b --vary num_sms,dram_bandwidth,sm_clock
      diffenergy codesign gpt2 --gpu a100-sxm-80gb --tune-tiles --objective energy
    """

    model: Annotated[
        ModelName | None, Argument(f"{MODEL_WORDS}; may be left out beside --workload.")
    ] = None
    gpu: Annotated[
        GpuName | None, "GPU that designs start from, name or .toml file [h100-sxm]."
    ] = None
    tune_tiles: Annotated[
        bool,
        Flag("Find the best legal tile of every matrix product on this GPU instead."),
    ] = False
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .toml (a GPU file, with a .json beside it) or .json"
            " (with the path of the search); of --tune-tiles .json or "
            ".jsonl (the listing).",
            ".json",
            ".toml",
            ".jsonl",
        ),
    ] = None

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What `--out` may end with."""
        return (".json", ".jsonl") if self.tune_tiles else (".json", ".toml")

    @property
    def beside(self) -> list[str]:
        """The JSON beside a GPU file."""
        if not (self.out or "").lower().endswith(".toml"):
            return []
        return [str(Path(self.out or "").with_suffix(".json"))]
