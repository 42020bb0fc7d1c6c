"""What one more of each number of a GPU does to the time and energy of a workload.

Effects of real numbers are slopes, all of them by one reverse pass of (ln time,
ln energy). Counted numbers (SMs, shared memory, registers, threads) act through whole
waves and CTAs, whose rounding passes gradients straight through (`smooth`): their
effects are differences of two estimates.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..compiling import call_compiled
from ..corrections import CLAIM_SHARE, CONSTANTS
from ..hardware import FIELDS, GpuSpec, OperatingPoint
from ..plans import NETWORK_FIELD, Steps
from ..records import Step
from ..workload import Workload
from ._answer.step_estimate import from_phases
from ._answer.steps import Order, composed
from ._estimate import estimate_once, estimate_workload

QUANTITIES: Final = ("time", "energy")
POINT: Final = {
    "sm_clock": ("sm_clock", "sm_clock_max"),
    "mem_clock": ("mem_clock", "mem_clock"),
    "power_limit": ("power_cap", "tdp"),
}
"""Clocks and limit as a caller names them: field of the point, and of the GPU where the
caller gave none."""
PRICES: Final = tuple(
    name
    for name, row in CONSTANTS.items()
    if name == "core_energy" or row.unit.startswith("J")
)
"""Constants that are energies, and the factor on those of the core: each 1 % less."""
_NODE: Final = -0.27
"""ln of the power at equal speed that foundries claim for one process more (N2 to A16,
`data/facts/processes.toml`)."""
_LINK_STEP: Final = (10.0, "GB/s", 10e9)
"""Of a network card."""
_LEAST: Final = 0.005
"""Per cent; smaller effects are left out."""
Row = dict[str, Any]


class Question(eqx.Module):
    """A workload on a GPU at a point; what makes its step, of training on GPUs."""

    workload: Workload
    gpu: GpuSpec
    point: OperatingPoint
    steps: Steps | None = None
    order: Order | None = None


def effects(
    question: Question, chosen: Collection[str], of: Sequence[str] = QUANTITIES
) -> list[Row]:
    """Rows `field`, `step`, `unit`, `time_pct`, `energy_pct` (those in `of`) and `by`,
    largest effect first.

    `chosen`: which of `POINT` a caller chose; the others follow the GPU. Raises
    `ValueError` if time and energy have no slope.
    """
    gpu, point, network = jax.device_get(call_compiled(_slopes, (question,)))
    steps = question.steps
    slopes = {name: np.array(getattr(gpu, name)) for name in FIELDS}
    stepped = (x for x, rule in FIELDS.items() if rule.step and not rule.counted)
    step_sizes = {
        x: _step(FIELDS[x].stepped, getattr(question.gpu, x)) for x in stepped
    }
    del step_sizes["mem_clock"]  # of a file it moves no rate
    for name, (at, field) in POINT.items():
        slope = np.asarray(getattr(point, at)).reshape(2, -1).sum(axis=1)
        if name in chosen:
            value = getattr(question.point, at)
            slopes[name], step_sizes[name] = slope, _step(FIELDS[field].stepped, value)
        else:
            slopes[field] += slope
    if steps is not None and math.isfinite(float(steps.network)):
        slopes[NETWORK_FIELD], step_sizes[NETWORK_FIELD] = (
            network,
            _step(_LINK_STEP, steps.network),
        )
    rows = [
        _row(name, number, unit, 100 * si * slopes[name], "gradient")
        for name, (number, unit, si) in step_sizes.items()
    ]
    rows += _prices(question.gpu, gpu)
    if not all(np.isfinite(list(_effect(row))).all() for row in rows):
        raise ValueError(
            "The workload has no finite slopes of time and energy (every `count` 0, or "
            "fields of the GPU that do not fit together); correct the listing or the "
            "GPU."
        )
    rows += _differences(question)
    others = [f"{name}_pct" for name in QUANTITIES if name not in of]
    rows = [{k: x for k, x in row.items() if k not in others} for row in rows]
    felt = [row for row in rows if max(_effect(row)) >= _LEAST]
    return sorted(felt, key=lambda row: -max(_effect(row)))


def _step(step: Step, value: Any, least: float = 0.0) -> Step:
    """A step, halved until it is at most a fifth of the number that it moves; a counted
    number by `least` at least."""
    number, unit, si = step
    most = float(np.min(value)) / 5
    while abs(si) > most > 0 and abs(si) / 2 >= least:
        number, si = number / 2, si / 2
    return number, unit, si


def _effect(row: Mapping[str, Any]) -> list[float]:
    """Sizes of the effects in a row."""
    return [abs(row[x]) for x in ("time_pct", "energy_pct") if x in row]


def _row(field: str, step: float, unit: str, percent: Any, by: str) -> Row:
    time, energy = (float(x) or 0.0 for x in percent)  # no -0
    effect = {"time_pct": time, "energy_pct": energy}
    return {"field": field, "step": step, "unit": unit, **effect, "by": by}


def _slopes(question: Question) -> tuple[GpuSpec, OperatingPoint, Array | None]:
    """Slopes of (ln time, ln energy), on a leading axis, by the GPU, the point and the
    rate of a network card."""

    def logs(
        gpu: GpuSpec, point: OperatingPoint, network: Array | None
    ) -> Float[Array, "2"]:
        result: Any = estimate_workload(question.workload, gpu, point)
        if steps is not None:
            moved = dataclasses.replace(steps, network=network)
            result = from_phases(result, moved, gpu.corrections, order)
        return jnp.log(jnp.stack([result.time, result.energy]))

    steps = question.steps
    order = None if question.order is None else question.order.pipeline
    network = None if steps is None else steps.network
    pull = jax.vjp(logs, question.gpu, question.point, network)[1]
    return jax.vmap(pull)(jnp.eye(2))


def _prices(gpu: GpuSpec, slope: GpuSpec) -> list[Row]:
    """Rows of energies, 1 % less each, and of one process node more."""
    values, slopes = gpu.corrections, slope.corrections
    of_log = {x: getattr(values, x) * getattr(slopes, x) for x in PRICES}
    rows = [_row(x, -1.0, "%", -np.asarray(of_log[x]), "gradient") for x in PRICES]
    node = 100 * CLAIM_SHARE * _NODE * np.asarray(of_log["core_energy"])
    return [*rows, _row("process_node", 1.0, "node", node, "gradient")]


def _differences(question: Question) -> list[Row]:
    """Rows of counted numbers, each one step up."""
    before, rows = _totals(question), []
    for name, rule in FIELDS.items():
        if rule.counted:
            value = np.asarray(getattr(question.gpu, name))
            number, unit, si = _step(rule.stepped, value, least=1.0)
            more = {name: value + si}
            gpu = dataclasses.replace(question.gpu, **more)
            after = _totals(dataclasses.replace(question, gpu=gpu))
            change = 100 * (after / before - 1)
            rows.append(_row(name, number, unit, change, "difference"))
    return rows


def _totals(question: Question) -> Float[np.ndarray, "2"]:
    """Time (s) and energy (J), rounded as hardware does."""
    q = question
    result: Any = call_compiled(estimate_once, (q.workload, q.gpu, q.point))
    if q.steps is not None:
        result = call_compiled(composed, (result, q.steps, q.gpu.corrections, q.order))
    return np.array([float(result.time), float(result.energy)])
