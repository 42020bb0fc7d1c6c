"""Estimates of one block: every workload under every operating point, one program.

All workloads of a block are one: phases do not know of each other, so each workload has
phases of its own in it. What a phase does depends on the clock that it holds alone: the
lower of the one that is asked for and the highest one under the power limit. So C
clocks under L limits are C estimates without a limit and L with one, put together by
phase.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compiling import compiler_options
from ..estimator import (
    Setting,
    Task,
    estimate_once,
    operating_points,
    phase_names,
    prepare,
    runs,
    tokens_of,
    too_low,
)
from ..hardware import OperatingPoint
from ..results import Infeasible
from ..units import MHz
from ..workload import assemble, pad_size
from ._spec import POINT, WORDS, Block, Spec, crossed

FIGURES: Final = (
    "time_s", "energy_j", "avg_power_w", "sm_clock_held_mhz", "ttft_s", "tpot_s",
    "energy_j_per_token",
)  # fmt: skip
"""Columns after the axes, NaN where not known; `error` stands behind them."""
_WORKLOADS: Final = 256
"""Workloads of a call at most."""
_WIDE: Final = 512
"""Phases times points that go through the program together, about."""
_FREE: Final = 1e9
"""W, a limit that is none (`OperatingPoint`)."""
_LONG: Final = 5_000
"""Rows from which on it pays to let the compiler optimise."""


_Placed = tuple[int, np.ndarray, Task]
"""A workload: its place in the block, those of its points, the checked request."""
_Figures = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Time (s), energy (J), clock (Hz) of phases, and whether the limit can be kept."""
_Call = tuple[Sequence[_Placed], Any]
"""Workloads with the figures of their phases, free and held, that are under way."""


class Rows(NamedTuple):
    """Columns of a block: values of the axes, figures, and why there are none."""

    axes: dict[str, list[Any]]
    figures: dict[str, np.ndarray]
    error: list[str | None]


def block_rows(spec: Spec, block: Block) -> Rows:
    """All rows of a block, in the order of the axes. Whatever keeps a configuration
    from an answer is its error text."""
    return begun(spec, block)()


def begun(spec: Spec, block: Block) -> Callable[[], Rows]:
    """Starts a block, which is computed while the caller prepares the next one; gives
    the function that waits for its rows."""
    points = list(crossed(spec.axes, POINT))
    shapes, width = list(block.shapes), len(points)
    error = np.full((len(shapes), width), None, object)
    tasks: list[_Placed] = []
    for place, shape in enumerate(shapes):
        for at, task in _prepared(spec, {**block.group, **shape}, points):
            if isinstance(task, Task):
                tasks.append((place, at, task))
            else:
                error[place, at] = task
    calls = _dispatched(tasks, spec.rows >= _LONG)

    def finish() -> Rows:
        figures = {x: np.full((len(shapes), width), np.nan) for x in FIGURES}
        for part, found in calls:
            phases, first = _crossed(*jax.device_get(found)), 0
            for place, at, task in part:
                last = first + len(task.listings)
                mine = [x[:, first:last] for x in phases]
                _fill(figures, error, place, at, task, mine)
                first = last
        rows = [{**block.group, **x, **y} for x in shapes for y in points]
        axes = {name: [row[name] for row in rows] for name in spec.axes}
        flat = {name: values.reshape(-1) for name, values in figures.items()}
        return Rows(axes, flat, error.reshape(-1).tolist())

    return finish


def _prepared(
    spec: Spec, chosen: Mapping[str, Any], points: Sequence[Mapping[str, Any]]
) -> list[tuple[np.ndarray, Task | str]]:
    """The checked request of a workload with the places of its points, or why it is
    none; where only some points can be had, each of the others apart."""
    every = np.arange(len(points))
    found = _task(spec, chosen, points)
    if isinstance(found, Task):
        return [(every, found)]
    if len(points) == 1 or not isinstance(_task(spec, chosen, ()), Task):
        return [(every, found)]
    good, parts = [], []
    for place, point in enumerate(points):
        single = _task(spec, chosen, [point])
        if isinstance(single, Task):
            good.append(place)
        else:
            parts.append((np.array([place]), single))
    parts += [
        (np.array([place]), _task(spec, chosen, [points[place]])) for place in good
    ]
    return parts


def _task(
    spec: Spec, chosen: Mapping[str, Any], points: Sequence[Mapping[str, Any]]
) -> Task | str:
    """The request with the lists of its points; why it is none."""
    asked = {**spec.fixed, **chosen}
    words = {x.removeprefix("gpu."): asked.pop(x) for x in WORDS if x in asked}
    if words:
        asked["changes"] = words
    for key in ("sm_clock", "power_limit", "mem_clock"):
        values = list(dict.fromkeys(x[key] for x in points if key in x))
        if not values and key in asked:
            values = [asked[key]]
        asked.pop(key, None)
        if values:
            scale = 1.0 if key == "power_limit" else MHz
            asked[key] = tuple(float(x) * scale for x in values)
    try:
        return prepare(asked.pop("model"), **asked, require_fit=True)
    except (ValueError, Infeasible) as error:
        return str(error)


