"""`diffenergy report`: one page about one estimate."""

import dataclasses
from typing import Final

from ... import serving
from ...estimator import Task
from ...plans import Plan
from ...report import page, page_charts, page_html
from ..parsing.field import command_line as typed_line
from ..parsing.shared import PointFlags
from ..run import Outcome
from .estimate import named, task_of
from .report_flags import Flags

_VERSUS: Final = "`--versus`"


def run(flags: Flags) -> Outcome:
    """Evaluates, and writes the page."""
    if flags.out is None:
        raise ValueError("`--out` is missing; name the page, such as report.html.")
    task = _single(task_of(flags))
    served = _served(flags, task)
    second = None if flags.versus is None else named(_VERSUS, _second, flags)
    result = task.run()
    against = None if second is None else (second, named(_VERSUS, second.run))
    content = page(task, result, against, command_line(flags), served)
    return Outcome(
        texts={".html": lambda: page_html(content)},
        charts=lambda: page_charts(content),
        notes=[*result.warnings, *content.notes],
        said=f"wrote {flags.out}",
    )


def _served(flags: Flags, task: Task) -> serving.ServingResult | None:
    """The model behind an engine, if requests come."""
    asked = {name: value for name, value in vars(flags.served).items() if value}
    if not asked:
        return None
    if not asked.keys() & {"rate", "concurrency", "max_batch"}:
        name = next(iter(asked))
        raise ValueError(
            f"`{name}` is given, but no requests come; give `rate`, `concurrency` or "
            "`max_batch`, or leave it out."
        )
    plan, request = task.plan or Plan(), flags.request
    if request.phase == "train" or plan.pp > 1:
        what = "phase" if request.phase == "train" else "plan"
        raise ValueError(
            f"`{what}` is given beside requests that come, but a server neither trains "
            "nor has stages; leave one of them out."
        )
    engine = asked.pop("engine", None)
    lengths = {"input_len": request.input_len, "output_len": request.output_len}
    return serving.steady_state(
        flags.model,
        flags.gpu,
        serving.Load(**asked, **lengths),
        engine=engine,
        num_gpus=plan.gpus,
        tp=plan.tp,
        ep=plan.ep,
        dtype=request.dtype,
        kv_dtype=request.kv_dtype,
        routing=request.routing,
        **vars(flags.point),
    )


def command_line(flags: Flags) -> str:
    """`estimate` with the flags that were typed."""
    left = ("versus", "out", "plot", *vars(flags.served))
    return typed_line("estimate", Flags, flags.typed, left)


def _second(flags: Flags) -> Task:
    """The same on the other GPU, at its own defaults."""
    point = PointFlags(
        temperature=flags.point.temperature, corrections=flags.point.corrections
    )
    return _single(task_of(dataclasses.replace(flags, gpu=flags.versus, point=point)))


def _single(task: Task) -> Task:
    if len(task.settings) > 1:
        raise ValueError(
            "`report` takes no lists of clocks or limits (it draws the curves itself); "
            "give one of each."
        )
    return task
