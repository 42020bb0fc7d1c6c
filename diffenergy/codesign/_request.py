"""Checks of what a caller asks of a search, and the problem that it becomes."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..estimator import Task, combinations, prepare
from ..files import facts
from ..hardware import CHOSEN, FIELDS, GpuCard, OperatingPoint, check_word, with_fields
from ..units import GiB
from ._problem.mixing import Listed, build
from ._problem.problem import LIMITS, Problem
from ._space.ranges import TILES, Range, Vary

_POINT: Final = {
    "sm_clock": ("sm_clock", "sm_clock_mhz"),
    "mem_clock": ("mem_clock", "mem_clock_mhz"),
    "power_limit": ("power_cap", "power_limit_w"),
}
"""Arguments that say where designs run: the field that each settles, and its key among
what was assumed."""
_SHARED: Final = (*_POINT, "temperature", "changes", "corrections")
"""Arguments that hold for the whole mix."""
_LIMITED: Final = tuple(metric for metric in LIMITS if metric != "memory")


@dataclasses.dataclass(frozen=True)
class Part:
    """A member of a mix: a workload and how often it runs.

    `work`: model name, listing path, or `estimator.Task`; `weight`: above 0; `request`:
    what `estimate` takes for this member alone (batch, input_len, phase, dtype ...).
    """

    work: str | os.PathLike[str] | Task
    weight: int | float = 1.0
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ValueError(
                f"`weight` is {self.weight:g}; allowed is a number above 0."
            )


def parts_of(work: Any) -> list[Part]:
    """The members of what is to run. Raises `TypeError` for what is no workload."""
    if isinstance(work, str | os.PathLike | Task):
        return [Part(work)]
    parts = list(work) if isinstance(work, Sequence) else []
    if not parts or not all(isinstance(part, Part) for part in parts):
        raise TypeError(
            f"`work` is {work!r}; allowed are a model name, a listing path, a Task, or "
            "a list of Part."
        )
    return parts


def tasks_of(
    parts: Sequence[Part], gpu: GpuCard | str | None, request: Mapping[str, Any]
) -> list[Task]:
    """Every member as a checked request; of several, errors say which one is meant."""
    tasks = []
    for part in parts:
        try:
            tasks.append(_task(part, gpu, request))
        except ValueError as error:
            if len(parts) == 1:
                raise
            raise ValueError(f"{_name(part)}: {error}") from None
    first = tasks[0].card
    for task in tasks[1:]:
        if task.card.values != first.values or task.card.name != first.name:
            raise ValueError(
                f"`work` runs on {first.name} and on {task.card.name}; give tasks of "
                "one GPU."
            )
    return tasks


def _task(part: Part, gpu: GpuCard | str | None, request: Mapping[str, Any]) -> Task:
    for name in _SHARED:
        if name in part.request and part.request[name] != request.get(name):
            raise ValueError(
                f"`{name}` stands in the request of a Part; give it to the search, "
                "where it holds for the whole mix."
            )
    arguments = {**request, **part.request}
    if isinstance(part.work, Task):
        for name in (*(["gpu"] if gpu is not None else []), *arguments):
            raise TypeError(
                f"`{name}` is given beside a Task, which is settled; leave it out."
            )
        for name, n in zip(_POINT, range(3), strict=True):
            _single(name, {setting[n] for setting in part.work.settings})
        return part.work
    for name in _POINT:
        value = arguments.get(name)
        if value is not None:
            values = value if isinstance(value, Sequence) else [value]
            _single(name, values)
            arguments[name] = tuple(float(x) for x in values)
    return prepare(os.fspath(part.work), gpu, **arguments)


def _single(name: str, values: Any):
    if len(values) > 1:
        raise ValueError(f"`{name}` is a list; give one value, or vary the field.")


def _name(part: Part) -> str:
    if isinstance(part.work, Task):
        return part.work.about["model"]
    return os.fspath(part.work)


def _range(name: str, ends: Sequence[Any] | None) -> Range:
    if name in CHOSEN:
        return Range(name, words=(ends,) if isinstance(ends, str) else (*(ends or ()),))
    low, high = ends or (None, None)
    return Range(name, low, high)


def ranges_of(vary: Vary) -> tuple[list[Range], bool]:
    """Numbers to vary with their bounds, and whether tiles are varied."""
    if isinstance(vary, Mapping):
        entries = [_range(name, ends) for name, ends in vary.items()]
    else:
        words = [vary] if isinstance(vary, str) else vary
        entries = [x if isinstance(x, Range) else Range(x) for x in words]
    if not entries:
        raise ValueError(
            "`vary` is missing; name what may change, such as num_sms,sm_clock,tiles."
        )
    tiles = [entry for entry in entries if entry.name == TILES]
    if len(tiles) > 1:
        raise ValueError("`tiles` is varied twice; name it once.")
    if tiles and tiles != [Range(TILES)]:
        raise ValueError("`vary` bounds tiles; tiles take no bounds, leave them out.")
    return [entry for entry in entries if entry.name != TILES], bool(tiles)


def chosen_of(ranges: Sequence[Range]) -> tuple[list[dict[str, str]], list[Range]]:
    """Every combination of the words that are varied, and the ranges of numbers."""
    words = {}
    for entry in ranges:
        if entry.name not in CHOSEN:
            continue
        if entry.name in words or not entry.words:
            raise ValueError(
                f"`{entry.name}` is varied without words or twice; give it once, with "
                "its words, such as process_node=4NP,N3P,N2."
            )
        for word in entry.words:
            check_word(entry.name, word)
        words[entry.name] = entry.words
    mixes = list(combinations(words, tuple(words)))
    return mixes, [entry for entry in ranges if entry.name not in CHOSEN]


def in_stacks(
    card: GpuCard, words: Mapping[str, str], ranges: Sequence[Range]
) -> dict[str, Any]:
    """`words`, with the rate and capacity of whole stacks of another memory where the
    bandwidth is varied."""
    memory, stacks = words.get("memory"), card.physical.get("dram_stacks")
    row = facts("memories")["memory"][memory or card.memory]
    varied = "dram_bandwidth" in {entry.name for entry in ranges}
    if memory in (None, card.memory) or not (varied and stacks and "stack_rate" in row):
        return dict(words)
    rate, size = float(stacks * row["stack_rate"]), float(stacks * row["stack_size"])
    return {**words, "dram_bandwidth": 1e9 * rate, "dram_capacity": GiB * size}


def check_point(fixed: set[str], ranges: Sequence[Range]):
    """Raises `ValueError` where a clock or limit is both given and varied."""
    varied = {entry.name for entry in ranges}
    for name, (field, _) in _POINT.items():
        if name in fixed and field in varied:
            raise ValueError(
                f"`{name}` is given, but `{field}` is varied; leave one out."
            )
    if "sm_clock_max" in varied and ("sm_clock" in varied or "sm_clock" in fixed):
        raise ValueError(
            "`sm_clock_max` is varied beside an SM clock; leave one out: designs "
            "run at their own highest clock unless another is asked for."
        )


def fixed_point(work: Any, request: Mapping[str, Any]) -> set[str]:
    """Arguments of the operating point that are asked for."""
    fixed = {name for name in _POINT if request.get(name) is not None}
    if isinstance(work, Task):
        assumed = work.about["assumed"]
        fixed |= {name for name, (_, key) in _POINT.items() if key not in assumed}
    return fixed


def price_of(
    price: int | float | None, goals: Any, limits: Mapping[str, float]
) -> float:
    """Price of a mm2; 1 where nothing costs."""
    of_goal = not callable(goals) and "cost" in goals
    if price is None and (of_goal or "cost" in limits):
        word = "goals" if of_goal else "limits['cost']"
        raise ValueError(
            f"`{word}` asks for a cost, but no price is known; give `price` of a mm2."
        )
    if price is None:
        return 1.0
    if not (of_goal or "cost" in limits):
        raise ValueError(
            f"`price` is {price:g}, but nothing costs; give `limits['cost']`, or make "
            "cost a goal."
        )
    if not (math.isfinite(price) and price > 0):
        raise ValueError(f"`price` is {price:g}; allowed is a number above 0.")
    return float(price)


def check_limits(limits: Mapping[str, float]):
    """Raises `ValueError` for a limit of what has none."""
    for name in limits:
        if name not in _LIMITED:
            raise ValueError(
                f"`limits` names '{name}'; allowed are {', '.join(_LIMITED)}."
            )


def problem_of(
    tasks: Sequence[Task],
    weights: Sequence[float],
    vary: tuple[Sequence[Range], bool],
    goals: Sequence[str] | Callable[..., Any],
    limits: Mapping[str, float],
    price: float,
    still: bool = False,
) -> Problem:
    """The search over `tasks`, with bounds that a GPU file may hold."""
    task, (ranges, tiles) = tasks[0], vary
    problem = build(
        [_listed(task, weight) for task, weight in zip(tasks, weights, strict=True)],
        task.card,
        ranges,
        goals,
        limits,
        tiles,
        _point(task, ranges),
        task.corrections.serve(task.card),
        price,
        still,
    )
    for axis in problem.axes[: len(problem.task.names)]:
        ends = (axis.legal[0], axis.legal[-1]) if axis.legal else (axis.low, axis.high)
        for end in ends if axis.name in FIELDS else ():
            try:
                with_fields(task.card, {axis.name: end})
            except ValueError as error:
                raise ValueError(
                    f"`vary['{axis.name}']` goes from {axis.low:g} to {axis.high:g}, "
                    f"but a GPU file refuses {end:g}: {error}"
                ) from None
    return problem


def _listed(task: Task, weight: float) -> Listed:
    about = task.about
    batch, output_len = about["batch"] or 0, about["output_len"] or 0
    tokens = {"generate": batch * output_len, "decode": batch}.get(about["phase"], 0)
    need = task.memory["total"] or 0.0
    training = task.step
    step = (None, None) if training is None else (training.steps, training.placed.order)
    return Listed(
        task.listings,
        weight,
        need,
        float(tokens),
        about["model"],
        task.plan,
        *step,
        site=task.site,
    )


def _point(task: Task, ranges: Sequence[Range]) -> OperatingPoint:
    """Requested operating point of designs; NaN: the default of each design."""
    setting, fixed = task.settings[0], fixed_point(task, {})
    sm, mem, cap = [
        value if name in fixed else math.nan
        for name, value in zip(_POINT, setting[:3], strict=True)
    ]
    temperature = math.nan if setting.temperature is None else setting.temperature
    varied = any(entry.name == "mem_clock" for entry in ranges)
    return OperatingPoint(
        sm, mem, cap, temperature, float(setting.mem_locked or varied)
    )


def about_of(
    tasks: Sequence[Task], weights: Sequence[float], varied: set[str]
) -> dict[str, Any]:
    """`about` of the workload as in `estimate`; of a mix, what its members share."""
    fields = {key: {field} for field, key in _POINT.values()}
    fields["sm_clock_mhz"] |= {"sm_clock_max"}
    fields["power_limit_w"] |= {"tdp"}
    members = []
    for task, weight in zip(tasks, weights, strict=True):
        assumed = {
            name: value
            for name, value in task.about["assumed"].items()
            if not varied & fields.get(name, set())
        }
        members.append({**task.about, "assumed": assumed, "weight": weight})
    if len(members) == 1:
        return {name: x for name, x in members[0].items() if name != "weight"}
    shared = {
        name: value if all(m.get(name) == value for m in members) else None
        for name, value in members[0].items()
        if name not in ("model", "assumed", "weight")
    }
    model = " + ".join(dict.fromkeys(m["model"] for m in members))
    return {"model": model, **shared, "assumed": {}, "workloads": members}
