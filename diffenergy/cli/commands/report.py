"""`diffenergy report`: one page about one estimate."""

from typing import Final

from ... import serving
from ...estimator import EstimateDetails, PointRequest, Task, estimate_details
from ...plans import Plan
from ...report import estimate_page, page_charts
from ...requests import part
from ..flags import command_line as typed_line
from ..run import Outcome
from .estimate import prefix_errors, task_of
from .report_flags import Flags, ServedFlags

_VERSUS: Final = "`--versus`"


def run(flags: Flags) -> Outcome:
    """Runs the estimates and writes the page."""
    if flags.out is None:
        raise ValueError("`--out` is missing; name the page, such as report.html.")
    task = _single(task_of(flags))
    served = _served(flags, task)
    second = None if flags.versus is None else prefix_errors(_VERSUS, _second, flags)
    details = _run(task)
    every = [
        details,
        *([] if second is None else [prefix_errors(_VERSUS, _run, second)]),
    ]
    notes = list(details.result.warnings)
    for other in every[1:]:
        notes += [f"{other.gpu['name']}: {x}" for x in other.result.warnings]
    command = command_line(flags)
    return Outcome(
        texts={".html": lambda: estimate_page(every, command, served)},
        charts=lambda: page_charts(every, served),
        notes=notes,
        text=f"wrote {flags.out}",
    )


def _served(flags: Flags, task: Task) -> serving.ServingResult | None:
    """Result of serving the model; None without a load."""
    served = {name: value for name, value in part(ServedFlags, flags).items() if value}
    if not served:
        return None
    if not served.keys() & {"rate", "concurrency", "max_batch"}:
        name = next(iter(served))
        raise ValueError(
            f"`{name}` is given, but no requests come; give `rate`, `concurrency` or "
            "`max_batch`, or leave it out."
        )
    plan, request = task.plan or Plan(), flags
    if request.phase == "train" or plan.pp > 1:
        what = "phase" if request.phase == "train" else "plan"
        raise ValueError(
            f"`{what}` is given beside requests that come, but a server neither trains "
            "nor has stages; leave one of them out."
        )
    engine = served.pop("engine", None)
    lengths = {"input_len": request.input_len, "output_len": request.output_len}
    return serving.steady_state(
        str(flags.model),
        flags.gpu,
        serving.Load(**served, **lengths),
        engine=engine,
        num_gpus=plan.gpus,
        tp=plan.tp,
        ep=plan.ep,
        dtype=request.dtype,
        kv_dtype=request.kv_dtype,
        routing=request.routing,
        **part(PointRequest, flags),
    )


def command_line(flags: Flags) -> str:
    """The line of `estimate` that gives the same figures."""
    left = ("versus", "out", "plot", *part(ServedFlags, flags))
    return typed_line("estimate", Flags, flags.typed, left)


def _second(flags: Flags) -> Task:
    """Task on the GPU of `--versus`, at its default clocks and limits."""
    defaults = dict.fromkeys(("sm_clock", "mem_clock", "power_limit", "changes"))
    return _single(task_of(flags, gpu=flags.versus, **defaults))


def _run(task: Task) -> EstimateDetails:
    return estimate_details(task, task.run())


def _single(task: Task) -> Task:
    if len(task.settings) > 1:
        raise ValueError(
            "`report` takes no lists of clocks or limits (it draws the curves itself); "
            "give one of each."
        )
    return task
