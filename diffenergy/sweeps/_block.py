"""Estimates of one block: every workload under every operating point, one program.

All workloads of a block are one: phases do not know of each other, so each workload has
phases of its own in it. What a phase does depends on the clock that it holds alone: the
lower of the one that is asked for and the highest one under the power limit. So C
clocks under L limits are C estimates without a limit and L with one, put together by
phase.

Not by `at_points`, which makes C x L estimates of every workload: of llama-3.1-8b
decoding at 110 clocks, 10 limits and 8 batches this makes 54,000 rows for each second
of CPU, `at_points` 600 (1,600 where the compiler optimises).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compiling import call_compiled
from ..estimator import (
    Setting,
    Task,
    combinations,
    estimate_once,
    operating_points,
    phase_names,
    prepare,
    runs,
    tokens_of,
    too_low,
    unavailable,
)
from ..hardware import OperatingPoint
from ..results import Infeasible
from ..units import MHz
from ..workload import assemble, pad_size
from ._spec import POINT, WORDS, Block, Spec

FIGURES: Final = (
    "time_s", "energy_j", "avg_power_w", "sm_clock_held_mhz", "ttft_s", "tpot_s",
    "energy_j_per_token",
)  # fmt: skip
"""Columns after the axes, NaN where not known; `error` stands behind them."""
AT_WALL: Final = ("wall_power_w", "wall_energy_j", "site_energy_j")
"""More of them, of a sweep with a node."""
_WORKLOADS: Final = 256
"""Workloads of a call at most."""
_WIDE: Final = 512
"""Phases times points that go through the program together, about."""
_FREE: Final = 1e9
"""W, a limit that is none (`OperatingPoint`)."""
_LONG: Final = 5_000
"""Rows from which on it pays to let the compiler optimise."""


_Placed = tuple[int, Task]
"""A workload: its place in the block, the checked request."""
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
    points = list(combinations(spec.axes, POINT))
    shapes, width = list(block.shapes), len(points)
    error = np.full((len(shapes), width), None, object)
    tasks: list[_Placed] = []
    for place, shape in enumerate(shapes):
        task = _task(spec, {**block.group, **shape})
        if isinstance(task, Task):
            tasks.append((place, task))
        else:
            error[place] = task
    at, calls = np.empty(0, int), []
    if tasks:
        reasons = _reasons(tasks[0][1], points)
        missing = [place for place, reason in enumerate(reasons) if reason]
        error[:, missing] = [reasons[place] for place in missing]
        at = np.flatnonzero([reason is None for reason in reasons])
    if len(at):
        calls = _dispatched(tasks, [points[i] for i in at], spec.rows >= _LONG)

    def finish() -> Rows:
        names = (*FIGURES, *(AT_WALL if spec.has_node else ()))
        figures = {x: np.full((len(shapes), width), np.nan) for x in names}
        for part, results in calls:
            phases, first = _crossed(*jax.device_get(results)), 0
            for place, task in part:
                last = first + len(task.listings)
                mine = [x[:, first:last] for x in phases]
                _fill(figures, error, place, at, task, mine)
                first = last
        rows = [{**block.group, **x, **y} for x in shapes for y in points]
        axes = {name: [row[name] for row in rows] for name in spec.axes}
        flat = {name: values.reshape(-1) for name, values in figures.items()}
        return Rows(axes, flat, error.reshape(-1).tolist())

    return finish


def _reasons(task: Task, points: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Why the board of a task, which a block has one of, has not such points."""
    reasons = (unavailable(task.card, **_si(point)) for point in points)
    return [None if reason is None else str(reason) for reason in reasons]


def _si(point: Mapping[str, Any]) -> dict[str, float]:
    """Clocks in Hz, limits in W."""
    scales = {"power_limit": 1.0}
    return {key: float(x) * scales.get(key, MHz) for key, x in point.items()}