def _dispatched(tasks: Sequence[_Placed], long: bool) -> list[_Call]:
    """Calls that are under way; those of alike sizes share a program."""
    alike: dict[Any, list[_Placed]] = {}
    for entry in tasks:
        alike.setdefault(tuple(entry[2].settings), []).append(entry)
    calls = []
    for settings, group in alike.items():
        gpu = group[0][2].gpu  # a block has one
        points = _points(settings)
        for start in range(0, len(group), _WORKLOADS):
            part = group[start : start + _WORKLOADS]
            filled = [*part, *[part[-1]] * (pad_size(len(part)) - len(part))]
            listings = [listing for *_, task in filled for listing in task.listings]
            together = max(1, _WIDE // len(listings))
            program = _program(together, long)
            calls.append((part, program(assemble(listings), gpu, *points)))
    return calls


def _points(settings: Sequence[Setting]) -> tuple[OperatingPoint, OperatingPoint]:
    """The clocks without a limit, and the highest of them under each limit."""
    clocks = list(dict.fromkeys(x.sm_clock for x in settings))
    limits = list(dict.fromkeys(x.power_limit for x in settings))
    one = settings[0]
    free = [one._replace(sm_clock=x, power_limit=_FREE) for x in clocks]
    held = [one._replace(sm_clock=max(clocks), power_limit=x) for x in limits]
    return operating_points(free), operating_points(held)


@functools.cache
def _program(together: int, long: bool) -> Callable[..., Any]:
    """Figures of phases [point, phase] without limits and with them."""

    def every(workload: Any, gpu: Any, free: Any, held: Any) -> Any:
        def at(point: Any) -> Any:
            run, _ = runs(workload, gpu, point, gpu.corrections, False, False)
            clock = jnp.minimum(point.sm_clock, gpu.sm_clock_applied_max)
            return run.time, run.energy, jnp.full_like(run.time, clock)

        def under(point: Any) -> Any:
            found = estimate_once(workload, gpu, point).phases
            return found.time, found.energy, found.sm_clock, found.feasible

        return (
            jax.lax.map(at, free, batch_size=together),
            jax.lax.map(under, held, batch_size=together),
        )

    return jax.jit(every, compiler_options=compiler_options(once=not long))


def _crossed(free: Sequence[np.ndarray], held: _Figures) -> _Figures:
    """Phases [limit x clock, phase]: each as at its clock, or as under its limit where
    that holds it below."""
    slower = held[2][:, None] < free[2][None]
    kept = np.broadcast_to(held[3][:, None], slower.shape)
    both = (
        np.where(slower, y[:, None], x[None])
        for x, y in zip(free, held[:3], strict=True)
    )
    time, energy, clock, feasible = (x.reshape(-1, x.shape[-1]) for x in (*both, kept))
    return time, energy, clock, feasible


def _fill(
    figures: dict[str, np.ndarray],
    error: np.ndarray,
    place: int,
    at: np.ndarray,
    task: Task,
    phases: Sequence[np.ndarray],
) -> None:
    """Writes the rows of a workload: totals are sums over its phases, the clock is the
    mean over time."""
    phase_time, phase_energy, phase_clock, feasible = phases
    phase_power = phase_energy / phase_time
    time, energy = phase_time.sum(axis=-1), phase_energy.sum(axis=-1)
    power = energy / time
    clock = (phase_clock * phase_time).sum(axis=-1) / time
    gpus = 1 if task.plan is None else task.plan.gpus  # no stages: all work at once
    energy, power = gpus * energy, gpus * power
    good = feasible.all(axis=-1)
    for point in np.flatnonzero(~good):
        least = float(phase_power[point][~feasible[point]].max())
        error[place, at[point]] = too_low(least, task.card)
    names, about = list(phase_names(task.listings)), task.about
    tokens = tokens_of(about)
    columns = {
        "time_s": time,
        "energy_j": energy,
        "avg_power_w": power,
        "sm_clock_held_mhz": clock / MHz,
    }
    if about["phase"] == "generate" and about["batch"] and about["output_len"]:
        columns["ttft_s"] = phase_time[:, names.index("prefill")]
        if about["output_len"] > 1 and "decode" in names:
            steps = about["output_len"] - 1
            columns["tpot_s"] = phase_time[:, names.index("decode")] / steps
    if tokens is not None:
        columns["energy_j_per_token"] = energy / tokens
    for name, values in columns.items():
        figures[name][place, at] = np.where(good, values, np.nan)
