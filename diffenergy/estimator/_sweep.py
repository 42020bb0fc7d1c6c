"""Sweeps: one model crossed with GPUs, batches, lengths, types, clocks and limits.

Combinations of one structure (shapes of the arrays of workload and GPU) are rows of one
compiled program, whatever their numbers.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ..hardware import GpuCard, read_gpu
from ..power_time import POWER
from ..requests import accepts, part
from ..results import Infeasible, Result
from ..units import MHz
from ..workload import assemble
from ._answer import summary as _summary
from ._answer.records import Estimate
from ._asking.estimate_request import EstimateRequest, SweepRequest
from ._asking.request import DEFAULT_GPU, prepare
from ._asking.settings import Setting, point_of, throttling, unavailable
from ._asking.task import Task, too_low
from ._points import Interrupted, Question, at_points

if TYPE_CHECKING:
    import pandas as pd

AXES: Final = ("gpu", "batch", "input_len", "output_len", "dtype")
"""What is crossed beside clocks and limits, the outermost first."""
_SETTINGS: Final = {
    "mem_clock": "mem_clock_mhz",
    "sm_clock": "sm_clock_set_mhz",
    "power_limit": "power_limit_w",
}
"""Clocks and limits, and what entries call them."""
_MOST: Final = 100_000
_OF_A_GPU: Final = ("gpu", "sm_clock", "mem_clock", "power_limit", "topology")
"""What is assumed of each GPU on its own."""


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult(Result):
    """Estimates of every combination.

    `summary`: the JSON of `diffenergy estimate` with lists: `axes` (what was varied),
    `points`, one entry a combination with the values that it stands for and its answer
    or `error`, and the indices of the best of them.
    """

    view: ClassVar[str] = "sweep"
    summary: dict[str, Any]
    interrupted: bool = False
    """Whether Ctrl-C left some combinations without an answer."""

    @property
    def warnings(self) -> list[str]:
        """Remarks that a reader needs beside the table."""
        return self.summary["warnings"]

    def frame(self) -> "pd.DataFrame":
        """A row for each combination; nested figures are columns `key_part`."""
        import pandas as pd

        return pd.json_normalize(self.summary["points"], sep="_")


@accepts(SweepRequest, "sweep")
def crossed(request: SweepRequest) -> SweepResult:
    """Estimates of a model on every GPU with every combination of the lists.

    A combination that has no answer says why in its `error`. Raises `ValueError` if
    none has one for a reason of its own, `Infeasible` if no limit can be kept.
    """
    for name in ("detail", "sensitivity", *POWER):
        if getattr(request, name):
            raise ValueError(f"`{name}` is given to a sweep; give it to one estimate.")
    choices = part(EstimateRequest, request)
    model, progress = choices.pop("model"), request.progress
    lists = {name: choices.pop(name) for name in AXES}
    cards = [
        x if isinstance(x, GpuCard) else read_gpu(x) for x in lists.pop("gpu") or ()
    ]
    axes = {"gpu": cards or [None]} | {k: list(v) for k, v in lists.items() if v}
    varied = [name for name in AXES if len(axes.get(name, ())) > 1]
    varied += [key for x, key in _SETTINGS.items() if len(choices[x] or ()) > 1]
    every = [
        x
        for chosen in combinations(axes, AXES)
        for x in _prepared(model, chosen, choices)
    ]
    first = next((x for x in every if x.task is not None), None)
    if first is None or first.task is None:
        raise next(x.reason for x in every if x.reason is not None)
    if len(every) > _MOST:
        raise ValueError(
            f"The lists make {len(every):,} estimates; allowed are {_MOST:,}."
        )
    answers = at_points(_questions(every), progress=progress)
    points = [_entry(x, answer) for x, answer in zip(every, answers, strict=True)]
    if all("error" in point for point in points):
        raise Infeasible(points[0]["error"])
    summary = _summarised(first.task, points, varied)
    left = sum(isinstance(x, Interrupted) for x in answers)
    if left:
        summary["warnings"].append(
            f"interrupted: {left:,} of {len(every):,} estimates were not computed."
        )
    if assumed := [card.name for card in cards if card.is_assumed]:
        summary["assumed"]["gpu"] = ", ".join(assumed)
    return SweepResult(summary, left > 0)


@accepts(SweepRequest)
def sweep(request: SweepRequest) -> "pd.DataFrame":
    """A row for each combination of the values given, in the order given.

    Returns:
        Columns as the keys of `diffenergy estimate --json` (`time_s`, `energy_j`,
        `avg_power_w`, `energy_j_per_token`, ...), nested ones joined by `_`
        (`phases_decode_time_s`); `error` where a combination has no answer.

    Raises:
        ValueError: no combination has an answer; in one sentence.
        Infeasible: no power limit asked for can be kept, or with `require_fit` no
            memory suffices.

    Example:

        >>> import diffenergy as de
        >>> result = de.sweep("gpt2", ["a10", "l4"], batch=[1, 8])
        >>> result[["gpu", "batch"]].values.tolist()
        [['a10', 1], ['a10', 8], ['l4', 1], ['l4', 8]]
    """
    return crossed(**part(SweepRequest, request)).frame()


def combinations(
    axes: Mapping[str, Sequence[Any]], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Every combination of the axes among `names`, the first outermost."""
    present = [x for x in names if x in axes]
    for values in itertools.product(*(axes[x] for x in present)):
        yield dict(zip(present, values, strict=True))