def _task(spec: Spec, chosen: Mapping[str, Any]) -> Task | str:
    """The checked request of a workload, at none of its points; why it is none."""
    values = {**spec.fixed, **chosen}
    words = {x.removeprefix("gpu."): values.pop(x) for x in WORDS if x in values}
    if words:
        values["changes"] = words
    at = _si({x: values.pop(x) for x in (*POINT, "mem_clock") if x in values})
    values |= {key: (value,) for key, value in at.items()}
    try:
        return prepare(values.pop("model"), **values, require_fit=True)
    except (ValueError, Infeasible) as error:
        return str(error)


def _dispatched(
    tasks: Sequence[_Placed], points: Sequence[Mapping[str, Any]], long: bool
) -> list[_Call]:
    """Calls that are under way; those of alike sizes share a program."""
    gpu = tasks[0][1].gpu  # a block has one
    settings, calls = _operating_points(tasks[0][1].settings[0], points), []
    for start in range(0, len(tasks), _WORKLOADS):
        part = tasks[start : start + _WORKLOADS]
        filled = [*part, *[part[-1]] * (pad_size(len(part)) - len(part))]
        listings = [listing for _, task in filled for listing in task.listings]
        arguments = assemble(listings), gpu, *settings
        together = max(1, _WIDE // len(listings))
        result = call_compiled(figures_at, arguments, not long, together=together)
        calls.append((part, result))
    return calls


def _operating_points(
    one: Setting, points: Sequence[Mapping[str, Any]]
) -> tuple[OperatingPoint, OperatingPoint]:
    """The clocks of `points` without a limit, and the highest of them under each limit;
    `one`: what the points do not say."""
    settings = [one._replace(**_si(point)) for point in points]
    clocks = list(dict.fromkeys(x.sm_clock for x in settings))
    limits = list(dict.fromkeys(x.power_limit for x in settings))
    free = [one._replace(sm_clock=x, power_limit=_FREE) for x in clocks]
    limited = [one._replace(sm_clock=max(clocks), power_limit=x) for x in limits]
    return operating_points(free), operating_points(limited)


def figures_at(
    workload: Any, gpu: Any, free: Any, limited: Any, together: int
) -> tuple[Any, Any]:
    """Figures of phases [point, phase] without limits and with them, so many points
    `together`."""

    def at(point: Any) -> Any:
        run, _ = runs(workload, gpu, point, gpu.corrections, False, False)
        clock = jnp.minimum(point.sm_clock, gpu.sm_clock_applied_max)
        return run.time, run.energy, jnp.full_like(run.time, clock)

    def under(point: Any) -> Any:
        phases = estimate_once(workload, gpu, point).phases
        return phases.time, phases.energy, phases.sm_clock, phases.feasible

    return (
        jax.lax.map(at, free, batch_size=together),
        jax.lax.map(under, limited, batch_size=together),
    )


def _crossed(free: Sequence[np.ndarray], limited: _Figures) -> _Figures:
    """Phases [limit x clock, phase]: each as at its clock, or as under its limit where
    that holds it below."""
    slower = limited[2][:, None] < free[2][None]
    within = np.broadcast_to(limited[3][:, None], slower.shape)
    both = (
        np.where(slower, y[:, None], x[None])
        for x, y in zip(free, limited[:3], strict=True)
    )
    time, energy, clock, feasible = (
        x.reshape(-1, x.shape[-1]) for x in (*both, within)
    )
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
        "sm_clock_held_mhz": np.round(clock / MHz, 9),  # 910, a mean of 910
    }
    if about["phase"] == "generate" and about["batch"] and about["output_len"]:
        columns["ttft_s"] = phase_time[:, names.index("prefill")]
        if about["output_len"] > 1 and "decode" in names:
            steps = about["output_len"] - 1
            columns["tpot_s"] = phase_time[:, names.index("decode")] / steps
    if tokens is not None:
        columns["energy_j_per_token"] = energy / tokens
    if task.site is not None:
        wall = task.site.energies(phase_time, phase_power, gpus).wall
        site = task.site.pue * wall
        columns |= dict(zip(AT_WALL, (wall / time, wall, site), strict=True))
    for name, values in columns.items():
        figures[name][place, at] = np.where(good, values, np.nan)
