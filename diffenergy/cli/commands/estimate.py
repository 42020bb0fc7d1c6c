"""`diffenergy estimate`: time, power and energy of a model or a kernel listing."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...estimator import EstimateResult, Task, prepare, start_jax
from ...report import trace_text
from ...workload import listing_lines
from ..flags.estimate import Flags
from ..parsing.field import as_flags, told
from ..run import Outcome, outcome


def task_of(flags: Any, **more: Any) -> Task:
    """The request of flags that have `model`, `gpu`, `workload` and the groups
    `request` and `point`."""
    start_jax()
    return prepare(
        flags.model,
        flags.gpu,
        workload=flags.workload,
        **vars(flags.point),
        **vars(flags.request),
        **more,
    )


def named(word: str, step: Callable[..., Any], *args: Any) -> Any:
    """`step(*args)`; errors say by `word` which of several estimates they belong to."""
    with told(lambda text: f"{word}: {as_flags(text, Flags)}"):
        return step(*args)


def run(flags: Flags) -> Outcome:
    """Evaluates what the flags ask for."""
    task = task_of(flags, detail=flags.detail)
    if flags.trace is not None and len(task.settings) > 1:
        raise ValueError("`trace` is given with several settings; give one of each.")
    result = task.run()
    traced = {} if flags.trace is None else {flags.trace: lambda: _trace(task, result)}
    return outcome(
        result,
        texts={
            ".jsonl": lambda: listing_lines(result.listings),
            ".csv": lambda: _csv(result.kernels or result.summary["points"]),
        },
        beside=traced,
    )


def _trace(task: Task, result: EstimateResult) -> str:
    """A timeline of the launches."""
    values, summary = task.card.values, result.summary
    share = summary["mem_clock_mhz"] * 1e6 / values["mem_clock"]
    return trace_text(
        summary, result.kernels or [], result.listings, values["dram_bandwidth"] * share
    )


def _csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries as CSV: nested figures become columns `key_unit`, None an empty cell."""
    flat = [_flat(entry) for entry in entries]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