class _Point(NamedTuple):
    """One point: the values that it stands for, its checked request (of all settings of
    a combination) and setting, or the reason why it has none."""

    about: dict[str, Any]
    task: Task | None = None
    setting: Setting | None = None
    reason: Exception | None = None


def _prepared(
    model: str, chosen: Mapping[str, Any], request: Mapping[str, Any]
) -> Iterator[_Point]:
    """Every point of one combination, at all of its clocks and limits."""
    lists = {x: request[x] for x in _SETTINGS if request.get(x) is not None}
    try:
        yield from _at_settings(model, chosen, request)
        return
    except (ValueError, Infeasible) as error:
        reason: Exception | None = error
    points = list(combinations(lists, tuple(lists)))
    reasons = [reason] * len(points)
    several = [x for x in lists if len(lists[x]) > 1]
    if several:
        try:
            card = prepare(model, **{**chosen, **request, **dict.fromkeys(lists)}).card
            reasons = [unavailable(card, **point) for point in points]
        except (ValueError, Infeasible) as error:
            reasons = [error] * len(points)
    if not any(reasons):  # too many settings for one request
        for value in lists[several[0]]:
            yield from _prepared(model, chosen, {**request, several[0]: (value,)})
        return
    good = [x for x, reason in zip(points, reasons, strict=True) if reason is None]
    had = {x: tuple(dict.fromkeys(point[x] for point in good)) for x in lists}
    prepared = iter(_at_settings(model, chosen, {**request, **had}) if good else ())
    for point, reason in zip(points, reasons, strict=True):
        scale = {"power_limit": 1.0}
        at = {_SETTINGS[x]: v / scale.get(x, MHz) for x, v in point.items()}
        about = {**_about(chosen), **at}
        yield next(prepared) if reason is None else _Point(about, reason=reason)


def _at_settings(
    model: str, chosen: Mapping[str, Any], request: Mapping[str, Any]
) -> list[_Point]:
    """A combination whose clocks and limits can all be had."""
    task = prepare(model, **chosen, **request)
    return [_Point(_about(chosen), task, setting) for setting in task.settings]


def _questions(points: Sequence[_Point]) -> list[Question | Exception]:
    """Questions for `at_points`: a workload, GPU and point for each request."""
    workloads: dict[int, Question] = {}
    questions: list[Question | Exception] = []
    for _, task, setting, reason in points:
        if task is None or setting is None:
            questions.append(reason or Interrupted())
            continue
        if id(task) not in workloads:
            workloads[id(task)] = (assemble(task.listings), task.gpu)
        questions.append((*workloads[id(task)], point_of(setting)))
    return questions


def _entry(point: _Point, answer: Estimate | Exception) -> dict[str, Any]:
    """A point with its figures, or why it has none."""
    about, task, setting, _ = point
    if isinstance(answer, Exception) or task is None or setting is None:
        return {**about, "error": str(answer)}
    figures = _summary.point(task, answer, setting)
    if not figures["feasible"]:
        figures["error"] = too_low(figures["least_power_w"], task.card)
    hot = throttling(figures["temperature_c"] or 0.0)
    about_task = {key: value for key, value in task.about.items() if key != "assumed"}
    more = {"memory": task.memory, "warnings": [*task.warnings, *hot]}
    return {**about_task, **task.trust.to_json(), **figures, **more}


def _about(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a combination as entries have them."""
    gpu = chosen["gpu"]
    return {**chosen, "gpu": gpu.name if isinstance(gpu, GpuCard) else DEFAULT_GPU}


def _summarised(
    task: Task, points: list[dict[str, Any]], varied: list[str]
) -> dict[str, Any]:
    """All points with what they share, of which `task` is one, and the best of them."""
    several = _OF_A_GPU if "gpu" in varied else ()
    of_a_gpu = {"topology"} & set(task.about["assumed"]) & set(several)
    about = {k: x for k, x in task.about.items() if k not in (*varied, *of_a_gpu)}
    defaults = {
        key: x
        for key, x in task.about["assumed"].items()
        if not any(key.startswith(name) for name in several)
    }
    warnings = [warning for point in points for warning in point.get("warnings", ())]
    meter = "" if task.site is None else "wall_"
    return {
        **about,
        "assumed": defaults,
        "warnings": list(dict.fromkeys(warnings)),
        "axes": varied,
        "points": points,
        "best_energy": _summary.best(points, f"{meter}energy_j"),
        "best_energy_per_token": _summary.best(points, f"{meter}energy_j_per_token"),
        "best_time": _summary.best(points, "time_s"),
    }
