"""`plan` and `training_step`: public functions of many GPUs."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax.numpy as jnp
from jax import Array

from ..estimator import (
    FIELD_PLACES,
    EstimateRequest,
    Task,
    estimate,
    prepare,
    slopes,
)
from ..hardware import GpuCard, GpuSpec, OperatingPoint, read_gpu
from ..nodes import Site
from ..plans import (
    NETWORK_FIELD,
    Plan,
    TrainingStep,
    host_of,
    plan_values,
    read_plan,
    training_of,
)
from ..requests import BadRequest, accepts, values_of
from ..workload import LanguageModel, TrainedModel, assemble
from ..workload.models import load_model
from ._request import PlanRequest, TrainedRequest
from ._result import PlanResult, plan_summary, step_of
from ._search import Limits, SearchOutcome, point_at, search
from ._space import Space

GPU: Final = "h100-sxm"
_CHOICES: Final = ("dtype", "attention", "stack", "dispatch", "routing")
"""Choices of a model that plans share, beside the length of its input."""


def training_step(
    model: str | LanguageModel,
    gpu: GpuCard | str,
    plan: "str | Mapping[str, Any] | Plan | None" = None,
    *,
    global_batch: int | None = None,
    num_gpus: int | None = None,
    topology: str | None = None,
    **request: Any,
) -> TrainingStep:
    """The training step of a model on the GPUs of a plan, as records.

    Args:
        model: bundled name, config file or folder, or a language model.
        gpu: GPU whose machine decides what meets in a host.
        plan: sizes and words of `--plan`, as text or a dict [one GPU].
        global_batch: sequences of a step [one micro-batch a replica].
        num_gpus: GPUs in all; `dp` follows.
        topology: machine [that in which the GPU is sold].
        **request: `input_len`, `dtype`, `attention`, `stack`, `dispatch`, `routing`,
            `lora`, `frozen_layers` of `de.estimate`.

    Raises:
        ValueError: for what cannot be, in one sentence.

    Example:

        >>> from diffenergy import estimate, load_gpu
        >>> step = training_step("gpt2", "h100-sxm", "dp=8", global_batch=64)
        >>> float(estimate(step, load_gpu("h100-sxm")).energy) > 0
        True
    """
    card = read_gpu(gpu) if isinstance(gpu, str) else gpu
    sizes = read_plan(plan, num_gpus=num_gpus, training=True) or Plan()
    loaded = load_model(model) if isinstance(model, str) else model
    host, frozen = host_of(card, topology), request.get("frozen_layers") or 0
    placed = training_of(loaded, sizes, host, global_batch, frozen=frozen)
    listings, steps = placed.work(placed.request(phase="train", **request))
    workload = assemble(listings)
    return TrainingStep(workload, steps, placed.order)


@accepts(PlanRequest)
def plan(request: PlanRequest) -> PlanResult:
    """The best plan with which GPUs train a model: of all ways to divide them among
    tensor, pipeline, context, expert and data parallelism, with micro-batches of 1 to 8
    sequences, ZeRO 1 and 3, no and full recomputation, 1F1B, interleaved and ZB-H1.

    Returns:
        The plan, its estimate, the next best and the frontier; `step` is the record of
        which `de.estimate` gives time and energy, differentiable.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: no plan keeps the limits; the message has the least that does.

    Example:

        >>> from diffenergy import parallel
        >>> result = parallel.plan("gpt2", num_gpus=8, global_batch=64, input_len=256)
        >>> result.summary["num_gpus"]
        8
    """
    for name in ("num_gpus", "global_batch"):
        if not getattr(request, name):
            raise BadRequest(f"`{name}` is missing; a search needs it.", name)
    for name in ("sm_clock", "power_limit"):
        if len(getattr(request, name) or ()) > 1:
            raise BadRequest(f"`{name}` is a list; a search takes one value.", name)
    check_whole(request)
    check_fields(request.sensitivity)
    task, space = _space(request)
    most, capacity = request.max_memory, task.card.values["dram_capacity"]
    over = (request.max_power, request.max_swing, request.max_ramp)
    limits = Limits(
        capacity if most is None else most,
        *(math.inf if x is None else x for x in over),
    )
    objective = request.objective or "time"
    setting = task.settings[0]
    outcome = search(space, task.gpu, setting, limits, objective, request.progress)
    return _answered(request, task, space, outcome, limits)


def _space(request: PlanRequest) -> tuple[Task, Space]:
    """(the model on one GPU, all its plans).

    Raises `ValueError` for a model or a machine of which no plans are searched.
    """
    model = request.model
    global_batch = request.global_batch or 1
    numbers = values_of(request.num_gpus) or ()
    one = {"plan": Plan(), "global_batch": 1}
    task = prepare(**_shared(request) | one)
    loaded = load_model(model)
    if not isinstance(loaded, TrainedModel):
        raise ValueError(
            f"`model` is {loaded.name}, which is trained on one GPU alone here; take a "
            "decoder such as llama-3.1-8b."
        )
    host = host_of(task.card, request.topology)
    if host.machine:
        raise ValueError(
            f"`topology` is '{host.name}', whose GPUs are not all behind one switch; "
            "plans are searched on dgx-a100, dgx-h100, dgx-b200 and gb200-nvl72: give "
            "`estimate` a plan."
        )
    requested: Any = request.plan
    fixed = {} if requested is None else plan_values(requested)
    if fixed.get("ep", 1) > 1 and loaded.default_routing() is None:
        raise ValueError(
            f"`plan` has ep={fixed['ep']}, but {loaded.name} has no experts; leave ep "
            "out."
        )
    about = task.about
    length, choices = about["input_len"], {name: about.get(name) for name in _CHOICES}
    space = Space(
        loaded,
        task.card,
        host,
        numbers,
        global_batch,
        length,
        fixed,
        choices,
        task.site,
    )
    return task, space


def _shared(request: PlanRequest) -> dict[str, Any]:
    """What a request shares with an estimate of its training step."""
    names = {x.name for x in dataclasses.fields(EstimateRequest)} - {"num_gpus"}
    fields = {x: y for x, y in vars(request).items() if x in names}
    return fields | {"sensitivity": False, "phase": "train", "gpu": request.gpu or GPU}


def _answered(
    request: PlanRequest,
    task: Task,
    space: Space,
    outcome: SearchOutcome,
    limits: Limits,
) -> PlanResult:
    """The best plan as `estimate` has it, with its record and derivatives."""
    objective, sensitivity = request.objective or "time", request.sensitivity
    setting, best = task.settings[0], outcome.best
    fields = _shared(request)
    if best.sm_clock < setting.sm_clock:
        fields |= {"sm_clock": (best.sm_clock,)}
    batch = space.global_batch
    whole = {"plan": best.plan, "global_batch": batch}
    chosen = prepare(**fields | whole)
    if limits.over_time:
        chosen = dataclasses.replace(chosen, power_step=best.time / 2)
    one, slopes = chosen.run(outcome.like), {}
    if sensitivity:
        point = point_at(setting, best.sm_clock)
        slopes = step_slopes(
            step_of(chosen), task.gpu, point, sensitivity, task.site, best.plan.gpus
        )
    highest = setting.sm_clock
    summary = plan_summary(outcome, one.summary, objective, limits, highest, slopes)
    return PlanResult(summary, outcome, one, chosen)


def check_whole(request: TrainedRequest):
    """Raises `ValueError` if parts of a model are frozen, which no search knows."""
    for part in ("lora", "frozen_layers"):
        value = getattr(request, part)
        if value is not None:
            raise BadRequest(
                f"`{part}` is {value}, but plans and clocks are searched for models "
                "that are trained whole; leave it out, or give `estimate` a plan.",
                part,
            )


# --- Derivatives of a training step's time and energy by clocks, links and hardware.

_METRICS: Final = ("step_time_s", "energy_j", "wall_energy_j")
_PLACES: Final = FIELD_PLACES | {NETWORK_FIELD: ("steps", "network")}


def check_fields(fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name not in _PLACES:
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are network (B/s of a GPU's "
                "network card), sm_clock, power_limit and fields of the GPU such as "
                "link_bandwidth (`diffenergy gpus show`)."
            )


def step_slopes(
    step: TrainingStep,
    gpu: GpuSpec,
    point: OperatingPoint,
    fields: Sequence[str],
    site: Site | None = None,
    gpus: int = 1,
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Derivatives of `_METRICS` (at the wall: with a `site`) by each field: its
    `value`, `per_unit` (metric's unit per SI unit), `per_percent` (% of the metric by
    one more % of the field); a rate that is not there has none."""

    def metrics(moved: dict[str, Any]) -> Array:
        work = TrainingStep(step.workload, moved["steps"], step.order)
        totals = estimate(work, moved["gpu"], moved["point"])
        figures = [totals.time, totals.energy]
        if site is not None:
            power = totals.energy / totals.time / gpus
            figures.append(totals.time * site.power(power, gpus))
        return jnp.stack(figures)

    parts = {"steps": step.steps, "gpu": gpu, "point": point}
    places = {name: _PLACES[name] for name in fields}
    at, table = slopes(metrics, parts, places)
    values = [float(getattr(parts[part], x)) for part, x in places.values()]

    def entry(value: float, slope: float, metric: float) -> dict[str, Any]:
        if math.isinf(value):
            return dict.fromkeys(("value", "per_unit", "per_percent"))
        percent = slope * value / metric
        return {"value": value, "per_unit": slope, "per_percent": percent}

    return {
        metric: {
            name: entry(value, slope, total)
            for name, value, slope in zip(fields, values, row, strict=True)
        }
        for metric, total, row in zip(
            _METRICS, at.tolist(), table.tolist(), strict=False
        )
    }
