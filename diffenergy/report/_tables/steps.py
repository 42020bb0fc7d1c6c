"""A training step on the GPUs of a plan, in tables and lines."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ...estimator import mean_gpu_kernels
from ...plans import Plan
from .._blocks import Block, Columns, Table
from .._format import Entries, Entry, digits, percent, si
from .kernels import MOST, kernel_table

_AXES: Final = {
    "tp": "within layers (tp)",
    "pp": "between stages (pp)",
    "dp": "weights, gradients (dp)",
    "ep": "experts (ep)",
    "cp": "keys, values (cp)",
}
"""Display names of the exchanges by axis."""
_ALIKE: Final = ("layers", "forward_s", "backward_s", "busy", "power_w", "sm_clock_mhz")
"""Keys whose values must be equal for consecutive stages to be shown as one."""


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return a plan of a summary in the syntax of `--plan`, without implied values.

    >>> plan_text({"tp": 4, "pp": 1, "ep": 1, "dp": 2})
    'tp=4,dp=2'
    """
    read = Plan(**plan)
    for key in ("etp", "schedule"):
        shorter = dataclasses.replace(read, **{key: None})
        if shorter.to_json(True) == read.to_json(True):
            read = shorter
    return read.text


def step_blocks(summary: Entry) -> Iterator[Block]:
    """Yield tables and lines on passes, rates, power, exchanges and stages."""
    yield _passes(summary)
    yield from _lines(summary)
    if exchanges(summary):
        columns = (
            ("communication", "name"),
            ("in all", "total_s", "s"),
            ("exposed", "exposed_s", "s"),
            ("of the step", lambda x: x["exposed_s"] / summary["time_s"], percent),
        )
        yield Table(columns, exchanges(summary))
    yield Table(*stage_rows(summary, "a GPU"), spare=("SM clock", "layers"))


def step_kernels(summary: Entry, kernels: Entries, detail: bool) -> Iterator[Block]:
    """Yield a table of the mean GPU's kernels by share of time; with `detail` the
    kernels of every kind of virtual stage."""
    if not kernels:
        return
    shown, most = mean_gpu_kernels(kernels, summary), MOST
    busy = sum(kernel["count"] * kernel["time_s"] for kernel in shown)
    if detail:
        # shares of the sum over all GPUs, so that they add up to one
        gpus, most = summary["num_gpus"], None
        shown = [{**x, "count": x["count"] * x["gpus"] / gpus} for x in kernels]
    yield kernel_table(shown, busy, True, most)


def _passes(summary: Entry) -> Table:
    """Table of time, power and energy of each pass and of the step."""
    passes = {**summary["phases"], "step": {**summary, "limited_by": ""}}
    entries = [{**x, "name": name} for name, x in passes.items()]
    columns = (
        ("mean GPU", "name"),
        ("time", "time_s", "s"),
        ("share", lambda x: x["time_s"] / summary["time_s"], percent),
        ("a GPU", lambda x: x["avg_power_w"] / summary["num_gpus"], "{:.1f} W"),
        ("energy of all", "energy_j", "J"),
        ("SM clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("chip", "temperature_c", "{:.0f} C"),
        ("limited by", "limited_by"),
    )
    spare = ("chip", "SM clock", "limited by", "share")
    return Table(columns, entries, spare=spare, fold=["limited by"])


def _lines(summary: Entry) -> Iterator[str]:
    """Lines on rates, power, bubble and exposed communication."""
    mfu = summary["mfu"]
    lines = [
        f"{digits(summary['tokens_per_s'])} tokens/s",
        f"{digits(summary['tokens_per_s_per_gpu'])} a GPU",
        None if mfu is None else f"MFU {percent(mfu)}",
        f"{si(summary['energy_j_per_token'], 'J')} per token",
    ]
    yield f"step {si(summary['step_time_s'], 's')}: {', '.join(filter(None, lines))}"
    whole, gpus = si(summary["power_total_w"], "W"), summary["num_gpus"]
    of_all = f", {whole} of all {gpus}" if gpus > 1 else ""
    peak = summary["peak_power_w"]
    most = "" if peak is None else f", at most {si(peak, 'W')}"
    yield f"power: {summary['power_per_gpu_w']:.1f} W a GPU{of_all}{most}"
    yield (
        f"bubble {percent(summary['bubble'])} of the pipeline; exposed communication "
        f"{percent(summary['exposed_communication'])} of the step"
    )


def exchanges(summary: Entry) -> Entries:
    """Return the step's exchanges by axis, with display names."""
    axes = summary["communication"].items()
    return [{**x, "name": _AXES[axis]} for axis, x in axes if x["total_s"]]


def equal_runs(
    stages: Entries, alike: Callable[[Entry], Any]
) -> Iterator[tuple[str, Entries]]:
    """Yield runs of consecutive stages with equal `alike`, named "0" or "1 to 6"."""
    for _, run in itertools.groupby(enumerate(stages), lambda x: alike(x[1])):
        numbers, rows = zip(*run, strict=True)
        yield " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))), rows


def merge_equal_stages(stages: Entries) -> list[dict[str, Any]]:
    """Return the stages with `name`; consecutive stages that differ only in memory are
    merged, with the range of their `memory_bytes`."""
    lines = []
    for name, rows in equal_runs(stages, lambda stage: [stage[key] for key in _ALIKE]):
        memory = [x["memory_bytes"] for x in rows]
        ends = {"memory_bytes": min(memory), "most_bytes": max(memory)}
        lines.append({**rows[0], **ends, "name": name})
    return lines


def stage_rows(summary: Entry, power: str) -> tuple[Columns, Entries]:
    """Return columns and rows of the stages, merged where equal. `power`: heading of
    the column with a GPU's power."""
    columns = (
        ("stage", "name"),
        ("layers", "layers", "{:d}"),
        ("forward", "forward_s", "s"),
        ("backward", "backward_s", "s"),
        ("busy", "busy", percent),
        (power, "power_w", "{:.0f} W"),
        ("SM clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("memory", _memory_words),
    )
    return columns, merge_equal_stages(summary["stages"])


def _memory_words(stage: Entry) -> str:
    """Memory of a stage, or the range over merged stages."""
    low, high = (si(stage[key], "B") for key in ("memory_bytes", "most_bytes"))
    if low == high:
        return high
    number, unit = low.split()
    return f"{number if unit == high.split()[1] else low} to {high}"
