"""The public `estimate`: of records, pure; of names, as the command answers."""

import os
from collections.abc import Sequence
from typing import Any, get_args, overload

import numpy as np
from jax.core import Tracer

from ..corrections import Corrections
from ..hardware import GpuCard, GpuSpec, OperatingPoint, load_gpu
from ..plans import TrainingStep
from ..workload import Workload
from . import _estimate
from ._answer.records import Estimate
from ._answer.step_estimate import StepEstimate, of_step
from ._answer.summary import EstimateResult
from ._asking.request import prepare
from ._asking.task import Task


@overload
def estimate(
    workload: Workload,
    gpu: GpuSpec | GpuCard | str = ...,
    point: OperatingPoint | None = ...,
    corrections: Corrections | None = ...,
) -> Estimate: ...


@overload
def estimate(
    workload: TrainingStep,
    gpu: GpuSpec | GpuCard | str = ...,
    point: OperatingPoint | None = ...,
    corrections: Corrections | None = ...,
) -> StepEstimate: ...


@overload
def estimate(
    workload: str | os.PathLike[str],
    gpu: GpuCard | str = ...,
    *,
    corrections: str | None = ...,
    **request: Any,
) -> EstimateResult: ...


def estimate(
    workload: Any,
    gpu: Any = "h100-sxm",
    point: Any = None,
    corrections: Any = None,
    **request: Any,
) -> Estimate | StepEstimate | EstimateResult:
    """Time, power and energy of a workload on a GPU.

    Of a `Workload` the numbers alone, an `Estimate`: pure, jitted once per workload
    structure, differentiable in every number; `jax.vmap` over points, GPUs or
    corrections. Of a name the answer of `diffenergy estimate`, an `EstimateResult`,
    with interval, phases and units. Of a `parallel.TrainingStep` its time and energy on
    all GPUs, a `StepEstimate`, as pure as the first. All are of the steady state with
    random operands, of the GPU board alone (with a plan, of all boards).

    Gradients are those of the model but where hardware counts: tiles, waves of CTAs,
    CTAs an SM, splits, rounds. There the value is rounded as hardware does and the
    gradient passes straight through the rounding, as if fractions of a wave or of a CTA
    existed. The gradients by `num_sms`, `smem_per_sm`, `registers_per_sm`,
    `max_threads_per_sm`, `max_ctas_per_sm` and by tile sizes are those of this smoothed
    model: they lead a search over many steps, but do not tell what one SM more does.
    `sensitivity` answers that by differences of two estimates, and for all numbers at
    once; the `repr` of a gradient by a GPU shows its largest entries.

    Args:
        workload: a `Workload`, or the name of a bundled model, a Hugging Face
            `config.json` (or its folder), or a `.jsonl` kernel listing.
        gpu: a `GpuSpec` (`load_gpu`), a name, or the path of a `.toml` file
            [h100-sxm].
        point: clocks (Hz), power cap (W), temperature (C) of a `Workload`; leaves may
            have one row a phase [highest clocks, default power limit]. What the board
            does not have is answered, too, with `Estimate.feasible` false; by name it
            is refused.
        corrections: fitted constants: a `Corrections` record, by name a file or "none"
            [those of the GPU].
        **request: of a name, the flags of the command: `batch` [1], `input_len` [512]
            and `output_len` [128] in tokens, `phase` ("prefill", "decode", "generate",
            "forward", "train"), `dtype` [bf16], `kv_dtype`, `attention`, `stack`,
            `dispatch`, `routing`, `speculative`, `accept`, `draft_tokens`,
            `accumulation`, `checkpointing`, `lora`, `lora_layers`, `frozen_layers`,
            `images`, `image_tokens`, `steps`, `guidance`; `tokens` of a whole training
            run; `sm_clock` and `mem_clock` in Hz and `power_limit` in W, each a number
            or several (every combination is a point); `temperature` in C; `changes`,
            fields of the GPU in SI; `workload`, one of several in a listing;
            `plan` ("tp=8,pp=2" or a dict), `tp`, `num_gpus`,
            `topology`: many GPUs, whose joules are summed; `require_fit`: the GPU's
            memory has to suffice [no: `summary["warnings"]` says where it does not];
            `sensitivity`: the rows of `diffenergy.sensitivity` in the summary.

    Raises:
        ValueError: for what cannot be read or is out of range, in one sentence.
        Infeasible: no power limit asked for can be kept, or the memory that was
            required to suffice does not.
        TypeError: for arguments of another kind, in one sentence.

    Example:

        >>> from diffenergy import estimate, load_gpu, load_model
        >>> prefill = load_model("gpt2").workload(input_len=128, phase="prefill")
        >>> float(estimate(prefill, load_gpu("a100-sxm-80gb")).energy) > 0
        True
        >>> estimate("gpt2", "a100-sxm-80gb", batch=8).summary["phase"]
        'generate'
    """
    if isinstance(workload, Workload | TrainingStep):
        return _of_records(workload, gpu, point, corrections, request)
    return requested(workload, gpu, point, corrections, request).run()


