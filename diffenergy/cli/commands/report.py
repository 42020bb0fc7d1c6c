"""`diffenergy report`: one page about one estimate."""

import dataclasses
import shlex
from typing import Final

from ...estimator import Task
from ...report import page, page_html
from ..flags.report import Flags
from ..parsing.field import flag_names
from ..parsing.shared import PointFlags
from ..run import Outcome
from .estimate import named, task_of

_VERSUS: Final = "`--versus`"


def run(flags: Flags) -> Outcome:
    """Evaluates, and writes the page."""
    if flags.out is None:
        raise ValueError("`--out` is missing; name the page, such as report.html.")
    task = _single(task_of(flags))
    second = None if flags.versus is None else named(_VERSUS, _second, flags)
    result = task.run()
    against = None if second is None else (second, named(_VERSUS, second.run))
    content = page(task, result, against, command_line(flags))
    return Outcome(
        texts={".html": lambda: page_html(content)},
        notes=[*result.warnings, *content.notes],
        said=f"wrote {flags.out}",
    )


def command_line(flags: Flags) -> str:
    """`estimate` with the flags that were typed, as a shell takes it."""
    words, names = ["diffenergy", "estimate", flags.model], flag_names(Flags)
    for field, value in flags.typed.items():
        if field in ("model", "versus", "out") or not value:
            continue
        if isinstance(value, list):
            words += [word for text in value for word in (names[field], text)]
        else:
            words += [names[field]] if value is True else [names[field], value]
    return shlex.join([*words, "--json"])


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
