"""`DesignRequest`, `TuneRequest`: what designs and tiles are searched for."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from .. import reading
from ..estimator import PointRequest, SharingRequest
from ..hardware import CHOSEN, FIELDS, GpuName
from ..nodes import WallRequest
from ..requests import Clocks, Flag, Limits, Note, Request, Seed, Text
from ..workload import ModelRequest
from ._space.ranges import Range, Vary, rule_of

if TYPE_CHECKING:
    from ._problem.problem import Share


def _names(flag: str, text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _ranges(flag: str, texts: list[str]) -> tuple[Range, ...]:
    """Names with their bounds, as far as any are given.

    >>> [(x.name, x.low, x.high) for x in _ranges("--vary", ["num_sms,tdp=200:300"])]
    [('num_sms', None, None), ('tdp', 200.0, 300.0)]
    >>> _ranges("--vary", ["tdp,memory=HBM3e,HBM4,num_sms"])[1].words
    ('HBM3e', 'HBM4')
    """
    ranges: list[tuple[Any, ...]] = []
    for entry in (part for text in texts for part in text.split(",")):
        name, equals, bounds = (part.strip() for part in entry.partition("="))
        if name in CHOSEN and equals:
            ranges.append((name, None, None, (bounds,)))
            continue
        more = ranges and ranges[-1][0] in CHOSEN and not equals
        if more and name not in (*FIELDS, "sm_clock", "power_cap", "network", "tiles"):
            ranges[-1] = (*ranges[-1][:3], (*ranges[-1][3], name))
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
            reading.number(f"{flag} {name}", x, unit) if x.strip() else None
            for x in ends
        )
        ranges.append((name, *numbers))
    return tuple(Range(*entry) for entry in ranges)


def _up_to(most: int) -> Any:
    """The remarks of a count from 1 to `most`."""
    words = f"allowed are 1 to {most}"
    return Meta(ge=1, le=most, description=words), Text("N", reading.whole)


class Effort(Request, kw_only=False):
    """Effort of a search: starts, rounds and seed."""

    starts: Annotated[int, *_up_to(256), "Number of simultaneous descents"] = 8
    rounds: Annotated[
        int, *_up_to(10_000), "Number of rounds of ten gradient steps"
    ] = 12
    seed: Annotated[Seed, "Seed of all draws"] = 0


class MixRequest(ModelRequest, SharingRequest, PointRequest, WallRequest):
    """Options of every member of a mix, and the operating point of designs."""

    sm_clock: Annotated[
        Clocks | None, Flag("SM clock of all designs [their highest].", "MHZ")
    ] = None
    mem_clock: Annotated[
        Clocks | None, Flag("Memory clock of all designs [their own].", "MHZ")
    ] = None
    power_limit: Annotated[
        Limits | None, Flag("Power limit of all designs [their TDP].", "W")
    ] = None
    require_fit: Annotated[
        bool, "Exit with 3 if the GPU's memory does not suffice."
    ] = False


class ChoiceRequest(MixRequest):
    """Design space and objective of a search."""

    vary: Annotated[
        Vary,
        Flag(
            "Fields to vary: numbers of a GPU file, sm_clock, mem_clock, "
            "power_cap, tiles, network (of a plan: B/s of a network card); "
            "bounds in SI, or as 20MB:100MB [half to twice the base value; "
            "clocks and tiles: what is legal]; words to choose from: "
            "process_node=4NP,N3P and memory=HBM3e,HBM4.",
            "FIELD[=LOW:HIGH],...",
            _ranges,
            many=True,
        ),
    ] = ()
    goals: Annotated[
        Sequence[str] | str | Callable[..., Any] | None,
        Flag(
            "Quantity to minimize: energy, time, edp, ed2p, energy_per_token (with "
            "--node at the wall), area or cost; several: their Pareto front [energy; "
            "--tune-tiles: time].",
            "WHAT[,WHAT]",
            _names,
            name="--objective",
        ),
    ] = None
    price: Annotated[
        float | None, Flag("Price of a mm2 of silicon.", "PER_MM2", reading.positive)
    ] = None


class DesignRequest(ChoiceRequest):
    """Hardware, clocks and tiles of least cost for a workload."""

    work: Annotated[
        Any, Note("A model name, listing path, `Task` or list of `Part`.")
    ] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, Note("GPU that designs start from [h100-sxm].")] = (
        dataclasses.field(default=None, kw_only=False)
    )
    limits: Annotated[
        "Mapping[str, int | float | Share] | None",
        Note("The most of each metric, or a `Share`."),
    ] = None
    effort: Annotated[Effort | None, Note("Starts, rounds and seed [`Effort()`].")] = (
        None
    )
    progress: Annotated[
        Callable[..., Any] | None,
        Note("Called with rounds done, rounds in all, best objective so far."),
    ] = None
    workload: Annotated[str | None, Note("One workload of a listing file.")] = None


class TuneRequest(MixRequest):
    """The best legal tile of every matrix product of a workload."""

    work: Annotated[
        Any, Note("A model name, listing path, `Task` or list of `Part`.")
    ] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, Note("GPU that designs start from [h100-sxm].")] = (
        dataclasses.field(default=None, kw_only=False)
    )
    goal: Annotated[
        Literal["time", "energy"], Note("time or energy, of the whole workload.")
    ] = "time"
    workload: Annotated[str | None, Note("One workload of a listing file.")] = None
