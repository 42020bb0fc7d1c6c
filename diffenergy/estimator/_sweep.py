"""Sweeps: one model crossed with GPUs, batches, lengths, types, clocks and limits.

Combinations of one structure (shapes of the arrays of workload and GPU) are rows of one
compiled program, whatever their numbers.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import jax
import numpy as np

from ..compiling import kept
from ..hardware import GpuCard, GpuSpec, OperatingPoint, read_gpu
from ..requests import accepts, part
from ..results import Infeasible, Result
from ..units import MHz
from ..workload import Workload, assemble
from ._answer import summary as _summary
from ._answer.records import Estimate
from ._asking.estimate_request import EstimateRequest, Progress, SweepRequest
from ._asking.request import DEFAULT_GPU, prepare
from ._asking.settings import operating_points, throttling
from ._asking.task import Task, too_low
from ._estimate import estimate_once

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
_ROWS: Final = 64
"""Combinations of a call; fewer are filled up, so that all sizes share a program."""
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

    @property
    def warnings(self) -> list[str]:
        """What a person should know beside the table."""
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
    for name in ("detail", "sensitivity"):
        if getattr(request, name):
            raise ValueError(f"`{name}` is given to a sweep; give it to one estimate.")
    given = part(EstimateRequest, request)
    model, progress = given.pop("model"), request.progress
    lists = {name: given.pop(name) for name in AXES}
    cards = [
        x if isinstance(x, GpuCard) else read_gpu(x) for x in lists.pop("gpu") or ()
    ]
    axes = {"gpu": cards or [None]} | {k: list(v) for k, v in lists.items() if v}
    names = [name for name in AXES if name in axes]
    combinations = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(axes[name] for name in names))
    ]
    varied = [name for name in names if len(axes[name]) > 1]
    varied += [key for x, key in _SETTINGS.items() if len(given[x] or ()) > 1]
    asked = [x for chosen in combinations for x in _prepared(model, chosen, given)]
    tasks = [x for _, x in asked if isinstance(x, Task)]
    if not tasks:
        raise next(x for _, x in asked if isinstance(x, Exception))
    count = sum(len(task.settings) for task in tasks)
    if count > _MOST:
        raise ValueError(f"The lists make {count:,} estimates; allowed are {_MOST:,}.")
    answers = iter(_answers(tasks, progress))
    points: list[dict[str, Any]] = []
    for chosen, task in asked:
        if isinstance(task, Task):
            points += _points(task, next(answers))
        else:
            points.append({**chosen, "error": str(task)})
    if all("error" in point for point in points):
        raise Infeasible(points[0]["error"])
    summary = _summarised(tasks[0], points, varied)
    if assumed := [card.name for card in cards if card.is_assumed]:
        summary["assumed"]["gpu"] = ", ".join(assumed)
    return SweepResult(summary)


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
        >>> found = de.sweep("gpt2", ["a10", "l4"], batch=[1, 8])
        >>> found[["gpu", "batch"]].values.tolist()
        [['a10', 1], ['a10', 8], ['l4', 1], ['l4', 8]]
    """
    return crossed(**part(SweepRequest, request)).frame()


def _prepared(
    model: str, chosen: Mapping[str, Any], request: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], Task | Exception]]:
    """The checked request of one combination, or why it is none; where only some of its
    clocks and limits can be had, each of them apart."""
    given = {x: request[x] for x in _SETTINGS if request.get(x) is not None}
    try:
        yield _told(chosen), prepare(model, **chosen, **request)
    except (ValueError, Infeasible) as error:
        if math.prod(map(len, given.values())) == 1:
            scale = {"power_limit": 1.0}
            at = {_SETTINGS[x]: v / scale.get(x, MHz) for x, (v,) in given.items()}
            yield {**_told(chosen), **at}, error
            return
        for values in itertools.product(*given.values()):
            single = {x: (v,) for x, v in zip(given, values, strict=True)}
            yield from _prepared(model, chosen, {**request, **single})


def _answers(tasks: Sequence[Task], progress: Progress | None) -> list[list[Estimate]]:
    """Estimates of every task at each of its settings, on the host."""
    rows: list[tuple[int, Workload, GpuSpec, OperatingPoint]] = []
    for number, task in enumerate(tasks):
        workload, gpu = assemble(task.listings), task.gpu
        for setting in task.settings:
            point = jax.tree.map(lambda x: x[0], operating_points([setting]))
            rows.append((number, workload, gpu, point))
    alike: dict[Any, list[int]] = {}
    for i, (_, *arguments) in enumerate(rows):
        leaves, tree = jax.tree.flatten(arguments)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        alike.setdefault((tree, shapes), []).append(i)
    found: dict[int, Estimate] = {}
    for group in alike.values():
        for start in range(0, len(group), _ROWS):
            part = group[start : start + _ROWS]
            filled = [*part, *[part[-1]] * (_ROWS - len(part))]
            stacked = jax.tree.map(
                lambda *x: np.stack(x), *(rows[i][1:] for i in filled)
            )
            each = jax.device_get(kept(_at_each, tuple(stacked)))
            for place, i in enumerate(part):
                found[i] = jax.tree.map(lambda x: x[place], each)  # noqa: B023
            if progress:
                progress(len(found), len(rows))
    answers: list[list[Estimate]] = [[] for _ in tasks]
    for i, (number, *_) in enumerate(rows):
        answers[number].append(found[i])
    return answers


def _at_each(workload: Workload, gpu: GpuSpec, point: OperatingPoint) -> Estimate:
    """Estimates of stacked arguments, stacked."""
    return jax.vmap(estimate_once)(workload, gpu, point)


def _points(task: Task, estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """An entry for each setting of a task."""
    about = {key: value for key, value in task.about.items() if key != "assumed"}
    points = []
    for estimate, setting in zip(estimates, task.settings, strict=True):
        found = _summary.point(task, estimate, setting)
        if not found["feasible"]:
            found["error"] = too_low(found["least_power_w"], task.card)
        hot = throttling(found["temperature_c"] or 0.0)
        more = {"memory": task.memory, "warnings": [*task.warnings, *hot]}
        points.append({**about, **task.trust.to_json(), **found, **more})
    return points


def _told(chosen: Mapping[str, Any]) -> dict[str, Any]:
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
    taken = {
        key: x
        for key, x in task.about["assumed"].items()
        if not any(key.startswith(name) for name in several)
    }
    said = [warning for point in points for warning in point.get("warnings", ())]
    return {
        **about,
        "assumed": taken,
        "warnings": list(dict.fromkeys(said)),
        "axes": varied,
        "points": points,
        "best_energy": _summary.best(points, "energy_j"),
        "best_energy_per_token": _summary.best(points, "energy_j_per_token"),
        "best_time": _summary.best(points, "time_s"),
    }
