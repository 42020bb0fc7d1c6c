"""The public `plan`: clocks for the kernels of a model, or of a measured table."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Final, Literal, get_args

from ...estimator import Task, check_type, prepare, several
from ...hardware import GpuCard, read_gpu, switch_latency
from ...workload import Workload
from .._measured.table import Table, read_table
from .._problem.plan import (
    Aggregation,
    Goal,
    Granularity,
    Objective,
    Rules,
    Switching,
    SwitchKind,
)
from .._solving.schedule import Descent
from .answers import Progress, of_model, of_table
from .result import PlanResult

Solver = Literal["exact", "descent"]
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "objective": get_args(Goal),
    "granularity": get_args(Granularity),
    "aggregation": get_args(Aggregation),
    "solver": get_args(Solver),
}
_LISTS: Final = ("sm_clock", "mem_clock", "power_limit")


def plan(
    work: str | os.PathLike[str] | Task | None = None,
    gpu: str | GpuCard | None = None,
    *,
    objective: Goal | str = "energy",
    max_slowdown: int | float | None = None,
    granularity: Granularity | str = "kernel",
    aggregation: Aggregation | str = "global",
    per_launch: bool = False,
    switching: Switching | None = None,
    solver: Solver | str = "exact",
    seed: int | None = None,
    starts: int | None = None,
    power_curve: bool = False,
    table: str | os.PathLike[str] | Table | None = None,
    default_clock: str | None = None,
    smooth: bool = False,
    progress: Progress | None = None,
    **request: Any,
) -> PlanResult:
    """Clocks for every kernel, phase or iteration: less energy in the same time.

    Costs are the model's or a measured table's; a bound is stated (`docs/dvfs.md`).

    - `work`, `gpu`, `request`: as of `estimate`, or a Task of `estimator.prepare`, with
      `sm_clock`, `mem_clock` (Hz) to choose from [all]; of a table `gpu` may be unsaid.
    - `objective`: "energy", "edp", "ed2p" or "time" to be small; `max_slowdown`: most
      time against default clocks, %, below 0: a speed-up [0 for energy, else infinite].
    - `granularity`: what has its own clocks ("kernel", "phase", "iteration"), and with
      `per_launch` each launch; `aggregation`: whether the sum keeps the limits
      ("global") or every kernel ("local").
    - `switching`: what a change of clocks costs; `Switching()` is nothing [the latency
      published for the GPU, or for GPUs in general; beside a table nothing].
    - `solver`: "exact", or "descent" from `starts` [8] points drawn by `seed` [0];
      `power_curve`: also time and energy by power limit (W).
    - `table`: instead of `work`, a file or what `read_table` gives; `power_limit` (W):
      mean of an iteration at most; `default_clock`: "SM" or "SM,MEM" in MHz [auto];
      `smooth` plans on what is behind noisy readings with a 95 % bound (needs `gpu`),
      followed by `progress(word, steps)`, a context that gives a function of steps.

    Raises `Infeasible` if no schedule keeps the limits (`least`: what can be had), else
    `ValueError` or `TypeError`, in one sentence.

    >>> found = plan("gpt2", "a100-sxm-80gb", phase="decode", sm_clock=[9e8, 1.41e9])
    >>> found.bound <= found.energy < found.default.energy
    True
    """
    goal, size, sums, how = _chosen(objective, granularity, aggregation, solver)
    request |= {x: several(x, request[x]) for x in _LISTS if x in request}
    aim = _objective(goal, max_slowdown)
    costs, notes = _switching(switching)
    rules = Rules(sums, size, per_launch, costs)
    if table is None:
        _no_table(smooth, default_clock)
        task, how = _task(work, gpu, request), _descent(how, seed, starts)
        if switching is None:
            task, costs = _published(task)
            rules = dataclasses.replace(rules, switching=costs)
        return of_model(task, aim, rules, how, power_curve, notes)
    _table_decides(work, request, how, power_curve)
    _descent(how, seed, starts)
    if request.get("power_limit") is not None:
        aim = aim._replace(power_cap=_one_limit(request["power_limit"]))
    check_type("gpu", gpu, str | GpuCard | None)
    card = read_gpu(gpu) if isinstance(gpu, str) else gpu
    read = _read(table, default_clock, card)
    return of_table(read, aim, rules, notes, card, smooth, progress)


def _chosen(*words: Any) -> tuple[Any, ...]:
    """Words of `_CHOICES`, in their order, if each is allowed."""
    for (name, allowed), word in zip(_CHOICES.items(), words, strict=True):
        if word not in allowed:
            raise ValueError(f"`{name}` is '{word}'; allowed are {', '.join(allowed)}.")
    return words


def _objective(goal: Goal, slowdown: Any) -> Objective:
    """With its limit of time; unless it is given only energy has one."""
    if slowdown is None:
        slowdown = 0.0 if goal == "energy" else math.inf
    check_type("max_slowdown", slowdown, int | float)
    if not slowdown > -100:
        raise ValueError(
            f"`max_slowdown` is {slowdown:g}; allowed are percentages above -100 "
            "(negative asks for a speed-up), or none (infinite)."
        )
    return Objective(goal, float(slowdown))


def _switching(asked: Any) -> tuple[Switching | None, list[str]]:
    """What changes cost, None where they are free; whose figures that are."""
    check_type("switching", asked, Switching | None)
    if asked is None:
        return None, []
    if asked.kind not in get_args(SwitchKind):
        raise ValueError(
            f"`switching` is of kind '{asked.kind}'; allowed are "
            f"{', '.join(get_args(SwitchKind))}."
        )
    if not (asked.latency >= 0 and asked.energy >= 0):
        raise ValueError(
            f"`switching` takes {asked.latency:g} s and {asked.energy:g} J; allowed "
            "are 0 or more, or infinite."
        )
    said = f"switch latency {asked.latency:g} s of {asked.source}"
    return None if asked.free else asked, [said] if asked.source else []


def _published(task: Task) -> tuple[Task, Switching]:
    """What changes cost on the GPU of a request, and the request that says so."""
    gpu = task.about["gpu"]
    costs, warnings = Switching.published(gpu), task.warnings
    if switch_latency(gpu).typical:
        warnings = [
            *warnings,
            f"no latency of a change of clocks is published for {gpu}; "
            f"{costs.latency:g} s, that of GPUs in general, is taken.",
        ]
    taken = {**task.about["assumed"], "switch_latency_s": costs.latency}
    about = {**task.about, "assumed": taken}
    return dataclasses.replace(task, about=about, warnings=warnings), costs


def _descent(solver: str, seed: int | None, starts: int | None) -> Descent | None:
    for name, value, least in (("seed", seed, 0), ("starts", starts, 1)):
        if value is None:
            continue
        if solver == "exact":
            raise ValueError(
                f"`{name}` is given, but only the solver descent starts anywhere; "
                "leave it out."
            )
        check_type(name, value, int)
        if value < least:
            raise ValueError(
                f"`{name}` is {value}; allowed are whole numbers from {least}."
            )
    if solver == "exact":
        return None
    return Descent(8 if starts is None else starts, seed or 0)


def _one_limit(limits: Sequence[float]) -> float:
    if len(set(limits)) > 1:
        raise ValueError("`power_limit` is a list; give one limit.")
    return limits[0]


# --- of a model


def _task(work: Any, gpu: Any, request: dict[str, Any]) -> Task:
    if isinstance(work, Workload):
        raise TypeError(
            "`work` is a Workload, which has no names and no order of its kernels; "
            "give the name of its model or listing, or a Task of `estimator.prepare`."
        )
    if work is None:
        raise ValueError("`work` is missing; name a model, or give a measured table.")
    check_type("work", work, str | os.PathLike | Task)
    if isinstance(work, Task):
        if gpu is not None or request:
            name = "gpu" if gpu is not None else next(iter(request))
            raise TypeError(
                f"`{name}` is given beside a Task, which is settled; give it to "
                "`estimator.prepare`."
            )
        task = work
    else:
        check_type("gpu", gpu, str | GpuCard | None)
        task = prepare(os.fspath(work), gpu, **request)
    _one_limit([setting.power_limit for setting in task.settings])
    return task


def _no_table(smooth: bool, default_clock: str | None):
    """Refuses what only a table has."""
    if smooth:
        raise ValueError(
            "`smooth` is given without a table; a model has no noise to smooth."
        )
    if default_clock is not None:
        raise ValueError(
            "`default_clock` is given without a table; the default of a model is "
            "what the GPU does when its clocks are left alone."
        )


# --- of a table


def _read(table: Any, default_clock: str | None, card: GpuCard | None) -> Table:
    check_type("table", table, str | os.PathLike | Table)
    if not isinstance(table, Table):
        return read_table(os.fspath(table), default_clock, card)
    if default_clock is not None:
        raise ValueError(
            "`default_clock` is given beside a Table, which is read; give it to "
            "`read_table`."
        )
    return table


def _table_decides(
    work: Any, request: Mapping[str, Any], solver: str, power_curve: bool
):
    """Refuses what a table decides, and what needs a model."""
    for name, value in {"work": work, **request}.items():
        empty = value is None or value is False
        empty |= isinstance(value, Sized) and not len(value)
        if name != "power_limit" and not empty:
            raise ValueError(
                f"`{name}` is given beside a measured table, which decides it; leave "
                "one of them out."
            )
    if solver != "exact":
        raise ValueError(
            "`solver` is descent, which needs a model; a table has its settings only."
        )
    if power_curve:
        raise ValueError(
            "`power_curve` is given with a table, which does not say what a power "
            "limit does; give a model and a GPU."
        )
