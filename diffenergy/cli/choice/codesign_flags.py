"""Flags of `diffenergy codesign`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ...estimator import MODEL_WORDS, PointRequest, SharingRequest
from ...hardware import GpuName
from ...requests import Argument, Clocks, Flag, Limits, Request, Seed, Whole
from ...requests import reading as read
from ...workload import ModelName, ModelRequest
from ..cost.estimate_flags import estimate_flags
from ..parsing.field import Json, inputs, out_file, plot_file


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


def _names(flag: str, text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _ranges(flag: str, texts: list[str]) -> tuple[tuple[Any, ...], ...]:
    """Names with their bounds, as far as any are given.

    >>> _ranges("--vary", ["num_sms,l2_capacity=20MB:100e6"])
    (('num_sms',), ('l2_capacity', 20000000.0, 100000000.0))
    >>> _ranges("--vary", ["memory=HBM3e,HBM4,num_sms"])
    (('memory', None, None, ('HBM3e', 'HBM4')), ('num_sms',))
    """
    from ...codesign import rule_of
    from ...hardware import CHOSEN, FIELDS

    found: list[tuple[Any, ...]] = []
    for entry in (part for text in texts for part in text.split(",")):
        name, equals, bounds = (part.strip() for part in entry.partition("="))
        if name in CHOSEN and equals:
            found.append((name, None, None, (bounds,)))
            continue
        more = found and found[-1][0] in CHOSEN and not equals
        if more and name not in (*FIELDS, "sm_clock", "power_cap", "network", "tiles"):
            found[-1] = (*found[-1][:3], (*found[-1][3], name))
            continue
        low, colon, high = bounds.partition(":")
        if not name:
            raise ValueError(
                f"`{flag}` is '{','.join(texts)}'; give names, such as "
                "num_sms,l2_capacity=20MB:100MB,sm_clock."
            )
        if name == "tiles" and equals:
            raise ValueError(
                f"`{flag}` is '{entry}'; tiles take no bounds, leave them out."
            )
        if equals and not colon:
            raise ValueError(
                f"`{flag}` is '{entry}'; give {name}=LOW:HIGH, in SI or with units."
            )
        ends = (low, high) if equals else ()
        unit = rule_of(name).bare_unit if equals else ""
        numbers = (
            read.number(f"{flag} {name}", x, unit) if x.strip() else None for x in ends
        )
        found.append((name, *numbers))
    return tuple(found)


class Designs(Request):
    """What a search may change, wants and must keep; SI, limits also a `Share`."""

    vary: Annotated[
        tuple[tuple[Any, ...], ...],
        Flag(
            "What may change: fields of a GPU file, sm_clock, mem_clock, "
            "power_cap, tiles, network (of a plan: B/s of a network card); "
            "bounds in SI, or as 20MB:100MB [half to twice the base value; "
            "clocks and tiles: what is legal]; process_node=4NP,N3P and "
            "memory=HBM3e,HBM4: which of them.",
            "FIELD[=LOW:HIGH],...",
            _ranges,
            many=True,
        ),
    ] = ()
    goals: Annotated[
        tuple[str, ...] | None,
        Flag(
            "energy, time, edp, ed2p, energy_per_token, area or cost; "
            "several single ones: their Pareto front [energy; --tune-tiles:"
            " time].",
            "WHAT[,WHAT]",
            _names,
            name="--objective",
        ),
    ] = None
    max_latency: Annotated[
        Any,
        Flag(
            "Time of the workload, at most: s, or as 900ms, or 110% of the "
            "start design's.",
            "S|%",
            _most("s"),
        ),
    ] = None
    max_power: Annotated[Any, Flag("Mean power, at most.", "W|%", _most("W"))] = None
    max_area: Annotated[
        Any, Flag("Area of the die, at most.", "MM2|%", _most("mm2"))
    ] = None
    max_ttft: Annotated[
        Any, Flag("Time to the first token, at most.", "S|%", _most("s"))
    ] = None
    max_tpot: Annotated[
        Any, Flag("Time per output token, at most.", "S|%", _most("s"))
    ] = None
    price: Annotated[
        float | None, Flag("Price of a mm2 of silicon.", "PER_MM2", read.positive)
    ] = None
    max_cost: Annotated[Any, Flag("Area times --price, at most.", "C|%", _most(""))] = (
        None
    )
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
            "How often a workload runs, one for each --workload in their "
            "order [1]; one more: the first is MODEL's [1].",
            "W",
            _numbers,
            many=True,
        ),
    ] = ()
    seed: Annotated[Seed | None, Flag("Of all draws [0].")] = None
    starts: Annotated[Whole | None, Flag("Descents at once [8].")] = None
    rounds: Annotated[Whole | None, Flag("Rounds of ten gradient steps [12].")] = None


class Point(PointRequest):
    """Where designs run."""

    sm_clock: Annotated[
        Clocks | None, Flag("Clock that designs run at [their highest].", "MHZ")
    ] = None
    mem_clock: Annotated[Clocks | None, Flag("Memory clock [their own].", "MHZ")] = None
    power_limit: Annotated[Limits | None, Flag("Power limit [their TDP].", "W")] = None


class Flags(Designs, ModelRequest, SharingRequest, Point):
    """Hardware, clocks and tiles that MODEL, or a mix, costs least on.

    Gradients through the model lead from many starts to designs that hardware can
    have, within the limits; every figure is an exact estimate. Ctrl-C keeps the best
    so far.

    \b
    Examples:
      diffenergy codesign llama-3.1-8b --vary num_sms,dram_bandwidth,sm_clock
      diffenergy codesign gpt2 --gpu a100-sxm-80gb --tune-tiles --objective energy
    """

    model: Annotated[
        ModelName | None, Argument(f"{MODEL_WORDS}; may be left out beside --workload.")
    ] = None
    gpu: Annotated[
        GpuName | None, "GPU that designs grow out of, name or .toml file [h100-sxm]."
    ] = None
    tune_tiles: Annotated[
        bool, Flag("Instead: the best legal tile of every matrix product on this GPU.")
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
