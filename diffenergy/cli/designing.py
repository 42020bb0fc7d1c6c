"""From the flags of `codesign` to designs, or to tiles, and their summary."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from . import INTERRUPTED, engine
from .design_wishes import Wish, point_of, weights_of
from .estimation import Task, prepare
from .flags import Flags
from .output import Infeasible
from .progress import progress
from .quoted import estimate_flags

if TYPE_CHECKING:
    from ..codesign._problem.found import Found
    from ..codesign._problem.mixing import Part
    from ..codesign._problem.problem import Problem
    from ..codesign._tiles.tuning import Tuning
    from ..hardware import GpuCard

_SHARED = ("gpu", "corrections", "temperature", "sm_clock", "mem_clock", "power_limit")
"""Flags that hold for the whole mix."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """Designs, or tuned tiles: the JSON, and what a person should know beside it."""

    summary: dict[str, Any]
    notes: list[str]
    card: "GpuCard"
    problem: "Problem | None" = None
    found: "Found | None" = None
    tuning: "Tuning | None" = None

    @property
    def interrupted(self) -> bool:
        """Whether the search was cut short."""
        return self.found is not None and self.found.interrupted


@dataclasses.dataclass(frozen=True)
class Mix:
    """Flags of the workloads of a mix, with their weights."""

    flags: list[Flags]
    weights: list[float]

    @property
    def inputs(self) -> list[str]:
        """Files that this run reads."""
        return [name for flags in self.flags for name in flags.inputs]


def mix_of(flags: Flags, wish: Wish) -> Mix:
    """The workloads that MODEL and `--workload` ask for."""
    picked, quoted = _picked(flags, wish.mix)
    if not flags.model and not quoted:
        raise ValueError(
            'MODEL is missing; name one, or give `--workload "MODEL flags"`.'
        )
    if not flags.model:
        _check_no_model(flags)
    if wish.tune_tiles and len(quoted) + bool(flags.model) > 1:
        raise ValueError(
            "`--tune-tiles` tunes one workload; leave the others of `--workload` out."
        )
    own = [dataclasses.replace(flags, workload=picked)] if flags.model else []
    weights = weights_of(wish.weight, len(quoted), bool(own))
    return Mix([*own, *(_member(text, flags) for text in quoted)], weights)


def answer(flags: Flags, wish: Wish, mix: Mix) -> Answer:
    """Designs or tiles that the flags ask for. `ValueError` for bad input, `Infeasible`
    if no design keeps the limits."""
    wish.check(flags)
    tasks = [_named(mix, member) for member in mix.flags]
    if wish.tune_tiles:
        return _tuned(tasks[0], wish)
    problem = _problem(tasks, wish, mix.weights)
    found = _search(problem, wish)
    if found.best.violation > 0:
        _refuse(problem, found)
    from ..report._summaries.design_summary import design_summary

    trust = tasks[0].corrections.trust(tasks[0].card, new=True)
    about = _about(tasks, mix.weights, problem)
    summary = {
        **about,
        "grade": trust.grade,
        **design_summary(problem, found),
        "time_s_p5_p95": _interval(trust, "time", found.best.time, found),
        "energy_j_p5_p95": _interval(trust, "energy", found.best.energy, found),
    }
    notes = dict.fromkeys(note for task in tasks for note in task.notes)
    card = tasks[0].card
    return Answer(summary, [*notes, *_area(card, problem)], card, problem, found)


def _picked(flags: Flags, texts: Sequence[str]) -> tuple[str | None, list[str]]:
    """The workload of the listing MODEL, and the members of the mix."""
    if not flags.model.lower().endswith(".jsonl") or not texts:
        return None, list(texts)
    from ..workload._listing import PARTS, read_listings

    names = {listing.name for listing in read_listings(flags.model)}
    names |= {
        name.removesuffix(f"/{part}")
        for name in names
        for parts in PARTS
        for part in parts
    }
    own = [text for text in texts if text in names]
    if len(own) > 1:
        raise ValueError(
            f"`--workload` picks '{own[0]}' and '{own[1]}' of '{flags.model}'; give "
            f'the second as `--workload "{flags.model} --workload {own[1]}"`.'
        )
    return next(iter(own), None), [text for text in texts if text not in own]


def _check_no_model(flags: Flags):
    """Raises `ValueError` for flags that would belong to MODEL."""
    for field in dataclasses.fields(Flags):
        name = field.name
        if name in ("model", "set_field", "out", "as_json", *_SHARED):
            continue
        if getattr(flags, name):
            raise ValueError(
                f"`--{name.replace('_', '-')}` is given without MODEL; put it into the "
                "quotes of `--workload`."
            )


def _member(text: str, shared: Flags) -> Flags:
    """Flags of a quoted workload."""
    flags = estimate_flags(text, "codesign")
    for name in (*_SHARED, "set_field"):
        if getattr(flags, name):
            flag = "--set" if name == "set_field" else f"--{name.replace('_', '-')}"
            raise ValueError(
                f"`{flag}` goes behind `codesign`, not into the quotes of `--workload`."
            )
    same = {name: getattr(shared, name) for name in (*_SHARED, "set_field")}
    return dataclasses.replace(flags, **same)


def _named(mix: Mix, flags: Flags) -> Task:
    """A checked workload; of several, errors say which one is meant."""
    if len(mix.flags) == 1:
        return prepare(flags)
    try:
        return prepare(flags)
    except ValueError as error:
        raise ValueError(f"{flags.model}: {error}") from None


def _problem(tasks: Sequence[Task], wish: Wish, weights: Sequence[float]) -> "Problem":
    """The search that the flags ask for."""
    from ..codesign._problem.mixing import build

    task = tasks[0]
    ranges, tiles = wish.ranges()
    locked = task.flags.mem_clock is not None
    locked |= any(entry.name == "mem_clock" for entry in ranges)
    problem = build(
        [_part(task, weight) for task, weight in zip(tasks, weights, strict=True)],
        task.card,
        ranges,
        wish.goals,
        wish.limits(),
        tiles,
        point_of(task.flags, task.settings[0], locked),
        task.corrections.serve(task.card),
        wish.silicon_price(),
    )
    _check_bounds(problem, task.card)
    return problem


def _part(task: Task, weight: float) -> "Part":
    from ..codesign._problem.mixing import Part

    about = task.about
    batch, output_len = about["batch"] or 0, about["output_len"] or 0
    tokens = {"generate": batch * output_len, "decode": batch}
    return Part(
        task.listings,
        weight,
        task.memory,
        float(tokens.get(about["phase"], 0)),
        about["model"],
    )


def _check_bounds(problem: "Problem", card: "GpuCard"):
    """Raises `ValueError` for bounds that no GPU file may hold."""
    from ..hardware import with_fields
    from ..hardware._fields import FIELDS

    for axis in problem.axes[: len(problem.task.names)]:
        ends = (axis.low, axis.high) if axis.name in FIELDS else ()
        for end in ends:
            try:
                with_fields(card, {axis.name: end})
            except ValueError as error:
                raise ValueError(
                    f"`--vary {axis.name}` goes from {axis.low:g} to {axis.high:g}, "
                    f"but a GPU file refuses {end:g}: {error}"
                ) from None


def _search(problem: "Problem", wish: Wish) -> "Found":
    """Searches, with a bar on stderr."""
    from ..codesign._search.engine import options_of
    from ..codesign._search.searching import search
    from .programs import Programs

    effort = wish.effort()
    run = Programs(engine.cache_folder(), options_of)
    with progress("search", effort.rounds, "rounds", "objective") as tell:
        return search(
            problem, effort, lambda done, _, best: tell(done, float(best)), run
        )


def _refuse(problem: "Problem", found: "Found"):
    """Says which limits the closest design passes."""
    from ..report._summaries.design_summary import refusal
    from ..report._tables.designs import design_words

    fields = design_words(found.best.fields)
    line = f"{refusal(problem, found.best)}; its fields: {fields}."
    if not found.interrupted:
        raise Infeasible(line)
    line = f"diffenergy: interrupted before any design kept the limits; so far {line}"
    print(line, file=sys.stderr)
    raise typer.Exit(INTERRUPTED)


def _about(
    tasks: Sequence[Task], weights: Sequence[float], problem: "Problem"
) -> dict[str, Any]:
    """What `estimate` says of the workload; of a mix what its members share."""
    settled = {"sm_clock_mhz": ("sm_clock", "sm_clock_max")}
    settled |= {"mem_clock_mhz": ("mem_clock",), "power_limit_w": ("power_cap", "tdp")}
    varied = set(problem.task.names)
    members = []
    for task, weight in zip(tasks, weights, strict=True):
        assumed = {
            name: value
            for name, value in task.about["assumed"].items()
            if not varied & set(settled.get(name, ()))
        }
        members.append({**task.about, "assumed": assumed, "weight": weight})
    if len(members) == 1:
        return {name: x for name, x in members[0].items() if name != "weight"}
    shared = {
        name: value if all(m.get(name) == value for m in members) else None
        for name, value in members[0].items()
        if name not in ("model", "assumed", "weight")
    }
    model = " + ".join(dict.fromkeys(m["model"] for m in members))
    return {"model": model, **shared, "assumed": {}, "workloads": members}


def _interval(trust: Any, word: str, value: float, found: "Found") -> list[float]:
    return [float(x) for x in trust.interval(word, value, found.best.time)]


def _area(card: "GpuCard", problem: "Problem") -> list[str]:
    """How the area of a design is known."""
    from ..codesign._problem.card import area_words

    settled = problem.task.silicon.settled
    lacking = "" if settled else f"; of {card.name} itself no settled area is published"
    return [f"areas come from a {area_words()}{lacking}."]


# --- tiles


def _tuned(task: Task, wish: Wish) -> Answer:
    """Tiles of least time or energy for every matrix product of a workload."""
    from ..codesign._tiles.tuning import tune
    from ..compiling import compiler_options
    from ..hardware._spec import OperatingPoint
    from ..report._tables.tiles import tiles_json
    from . import programs

    folder, options = engine.cache_folder(), compiler_options(once=True)
    goal: Any = wish.goals[0] if wish.objective else "time"
    setting = task.settings[0]
    nan = float("nan")
    point = OperatingPoint(
        setting.sm_clock,
        setting.mem_clock,
        setting.power_limit,
        nan if setting.temperature is None else setting.temperature,
        float(task.flags.mem_clock is not None),
    )
    run: Callable[..., Any] = lambda function, arguments: programs.run(  # noqa: E731
        function, arguments, folder, options
    )
    tuning = tune(
        task.listings, task.card, task.corrections.serve(task.card), point, goal, run
    )
    summary = {**task.about, "grade": task.trust.grade, **tiles_json(tuning)}
    return Answer(summary, list(task.notes), task.card, tuning=tuning)
