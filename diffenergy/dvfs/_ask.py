"""The public `plan`: clocks for the kernels of a model, or of a measured table."""

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any, get_args

from ..estimator import Task, WorkRequest, prepare
from ..hardware import GpuCard, read_gpu, switch_latency
from ..nodes import site_of
from ..requests import BadRequest, accepts, check_type, explicit_fields, values_of
from ..workload import Workload
from ._answers import of_model, of_table
from ._plan import Objective, Rules
from ._request import DvfsRequest
from ._result import PlanResult
from ._schedule import Descent
from ._switching import Switching, SwitchKind
from ._table import Table, read_table


@accepts(DvfsRequest)
def plan(request: DvfsRequest) -> PlanResult:
    """Clocks for every kernel, phase or iteration: less energy in the same time.

    Costs are the model's or a measured table's; a bound is stated (`docs/dvfs.md`).
    `model` may be a Task of `estimator.prepare`, `table` what `read_table` gives;
    `switching` is what a change of clocks costs: `Switching()` is nothing [the latency
    published for the GPU, or for GPUs in general; beside a table nothing].

    Raises `Infeasible` if no schedule keeps the limits (`least`: what can be had), else
    `ValueError` or `TypeError`, in one sentence.

    >>> result = plan("gpt2", "a100-sxm-80gb", phase="decode", sm_clock=[9e8, 1.41e9])
    >>> result.bound <= result.energy < result.default.energy
    True
    """
    slowdown = request.max_slowdown
    if slowdown is None:
        slowdown = 0.0 if request.objective == "energy" else math.inf
    aim = Objective(request.objective, float(slowdown))
    costs, notes = _switching(request.switching)
    size, sums = request.granularity, request.aggregation
    rules = Rules(sums, size, request.per_launch, costs)
    how = _descent(request)
    if request.table is None:
        task = _task(request)
        if request.switching is None:
            task, costs = _published(task)
            rules = dataclasses.replace(rules, switching=costs)
        return of_model(task, aim, rules, how, request.power_curve, notes)
    limit, gpu = request.power_limit, request.gpu
    if gpu is None and request.node not in (None, "none"):
        raise BadRequest(
            "`node` is given with a table whose GPU is unknown; give `gpu`.", "node"
        )
    if limit is not None:
        aim = aim._replace(power_cap=_one_limit(values_of(limit) or ()))
    card = read_gpu(gpu) if isinstance(gpu, str) else gpu
    table = _read(request.table, request.default_clock, card)
    site, taken = (None, {}) if card is None else site_of(request, card)
    smooth, progress = request.smooth, request.progress
    return of_table(table, aim, rules, notes, card, smooth, progress, site, taken)


def _switching(switching: Any) -> tuple[Switching | None, list[str]]:
    """Cost of changes of clocks, None where they are free, and notes on its source."""
    check_type("switching", switching, Switching | None)
    if switching is None:
        return None, []
    if switching.kind not in get_args(SwitchKind):
        raise ValueError(
            f"`switching` is of kind '{switching.kind}'; allowed are "
            f"{', '.join(get_args(SwitchKind))}."
        )
    if not (switching.latency >= 0 and switching.energy >= 0):
        raise ValueError(
            f"`switching` takes {switching.latency:g} s and {switching.energy:g} J; "
            "allowed are 0 or more, or infinite."
        )
    note = f"switch latency {switching.latency:g} s of {switching.source}"
    return None if switching.free else switching, [note] if switching.source else []


def _published(task: Task) -> tuple[Task, Switching]:
    """The task with the assumed latency in `about`, and the published switching."""
    gpu = task.about["gpu"]
    costs, warnings = Switching.published(gpu), task.warnings
    if switch_latency(gpu).typical:
        warnings = [
            *warnings,
            f"no latency of a change of clocks is published for {gpu}; "
            f"{costs.latency:g} s, that of GPUs in general, is taken.",
        ]
    assumed = {**task.about["assumed"], "switch_latency_s": costs.latency}
    about = {**task.about, "assumed": assumed}
    return dataclasses.replace(task, about=about, warnings=warnings), costs


def _descent(request: DvfsRequest) -> Descent | None:
    if request.solver == "exact":
        return None
    starts = 8 if request.starts is None else request.starts
    return Descent(starts, request.seed or 0)


def _one_limit(limits: Sequence[float]) -> float:
    if len(set(limits)) > 1:
        raise ValueError("`power_limit` is a list; give one limit.")
    return limits[0]


# --- of a model


def _task(request: DvfsRequest) -> Task:
    model = request.model
    if isinstance(model, Workload):
        raise TypeError(
            "`model` is a Workload, which has no names and no order of its kernels; "
            "give the name of its model or listing, or a Task of `estimator.prepare`."
        )
    if model is None:
        raise BadRequest(
            "`model` is missing; name one, or give a measured `table`.", "model"
        )
    check_type("model", model, str | Task)
    shared = {x.name for x in dataclasses.fields(WorkRequest)}
    arguments = {x: y for x, y in vars(request).items() if x in shared}
    if isinstance(model, Task):
        settled = next(
            (x for x in explicit_fields(request) if x in shared - {"model"}), ""
        )
        if settled:
            raise TypeError(
                f"`{settled}` is given beside a Task, which is settled; give it to "
                "`estimator.prepare`."
            )
        task = model
    else:
        task = prepare(**arguments)
    _one_limit([setting.power_limit for setting in task.settings])
    return task


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
