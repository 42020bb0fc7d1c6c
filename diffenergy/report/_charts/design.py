"""Charts of a `codesign` result: the front, or base against best and the search
path."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...charts import (
    Axis,
    Boxes,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    Rule,
    bars,
    colours,
    ramp,
    stacked,
)
from ...codesign import TILES, UNITS
from .._format import Entries, Entry, change, plain
from .._page.markup import si
from .._tables.design_words import METRIC_KEYS, field_text, first_goal
from .._tables.lines import title_line
from .estimate import interval

_MOST_FIELDS: Final = 12
_METRICS: Final = (
    ("time_s", "time", "s"),
    ("energy_j", "energy", "J"),
    ("avg_power_w", "mean power", "W"),
    ("area_mm2", "area", "mm2"),
)
_FEASIBLE: Final = 1e-9
"""Violation, relative to a limit, up to which a design counts as feasible."""
_STAR: Final = 7


def design_charts(summary: Entry, path: Entries) -> dict[str, Chart]:
    """Return charts of a search: with several objectives the front and its fields; with
    one the fields and metrics of base and best, and the search path.

    `path` is that of `path_json`.
    """
    names = [name for name in summary["vary"] if name != TILES][:_MOST_FIELDS]
    if summary["pareto"]:
        charts = {
            "front": _front(summary),
            "front-fields": _front_fields(summary, names),
        }
    else:
        charts = {"metrics": _metrics(summary), "search": _path(summary, path)}
        if names:
            charts = {"fields": _fields(summary, names), **charts}
    title = f"{_title(summary)} ({summary['grade']})"
    return {"design": stacked(title, list(charts.values())), **charts}


def _title(summary: Entry) -> str:
    """Title of the search: its workload and GPU; a mix of workloads has no title
    line."""
    if "workloads" not in summary:
        return title_line(summary)
    return f"{summary['model']} on {summary['gpu']}"


def _fields(summary: Entry, names: Sequence[str]) -> Chart:
    """Chart of the best design's fields relative to the base, with their bounds."""
    spaces, best = summary["vary"], summary["best"]["fields"]
    bases = [spaces[name]["base"] for name in names]
    low, high = (
        [spaces[name][end] / base for name, base in zip(names, bases, strict=True)]
        for end in ("low", "high")
    )
    multiples = [best[name] / base for name, base in zip(names, bases, strict=True)]
    rows = [float(i) for i in range(len(names))]
    under, over = [x - 0.12 for x in rows], [x + 0.12 for x in rows]
    marks = [
        Boxes(low, high, under, over, "bounds", "light"),
        Points([1.0] * len(names), rows, "base", "ink", 0, 5.0),
        Points(multiples, rows, "best", 1, _STAR, 8.0),
    ]
    words = [
        f"{field_text(name, base)} → {field_text(name, best[name])}"
        for name, base in zip(names, bases, strict=True)
    ]
    readings = [
        Reading(x, row, f"{name}: {text}, {x:.3g} times the base")
        for x, row, name, text in zip(multiples, rows, names, words, strict=True)
    ]
    readings += [
        Reading(1.0, row, f"{name}: base {field_text(name, base)}")
        for row, name, base in zip(rows, names, bases, strict=True)
    ]
    y = [f"{name}\n{text}" for name, text in zip(names, words, strict=True)]
    x = Axis("multiple of the base value", log=True)
    return Chart("Design", [Panel(x, Axis(names=y), marks, readings)])


def _metrics(summary: Entry) -> Chart:
    """Chart of the best design's metrics in % of the base, with intervals."""
    metrics = [
        (key, word, unit)
        for key, word, unit in _METRICS
        if summary["start"][key] and summary["best"][key] is not None
    ]
    names, readings, shares = [], [], []
    marks: list[Mark] = []
    for row, (key, word, unit) in enumerate(metrics):
        base, best = summary["start"][key], summary["best"][key]
        shares.append(100 * best / base)
        between = ""
        if (ends := summary.get(f"{key}_p5_p95")) is not None:
            low, high = ends
            span = interval(100 * low / base, 100 * high / base, row)
            marks.append(span)
            between = f"; 5 to 95 %: {_in(low, unit)} to {_in(high, unit)}"
        text = f"{_in(base, unit)} → {_in(best, unit)}"
        changed = f"{word} ({change(shares[-1] - 100)})"
        names.append(f"{changed}\n{text}")
        readings.append(Reading(shares[-1], row, f"{changed}: {text}{between}"))
    marks_of_best = [*bars(shares, (), name="best", colour=5, thick=0.6), *marks]
    marks_of_best.append(Rule(100.0, "base", axis="x"))
    x = Axis("share of the base (line: 5 to 95 %)", "%", zero=True)
    return Chart("Metrics", [Panel(x, Axis(names=names), marks_of_best, readings)])


