"""`diffenergy estimate`: time, power and energy of a model or a kernel listing."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import imports
from ...estimator import (
    EstimateRequest,
    EstimateResult,
    SweepRequest,
    Task,
    WorkRequest,
    crossed,
    prepare,
    start_jax,
)
from ...files import csv_text
from ...report import require_timeline, step_trace_text, trace_text
from ...requests import part
from ...workload import listing_lines
from ..flags import as_flags, naming_flags
from ..interruption import keeping
from ..progress import megabytes, points
from ..run import Outcome, need_pyarrow, outcome, power_table
from .estimate_flags import Flags


def task_of(request: WorkRequest, **more: Any) -> Task:
    """The task of a request: checked, with its files read. `more` replaces fields."""
    start_jax()
    more = {"model": import_model(request.model), **more}
    return prepare(**part(EstimateRequest, request, **more))


def import_model(model: Any) -> str | imports.ImportResult:
    """Imports a trace, graph or report and shows a progress bar; returns other models
    as they are."""
    if not imports.is_listing(model):
        return model
    with megabytes("reading") as show:
        return imports.read(model, progress=show)


def prefix_errors(word: str, step: Callable[..., Any], *args: Any) -> Any:
    """Returns `step(*args)`; errors begin with `word`, such as "A" of `compare`."""
    with naming_flags(Flags, lambda text: f"{word}: {text}"):
        return step(*args)


def run(flags: Flags) -> Outcome:
    """Runs one estimate, or all of crossed lists."""
    if any(len(values) > 1 for values in flags.lists.values()):
        return _crossed(flags)
    task = task_of(flags.single())
    if flags.trace is not None and len(task.settings) > 1:
        raise ValueError("`trace` is given with several settings; give one of each.")
    result = task.run()
    beside = power_table(flags.power_trace, result.curves, task.power_step)
    if flags.trace is not None:
        beside[flags.trace] = lambda: _trace(task, result)
    return outcome(
        result,
        texts={
            ".jsonl": lambda: listing_lines(result.listings),
            ".csv": lambda: _csv(_rows(result)),
        },
        beside=beside,
    )


def _crossed(flags: Flags) -> Outcome:
    """Every combination of the lists."""
    for name in ("detail", "sensitivity", "trace", "power_trace"):
        if getattr(flags, name):
            raise ValueError(f"`{name}` is given with several settings; give one each.")
    if flags.out is not None and flags.out.lower().endswith(".parquet"):
        need_pyarrow("out")
    start_jax()
    with keeping(), points("estimates") as show:
        more = {"progress": lambda done, total: show(done, total, "")}
        result = crossed(**part(SweepRequest, flags, **more))
    flagged = [
        x | {"error": as_flags(x["error"], Flags)} if "error" in x else x
        for x in result.summary["points"]
    ]
    result = dataclasses.replace(result, summary={**result.summary, "points": flagged})
    return outcome(
        result,
        texts={
            ".csv": lambda: _csv(result.summary["points"]),
            ".parquet": lambda: result.frame().to_parquet(),
        },
        interrupted=result.warnings[-1] if result.interrupted else "",
    )


def _trace(task: Task, result: EstimateResult) -> str:
    """Chrome trace of the launches, or of the pipeline stages of a training step."""
    if result.step is not None:
        timeline = require_timeline(result.step.timeline)
        return step_trace_text(result.summary, timeline, task.site)
    setting = task.settings[0]
    rates = task.card.rates(setting.sm_clock, setting.mem_clock)
    kernels = result.kernels or []
    return trace_text(result.summary, kernels, result.listings, float(rates.dram))


def _rows(result: EstimateResult) -> Sequence[Mapping[str, Any]]:
    """Rows of the CSV: points of a sweep, or kernels with figures of the whole
    request."""
    if result.kernels is None:
        return result.summary["points"]
    whole = {key: result.summary[key] for key in ("energy_j_per_token", "memory")}
    return [{**kernel, **whole} for kernel in result.kernels]


def _csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries as CSV: nested figures become columns `key_unit`, None an empty cell."""
    return csv_text([_flat(entry) for entry in entries])


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
