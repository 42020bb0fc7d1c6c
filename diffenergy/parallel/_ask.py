"""Answers to what is asked of many GPUs, from names and numbers."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax

from ..estimator import Task, operating_points, prepare
from ..hardware import GpuCard, read_gpu
from ..plans import Plan, TrainingStep, host_of, plan_values, read_plan, training_of
from ..workload import LanguageModel, TrainedModel, assemble, complete_listing
from ..workload.models import load_model
from ._search.exact import check_fields, slopes
from ._search.result import PlanResult, plan_summary
from ._search.search import OBJECTIVES, Found, Limits, search
from ._search.space import Space

_ASKED: Final = ("dtype", "attention", "stack", "dispatch", "routing")
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
    found = read_plan(plan, num_gpus=num_gpus, training=True) or Plan()
    loaded = load_model(model) if isinstance(model, str) else model
    host, frozen = host_of(card, topology), request.get("frozen_layers") or 0
    placed = training_of(loaded, found, host, global_batch, frozen=frozen)
    listings, steps = placed.work(placed.request(phase="train", **request))
    workload = assemble([complete_listing(x) for x in listings])
    return TrainingStep(workload, steps, placed.order)


def plan(
    model: str,
    gpu: GpuCard | str = "h100-sxm",
    *,
    num_gpus: int | Sequence[int],
    global_batch: int,
    objective: str = "time",
    max_memory: float | None = None,
    max_power: float | None = None,
    sensitivity: Sequence[str] = (),
    told: Callable[[int, int, str], None] = lambda *_: None,
    **request: Any,
) -> PlanResult:
    """The best plan with which GPUs train a model: of all ways to divide them among
    tensor, pipeline, context, expert and data parallelism, with micro-batches of 1 to 8
    sequences, ZeRO 1 and 3, no and full recomputation, 1F1B, interleaved and ZB-H1.

    Args:
        model: bundled name, or a config file or folder.
        gpu: name, file, or one that was read.
        num_gpus: GPUs in all; of several numbers the best is taken.
        global_batch: sequences of a step.
        objective: `time` or `energy` of a step.
        max_memory: bytes that a GPU may hold [its capacity].
        max_power: W of all GPUs; lowers the SM clock where only this fails.
        sensitivity: fields by which the best step is differentiated: `network`,
            `sm_clock`, `power_limit`, fields of the GPU.
        told: called with the plans ranked, their number, and what is next.
        **request: `plan`, keys of `--plan` that are held, as text or a dict; `sm_clock`
            (Hz) [the highest] and `power_limit` (W of a board) [its default];
            `input_len`, `dtype`, `attention`, `stack`, `dispatch`, `routing`,
            `topology`, `mem_clock`, `temperature`, `changes`, `corrections` of
            `de.estimate`.

    Returns:
        The plan, its estimate, the next best and the frontier; `step` is the record of
        which `de.estimate` gives time and energy, differentiable.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: no plan keeps the limits; the message has the least that does.

    Example:

        >>> from diffenergy import parallel
        >>> found = parallel.plan("gpt2", num_gpus=8, global_batch=64, input_len=256)
        >>> found.summary["num_gpus"]
        8
    """
    numbers = (num_gpus,) if isinstance(num_gpus, int) else tuple(num_gpus)
    _check(objective, numbers, global_batch, max_memory, max_power)
    check_whole(request)
    check_fields(sensitivity)
    task, space = _space(model, gpu, numbers, global_batch, request)
    most = task.card.values["dram_capacity"] if max_memory is None else max_memory
    limits = Limits(most, math.inf if max_power is None else max_power)
    found = search(space, task.gpu, task.settings[0], limits, objective, told)
    asked = objective, limits, sensitivity
    return _answered(model, gpu, task, space, found, asked, request)


def _space(
    model: str,
    gpu: GpuCard | str,
    numbers: tuple[int, ...],
    global_batch: int,
    request: dict[str, Any],
) -> tuple[Task, Space]:
    """(the model on one GPU, all its plans); keys of a plan that are held leave
    `request`, whose one clock and limit become lists.

    Raises `ValueError` for a model or a machine of which no plans are searched.
    """
    held = request.pop("plan", None)
    for name in ("sm_clock", "power_limit"):
        if (value := request.pop(name, None)) is not None:
            request[name] = (value,)
    task = prepare(model, gpu, phase="train", plan=Plan(), global_batch=1, **request)
    loaded = load_model(model)
    if not isinstance(loaded, TrainedModel):
        raise ValueError(
            f"`model` is {loaded.name}, which is trained on one GPU alone here; take a "
            "decoder such as llama-3.1-8b."
        )
    host = host_of(task.card, request.get("topology"))
    if host.machine:
        raise ValueError(
            f"`topology` is '{host.name}', whose GPUs are not all behind one switch; "
            "plans are searched on dgx-a100, dgx-h100, dgx-b200 and gb200-nvl72: give "
            "`estimate` a plan."
        )
    held = {} if held is None else plan_values(held)
    if held.get("ep", 1) > 1 and loaded.default_routing() is None:
        raise ValueError(
            f"`plan` has ep={held['ep']}, but {loaded.name} has no experts; leave ep "
            "out."
        )
    about = task.about
    length, asked = about["input_len"], {name: about.get(name) for name in _ASKED}
    space = Space(loaded, task.card, host, numbers, global_batch, length, held, asked)
    return task, space


def _answered(
    model: str,
    gpu: GpuCard | str,
    task: Task,
    space: Space,
    found: Found,
    asked: tuple[str, Limits, Sequence[str]],
    request: dict[str, Any],
) -> PlanResult:
    """The best plan as `estimate` has it, with its record and derivatives; `asked`: the
    objective, its limits, and fields by which the step is differentiated."""
    objective, limits, sensitivity = asked
    setting, best = task.settings[0], found.best
    if best.sm_clock < setting.sm_clock:
        request = request | {"sm_clock": (best.sm_clock,)}
    batch = space.global_batch
    whole = {"plan": best.plan, "global_batch": batch}
    one = prepare(model, gpu, phase="train", **whole, **request).run(found.like)
    work = training_step(
        space.model,
        task.card,
        dataclasses.asdict(best.plan),
        global_batch=batch,
        topology=request.get("topology"),
        **{name: task.about.get(name) for name in ("input_len", *_ASKED)},
    )
    slowed = setting._replace(sm_clock=best.sm_clock)
    point = jax.tree.map(lambda x: x[0], operating_points([slowed]))
    by = slopes(work, task.gpu, point, sensitivity) if sensitivity else {}
    summary = plan_summary(found, one.summary, objective, limits, setting.sm_clock, by)
    return PlanResult(summary, found, one, work)


def check_whole(request: Mapping[str, Any]):
    """Raises `ValueError` if parts of a model are frozen, which no search knows."""
    for part in ("lora", "frozen_layers"):
        if request.get(part) is not None:
            raise ValueError(
                f"`{part}` is {request[part]}, but plans and clocks are searched for "
                "models that are trained whole; leave it out, or give `estimate` a "
                "plan."
            )


def _check(
    objective: str,
    num_gpus: Sequence[int],
    global_batch: int,
    max_memory: float | None,
    max_power: float | None,
) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(
            f"`objective` is '{objective}'; allowed are {', '.join(OBJECTIVES)}."
        )
    if not num_gpus:
        raise ValueError("`num_gpus` is empty; give at least one number of GPUs.")
    for name, number in (
        *(("num_gpus", x) for x in num_gpus),
        ("global_batch", global_batch),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(
                f"`{name}` is {number!r}; allowed is a whole number of at least 1."
            )
    for name, limit, unit in (
        ("max_memory", max_memory, "bytes"),
        ("max_power", max_power, "W"),
    ):
        if limit is not None and not 0 < limit < math.inf:
            raise ValueError(
                f"`{name}` is {limit:g} {unit}; allowed is a number above 0."
            )
