"""The public `estimate`: of records, pure; of names, as the command answers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, overload, runtime_checkable

import numpy as np
from jax.core import Tracer

from ..corrections import Corrections
from ..hardware import GpuCard, GpuSpec, OperatingPoint, load_gpu
from ..plans import TrainingStep
from ..requests import arguments, check_type
from ..workload import Workload
from . import _estimate
from ._answer.records import Estimate
from ._answer.step_estimate import StepEstimate, of_step
from ._answer.summary import EstimateResult
from ._asking.estimate_request import EstimateRequest
from ._asking.request import DEFAULT_GPU, prepare
from ._asking.task import Task

P = ParamSpec("P")


@runtime_checkable
class _Estimating(Protocol[P]):
    """`estimate` for editors: of records, or of a name and a request's fields."""

    @overload
    def __call__(
        self,
        workload: Workload,
        gpu: GpuSpec | GpuCard | str = ...,
        point: OperatingPoint | None = ...,
        corrections: Corrections | None = ...,
    ) -> Estimate: ...

    @overload
    def __call__(
        self,
        workload: TrainingStep,
        gpu: GpuSpec | GpuCard | str = ...,
        point: OperatingPoint | None = ...,
        corrections: Corrections | None = ...,
    ) -> StepEstimate: ...

    @overload
    def __call__(self, *args: P.args, **request: P.kwargs) -> EstimateResult: ...


def _estimate_by_name(
    request: Callable[P, EstimateRequest],
) -> Callable[[Callable[..., Any]], _Estimating[P]]:
    """Gives a function of records or names the arguments of a request."""

    def decorate(function: Callable[..., Any]) -> _Estimating[P]:
        function.__signature__ = inspect.signature(request)  # pyright: ignore
        function.__doc__ = f"{function.__doc__}\n\n{arguments(request)}"
        return function  # pyright: ignore[reportReturnType]

    return decorate


@_estimate_by_name(EstimateRequest)
def estimate(*args: Any, **request: Any) -> Estimate | StepEstimate | EstimateResult:
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
        **request: of a name, the fields of `EstimateRequest` (below), which are the
            flags of the command in SI; lists of clocks and limits: every combination
            is a point.

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
    if isinstance(first(args, request), Workload | TrainingStep):
        return _of_records(*args, **request)
    return requested(*args, **request).run()


def first(args: Sequence[Any], request: Mapping[str, Any]) -> Any:
    """The workload among the arguments of a call."""
    return args[0] if args else request.get("workload")


def _of_records(
    workload: Workload | TrainingStep,
    gpu: Any = DEFAULT_GPU,
    point: Any = None,
    corrections: Any = None,
    **request: Any,
) -> Estimate | StepEstimate:
    """Estimate of records, without a summary."""
    spec = check_records(workload, gpu, point, corrections, request)
    if isinstance(workload, TrainingStep):
        return of_step(_estimate.estimate_workload, workload, spec, point, corrections)
    return _estimate.estimate_workload(workload, spec, point, corrections)


def check_records(
    work: Workload | TrainingStep,
    gpu: Any,
    point: Any,
    corrections: Any,
    request: dict[str, Any],
) -> GpuSpec:
    """Check the arguments beside a `Workload`; returns the GPU's numbers."""
    if request:
        raise TypeError(
            f"`{next(iter(request))}` is given beside a Workload, which is "
            "settled; give it to `Model.workload`, clocks and limits as `point`."
        )
    check_type("corrections", corrections, Corrections | None)
    check_type("point", point, OperatingPoint | None)
    for name in () if point is None else ("sm_clock", "mem_clock"):
        clock = getattr(point, name)
        if not isinstance(clock, Tracer) and np.isnan(clock).any():
            raise ValueError(
                f"`point.{name}` is nan; give it in Hz, as `default_point` does."
            )
    return _spec(gpu)


def requested(
    model: Any, gpu: Any = None, point: Any = None, corrections: Any = None,
    **request: Any,
) -> Task:  # fmt: skip
    """The task of an estimate by name."""
    if point is not None:
        raise TypeError(
            "`point` is given beside a name; give `sm_clock`, `mem_clock`, "
            "`power_limit` and `temperature`."
        )
    return prepare(model, gpu, corrections=corrections, **request)


def _spec(gpu: Any) -> GpuSpec:
    """The `GpuSpec` of a name, a card or a record."""
    check_type("gpu", gpu, GpuSpec | GpuCard | str)
    if isinstance(gpu, GpuSpec):
        return gpu
    return gpu.spec if isinstance(gpu, GpuCard) else load_gpu(gpu)