def _in(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if unit in ("W", "mm2") else si(value, unit)


def _front(summary: Entry) -> Chart:
    """Chart of the front over its first two objectives, with base and best; a third
    objective is the colour."""
    goals = summary["objective"].split(",")
    keys = [METRIC_KEYS[goal] for goal in goals]
    points = np.array([[s[key] for key in keys] for s in summary["pareto"]], float)
    points = points[np.argsort(points[:, 0])]
    x, y = points[:, 0].tolist(), points[:, 1].tolist()
    scale, marks = None, list[Mark]()
    if len(goals) == 2:
        marks.append(Line(x, y, "front", 0, shape=0))
    else:
        third = points[:, 2]
        unit = UNITS.get(goals[2], "")
        words = ", ".join(filter(None, (_word(goals[2]), unit)))
        scale, shade = ramp(words, float(third.min()), float(third.max()))
        marks.append(Points(x, y, "", shade(third.tolist()), 0, 4.0))
    readings = [
        Reading(a, b, _goals(goals, row))
        for a, b, row in zip(x, y, points.tolist(), strict=True)
    ]
    for name, shape, colour, words in (
        ("start", 6, "ink", "base"),
        ("best", _STAR, 1, f"best for {_word(goals[0])}"),
    ):
        place = [summary[name][key] for key in keys]
        marks.append(Points([place[0]], [place[1]], words, colour, shape, 7.0))
        readings.append(Reading(place[0], place[1], f"{words}: {_goals(goals, place)}"))
    across, up = (_axis(goal) for goal in goals[:2])
    panel = Panel(across, up, marks, readings, scale=scale, height=280.0)
    return Chart("Pareto front", [panel])


def _goals(goals: Sequence[str], values: Sequence[float]) -> str:
    pairs = zip(goals, values, strict=True)
    return ", ".join(f"{_word(goal)} {_amount(value, goal)}" for goal, value in pairs)


def _front_fields(summary: Entry, names: Sequence[str]) -> Chart:
    """Chart of the fields along the front, relative to the base."""
    goal = first_goal(summary)
    scores = sorted(summary["pareto"], key=lambda score: score[METRIC_KEYS[goal]])
    x = [score[METRIC_KEYS[goal]] for score in scores]
    marks: list[Mark] = [Rule(1.0)]
    readings = []
    for i, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
        base = summary["vary"][name]["base"]
        values = [score["fields"][name] for score in scores]
        shares = [value / base for value in values]
        marks.append(Line(x, shares, name, colour, shape=i % _STAR))
        for a, b, value in zip(x, shares, values, strict=True):
            text = f"{name} {field_text(name, value)} ({b:.3g} times the base)"
            readings.append(Reading(a, b, f"{_word(goal)} {_amount(a, goal)}: {text}"))
    up = Axis("multiple of the base value")
    panel = Panel(_axis(goal), up, marks, readings, height=220.0)
    return Chart("Design along the front", [panel])


def _path(summary: Entry, path: Entries) -> Chart:
    """Chart of the best objective so far over the evaluations, with every round's
    design."""
    entries = [entry for entry in path if entry["objective"] is not None]
    goal = first_goal(summary)
    feasible = np.array(
        [(entry["violation"] or 0.0) <= _FEASIBLE for entry in entries], bool
    )
    effort = np.array([entry["evaluations"] for entry in entries], float)
    value = np.array([entry["objective"] for entry in entries], float)
    marks: list[Mark] = []
    if feasible.any():
        so_far = np.minimum.accumulate(np.where(feasible, value, np.inf))
        x, y = effort[feasible].tolist(), so_far[feasible].tolist()
        marks.append(Line(x, y, "least so far", 5, step=True))
    for chosen, shape, colour, words in (
        (feasible, 0, 0, "round"),
        (~feasible, 6, 7, "round that passes a limit"),
    ):
        if chosen.any():
            x, y = effort[chosen].tolist(), value[chosen].tolist()
            marks.append(Points(x, y, words, colour, shape, 4.0))
    base, best = summary["start"]["objective"], summary["best"]["objective"]
    if base is not None:
        marks.append(Rule(base, f"base: {_amount(base, goal)}"))
    if best is not None:
        marks.append(Rule(best, f"best: {_amount(best, goal)}", colour=1))
    across = Axis("model evaluations", zero=True, whole=True)
    return Chart("Search", [Panel(across, _axis(goal), marks)])


def _axis(goal: str) -> Axis:
    return Axis(_word(goal), UNITS.get(goal, ""))


def _amount(value: float, goal: str) -> str:
    unit = UNITS.get(goal, "")
    return si(value, unit) if unit in ("s", "J") else f"{plain(value)} {unit}".strip()


def _word(goal: str) -> str:
    return {"edp": "energy x time", "ed2p": "energy x time^2"}.get(
        goal, goal.replace("_", " ")
    )