def _of_records(
    work: Workload | TrainingStep,
    gpu: Any,
    point: Any,
    corrections: Any,
    request: dict[str, Any],
) -> Estimate | StepEstimate:
    """The numbers alone."""
    spec = check_records(work, gpu, point, corrections, request)
    if isinstance(work, TrainingStep):
        return of_step(_estimate.estimate_workload, work, spec, point, corrections)
    return _estimate.estimate_workload(work, spec, point, corrections)


def check_records(
    work: Workload | TrainingStep,
    gpu: Any,
    point: Any,
    corrections: Any,
    request: dict[str, Any],
) -> GpuSpec:
    """The GPU's numbers, if the arguments beside a `Workload` can be."""
    if request:
        raise TypeError(
            f"`{next(iter(request))}` is given beside a Workload, which is "
            "settled; give it to `Model.workload`, clocks and limits as `point`."
        )
    check_type("corrections", corrections, Corrections | None)
    check_type("point", point, OperatingPoint | None)
    return _spec(gpu)


def requested(
    name: Any, gpu: Any, point: Any, corrections: Any, request: dict[str, Any]
) -> Task:
    """The task of an estimate by name."""
    check_type("workload", name, str | os.PathLike)
    check_type("gpu", gpu, str | GpuCard)
    check_type("corrections", corrections, str | None)
    check_type("temperature", request.get("temperature"), int | float | None)
    check_type("tokens", request.get("tokens"), int | float | None)
    if point is not None:
        raise TypeError(
            "`point` is given beside a name; give `sm_clock`, `mem_clock`, "
            "`power_limit` and `temperature`."
        )
    for one in ("sm_clock", "mem_clock", "power_limit"):
        request[one] = several(one, request.get(one))
    return prepare(os.fspath(name), gpu, corrections=corrections, **request)


def _spec(gpu: Any) -> GpuSpec:
    """The numbers of a GPU, by whatever it is given."""
    check_type("gpu", gpu, GpuSpec | GpuCard | str)
    if isinstance(gpu, GpuSpec):
        return gpu
    return gpu.spec if isinstance(gpu, GpuCard) else load_gpu(gpu)


def several(name: str, value: Any) -> tuple[float, ...] | None:
    """One number or several as a tuple."""
    if value is None:
        return None
    if isinstance(value, Tracer):
        raise TypeError(
            f"`{name}` is differentiated (or traced), which an estimate by name cannot "
            "be; give a `Workload`, and the clocks in an `OperatingPoint`."
        )
    values = value if isinstance(value, Sequence) else np.atleast_1d(value).tolist()
    for x in values:
        check_type(name, x, int | float)
    return tuple(dict.fromkeys(float(x) for x in values))


def check_type(name: str, value: Any, kinds: Any):
    """Raises `TypeError` with one sentence unless `value` is of these kinds."""
    if not isinstance(value, kinds):
        allowed = [kind.__name__ for kind in get_args(kinds) or (kinds,)]
        words = " or ".join("None" if x == "NoneType" else x for x in allowed)
        raise TypeError(f"`{name}` is a {type(value).__name__}; allowed is {words}.")
