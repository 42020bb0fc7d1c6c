"""The public `sensitivity`: which numbers of a GPU matter most."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
from jax.core import Tracer

from ..hardware import default_point
from ..plans import TrainingStep
from ..requests import check_type
from ..results import Result
from ..workload import Workload
from ._answer.steps import Order
from ._ask import check_records, requested
from ._asking.request import DEFAULT_GPU
from ._effects import POINT, QUANTITIES, Question, effects


@dataclasses.dataclass(frozen=True, repr=False)
class SensitivityResult(Result):
    """Effect of one more of each number of a GPU, largest first.

    `summary`: the JSON, with the `sensitivity` of `diffenergy estimate --sensitivity`;
    by name also what was asked for and estimated.
    """

    view: ClassVar[str] = "runs.sensitivity"
    summary: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows `field`, `step`, `unit`, `time_pct`, `energy_pct`, `by`."""
        return self.summary["sensitivity"]


def sensitivity(
    workload: Any,
    gpu: Any = None,
    point: Any = None,
    corrections: Any = None,
    *,
    of: Any = QUANTITIES,
    **request: Any,
) -> SensitivityResult:
    """Which numbers of a GPU matter most to a workload: one more X buys Y.

    Of each number what a designer adds at once (100 GB/s, 1 MiB of L2, 100 MHz, 10 W,
    256 FLOP/cycle/SM, an energy 1 % lower, a process node), and by how many per cent
    time and energy change. Real numbers by gradient, all in one reverse pass, as if the
    slope held over the step (`by = "gradient"`). Numbers that are counted (SMs, shared
    memory, registers, threads, CTAs) by two estimates (`by = "difference"`): their
    gradient passes straight through the rounding to whole waves and CTAs, so that it is
    that of the smoothed model. Effects below 0.005 % are left out.

    Args:
        workload: as of `estimate`: a `Workload`, a `parallel.TrainingStep`, or the name
            of a model or a file.
        gpu: a `GpuSpec`, a name, or the path of a `.toml` file [h100-sxm].
        point: of a `Workload` its clocks and power limit, which are then rows
            (`sm_clock`, `mem_clock`, `power_limit`); left out, they follow the GPU's
            (`sm_clock_max`, `tdp`).
        corrections: fitted constants, as of `estimate` [those of the GPU].
        of: what is to be known: "time", "energy", or both.
        **request: of a name, the flags of `estimate`.

    Raises:
        ValueError: for what cannot be read or is out of range, in one sentence.
        Infeasible: a power limit cannot be kept.
        TypeError: for arguments of another kind, in one sentence.

    Example:

        >>> import diffenergy as de
        >>> table = de.sensitivity("gpt2", "a100-sxm-80gb", phase="decode", of=["time"])
        >>> table.rows[0]["field"], table.rows[0]["time_pct"] < 0
        ('sm_clock_max', True)
    """
    of = _checked(of)
    if not isinstance(workload, Workload | TrainingStep):
        request |= {"sensitivity": True}
        task = requested(workload, gpu, point, corrections, **request)
        summary = dataclasses.replace(task, sensitivity=of).run().summary
        kinds = ("time_s", "energy_j", "avg_power_w", "sensitivity", "warnings")
        return SensitivityResult({**task.about, **{x: summary[x] for x in kinds}})
    arguments = (workload, gpu, point, corrections)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(arguments)):
        raise TypeError(
            "`sensitivity` is differentiated (or traced), which it cannot be; use "
            "`estimate`."
        )
    gpu = DEFAULT_GPU if gpu is None else gpu
    spec = check_records(workload, gpu, point, corrections, request)
    at = default_point(spec) if point is None else point
    step = workload if isinstance(workload, TrainingStep) else None
    question = (
        Question(workload, spec, at)  # pyright: ignore[reportArgumentType]
        if step is None
        else Question(step.workload, spec, at, step.steps, Order(step.order))
    )
    chosen = () if point is None else tuple(POINT)
    return SensitivityResult({"sensitivity": effects(question, chosen, of)})


def _checked(of: Any) -> tuple[str, ...]:
    """The quantities asked for, each once."""
    check_type("of", of, str | Sequence)
    words = [of] if isinstance(of, str) else list(of)
    for word in words:
        if word not in QUANTITIES:
            raise ValueError(
                f"`of` has {word!r}; allowed are {' and '.join(QUANTITIES)}."
            )
    if not words:
        raise ValueError(f"`of` is empty; give {' or '.join(QUANTITIES)}.")
    return tuple(dict.fromkeys(words))
