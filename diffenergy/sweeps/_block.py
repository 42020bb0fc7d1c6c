"""Estimates of one block: every workload under every operating point, one program.

What does not follow the clocks (shapes, tiles, traffic) is computed once for each
workload: workloads go through `lax.map`, points through `vmap` within. Phases do not
know of each other, and what a phase does depends on the clock that it holds alone: the
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
from jax import Array

from ..compiling import compiler_options
from ..estimator import Task, prepare
from ..estimator._answer.summary import phase_names, tokens_of
from ..estimator._estimate import estimate_once
from ..estimator._requests import too_low
from ..estimator._settings import Setting, operating_points
from ..hardware import OperatingPoint
from ..results import Infeasible
from ..units import MHz
from ..workload._workload import assemble
from ._spec import POINT, Block, Spec, crossed

FIGURES: Final = (
    "time_s", "energy_j", "avg_power_w", "sm_clock_held_mhz", "ttft_s", "tpot_s",
    "energy_j_per_token",
)  # fmt: skip
"""Columns after the axes, NaN where not known; `error` stands behind them."""
_WIDE: Final = 64
"""Points that go through the program together at least, where workloads have few."""
_MANY: Final = 8
"""Workloads of a call at least; those that are lacking are filled up."""
_FREE: Final = 1e9
"""W, a limit that is none (`OperatingPoint`)."""
_LONG: Final = 5_000
"""Rows from which on it pays to let the compiler optimise."""


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
    tasks: list[tuple[int, np.ndarray, Task]] = []
    for place, shape in enumerate(shapes):
        for at, task in _prepared(spec, {**block.group, **shape}, points):
            if isinstance(task, Task):
                tasks.append((place, at, task))
            else:
                error[place, at] = task
    calls = _dispatched(tasks, spec.rows >= _LONG)

    def finish() -> Rows:
        figures = {x: np.full((len(shapes), width), np.nan) for x in FIGURES}
        for part, leaves in calls:
            leaves = jax.device_get(leaves)
            for number, (place, at, task) in enumerate(part):
                mine = jax.tree.map(lambda leaf: leaf[number], leaves)  # noqa: B023
                _fill(figures, error, place, at, task, mine)
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


def _dispatched(
    tasks: Sequence[tuple[int, np.ndarray, Task]], long: bool
) -> list[tuple[Sequence[tuple[int, np.ndarray, Task]], Any]]:
    """Tasks with what rows are made of [task, point, ...], of calls that are under way;
    those of one structure are of one program."""
    alike: dict[Any, list[tuple[Any, Any]]] = {}
    gpu = tasks[0][2].gpu if tasks else None  # a block has one
    for entry in tasks:
        task = entry[2]
        free, held = _points(task.settings)
        width = len(free.sm_clock) + len(held.sm_clock)
        arguments = (assemble(task.listings), gpu, free, held)
        leaves, tree = jax.tree.flatten(arguments)
        key = tree, tuple(np.shape(leaf) for leaf in leaves), width
        alike.setdefault(key, []).append((entry, arguments))
    calls = []
    for (*_, width), group in alike.items():
        together = max(1, _WIDE // width)
        size = max(_MANY, together)
        program = _program(together, long)
        for start in range(0, len(group), size):
            part = group[start : start + size]
            filled = [*part, *[part[-1]] * (size - len(part))]
            stacked = jax.tree.map(lambda *x: np.stack(x), *(x[1] for x in filled))
            calls.append(([entry for entry, _ in part], program(*stacked)))
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
    """What rows are made of [workload, point], of stacked arguments."""

    def one(arguments: Any) -> Any:
        workload, gpu, *points = arguments

        def at(point: Any) -> Any:
            found = estimate_once(workload, gpu, point).phases
            return found.time, found.energy, found.sm_clock, found.feasible

        return _crossed(*(jax.vmap(at)(x) for x in points))

    def every(*arguments: Any) -> Any:
        return jax.lax.map(one, arguments, batch_size=together)

    return jax.jit(every, compiler_options=compiler_options(once=not long))


def _crossed(free: Sequence[Array], held: Sequence[Array]) -> Any:
    """What rows are made of [limit x clock, phase]: each phase as at its clock, or as
    under its limit where that holds it below.

    Totals are sums over phases; the clock is the mean over time.
    """
    slower = held[2][:, None] < free[2][None]
    time, energy, clock = (
        jnp.where(slower, y[:, None], x[None]).reshape(-1, x.shape[-1])
        for x, y in zip(free[:3], held[:3], strict=True)
    )
    feasible = jnp.broadcast_to(held[3][:, None], slower.shape).reshape(time.shape)
    whole, spent = time.sum(axis=-1), energy.sum(axis=-1)
    mean = (clock * time).sum(axis=-1) / whole
    return (whole, spent, spent / whole, mean), (time, energy / time, feasible)


def _fill(
    figures: dict[str, np.ndarray],
    error: np.ndarray,
    place: int,
    at: np.ndarray,
    task: Task,
    leaves: Any,
) -> None:
    """Writes the rows of a workload."""
    (time, energy, power, clock), (phase_time, phase_power, feasible) = leaves
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
