"""Charts of one estimate (totals, energy by unit, kernels by class) and of several,
over clocks or power limits."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from ...charts import (
    Axis,
    Band,
    Boxes,
    Chart,
    Colour,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    bars,
    colours,
)
from ...estimator import kernel_totals
from .._format import Entries, Entry, percent, plain, unit_words
from .._page.markup import si
from .._tables.lines import has_node, title_line

KINDS: Final[Mapping[str, tuple[Colour, Sequence[str]]]] = {
    "compute": (0, ("tensor", "fma", "sfu", "issue")),
    "memory and links": (1, ("smem", "l2", "dram", "link")),
    "clocks and other": (3, ("clock_tree", "launch", "other")),
    "idle and leakage": (7, ("idle", "leakage")),
}
"""Hardware units by purpose, each with its colour."""
_MOST_CLASSES: Final = 7
_NOTHING: Final = 5e-4
"""Share of the total below which a unit or class is not drawn."""
_WAITING: Final = "no kernel runs"
_QUANTITIES: Final = (("time_s", "time", "s"), ("energy_j", "energy", "J"))
_STAR: Final = 7
SETTINGS: Final = {
    "sm_clock_set_mhz": ("SM clock", "MHz"),
    "mem_clock_mhz": ("memory clock", "MHz"),
    "power_limit_w": ("power limit", "W"),
}
"""Settings that a sweep can vary: key, name, unit."""
_PANELS: Final = (*_QUANTITIES, ("avg_power_w", "mean power", "W"))


def estimate_chart(summary: Entry, kernels: Entries) -> Chart:
    """Return a chart of time and energy by phase with intervals, energy by unit, and
    time and energy by kernel class.

    `summary` is that of one setting, `kernels` those of `kernel_entries`.
    """
    panels = [_totals(summary), _units(summary), _classes(summary, kernels)]
    return Chart(f"{title_line(summary)} ({summary['grade']})", panels)


def energy_units(summary: Entry) -> dict[str, float]:
    """Return energy (J) by unit, largest first; units below 0.05 % are left out."""
    least = _NOTHING * summary["energy_j"]
    parts = sorted(summary["energy_j_by_unit"].items(), key=lambda part: -part[1])
    return {name: energy for name, energy in parts if energy > least}


def kernel_classes(summary: Entry, kernels: Entries) -> dict[str, tuple[float, float]]:
    """Return time (s) and energy (J) of all launches by op, longest first.

    The smallest are summed up as "others"; the rest of the totals is the time in which
    the host is not ready.
    """
    sums = kernel_totals(
        kernels, summary, lambda kernel: kernel["op"].replace("_", " ")
    )
    order = sorted(sums, key=lambda op: -sums[op][0])
    classes = {op: sums[op] for op in order[:_MOST_CLASSES]}
    if rest := [sums[op] for op in order[_MOST_CLASSES:]]:
        classes[f"{len(rest)} others"] = (
            sum(x[0] for x in rest),
            sum(x[1] for x in rest),
        )
    time = summary["time_s"] - sum(x[0] for x in classes.values())
    energy = summary["energy_j"] - sum(x[1] for x in classes.values())
    if time > _NOTHING * summary["time_s"]:
        classes[_WAITING] = (time, max(energy, 0.0))
    return classes


def _totals(summary: Entry) -> Panel:
    """Panel with a stacked bar of phases each for time and energy, and the interval of
    their sum."""
    names, readings = [], []
    boxes: dict[str, list[tuple[float, float, float, float]]] = {}
    marks: list[Mark] = []
    for row, (key, word, unit) in enumerate(_QUANTITIES):
        left, total = 0.0, summary[key]
        for phase, figures in summary["phases"].items():
            right = left + 100 * figures[key] / total
            boxes.setdefault(phase, []).append((left, right, row - 0.35, row + 0.35))
            share = percent(figures[key] / total)
            text = f"{word} of {phase}: {si(figures[key], unit)}, {share}"
            readings.append(Reading((left + right) / 2, row, text))
            left = right
        low, high = summary[f"{key}_p5_p95"]
        between = f"{si(low, unit)} to {si(high, unit)}"
        names.append(f"{word}: {si(total, unit)}\n{between}")
        marks.append(interval(100 * low / total, 100 * high / total, row))
        text = f"{word}: {si(total, unit)}, 5 to 95 %: {between}"
        readings.append(Reading(100.0, row, text))
    several = len(boxes) > 1
    figures = [
        Boxes(*zip(*sides, strict=True), name=phase if several else "", colour=i % 8)
        for i, (phase, sides) in enumerate(boxes.items())
    ]
    title = "Totals and their 5 to 95 % range"
    across = Axis("share of the total", "%", zero=True)
    return Panel(across, Axis(names=names), [*figures, *marks], readings, title)


def interval(low: float, high: float, row: float) -> Line:
    """Return an error bar from `low` to `high` at a row."""
    x = (low, low, low, high, high, high)
    y = (row - 0.12, row + 0.12, row, row, row - 0.12, row + 0.12)
    return Line(x, y, colour="ink", width=1.8)


def _units(summary: Entry) -> Panel:
    """Panel of energy by hardware unit, coloured by purpose."""
    units = energy_units(summary)
    kinds = {x: kind for kind, (_, members) in KINDS.items() for x in members}
    looks = {unit_words(x): KINDS[kinds[x]][0] for x in units}
    parts = {unit_words(name): joules for name, joules in units.items()}
    (panel,) = parts_chart("Energy", parts, "J", looks).panels
    legend = [
        Boxes((), (), (), (), kind, KINDS[kind][0])
        for kind in dict.fromkeys(kinds[name] for name in units)
    ]
    return dataclasses.replace(panel, marks=[*legend, *panel.marks], title="Energy")


def _classes(summary: Entry, kernels: Entries) -> Panel:
    """Panel of every class's share of time and energy, as grouped bars."""
    classes = kernel_classes(summary, kernels)
    marks: list[Mark] = []
    for which, (key, word, unit) in enumerate(_QUANTITIES):
        values = [sums[which] for sums in classes.values()]
        shares = [100 * value / summary[key] for value in values]
        rows = [row - 0.2 + 0.4 * which for row in range(len(classes))]
        look = {"colour": (5, 2)[which], "rows": rows, "thick": 0.38}
        marks += bars(shares, [si(x, unit) for x in values], name=word, **look)
    across, up = Axis("share of the total", "%", zero=True), Axis(names=list(classes))
    height = 38.0 * len(classes)
    return Panel(across, up, marks, title="Kernel classes", height=height)


def _part(value: float, whole: float, unit: str) -> str:
    share = percent(value / whole) if whole > 0 else "share unavailable"
    return f"{si(value, unit)}, {share}"


def parts_chart(
    title: str,
    parts: Mapping[str, float],
    unit: str,
    looks: Mapping[str, Colour] | None = None,
    beside: Mapping[str, float] | None = None,
    names: tuple[str, str] = ("", ""),
) -> Chart:
    """Return a bar chart of the parts of a whole, largest first, with values and
    shares. `beside`: the parts of a second GPU; `names`: of both GPUs; `looks`:
    colours, grey for a part without one. Parts of zero are listed in the caption."""
    both = beside or {}
    order = sorted(parts, key=lambda name: (-parts[name], -both.get(name, 0.0)))
    live = [x for x in order if parts[x] > 0 or both.get(x, 0.0) > 0]
    nothing = [name for name in order if name not in live]
    sides = [parts] if beside is None else [parts, beside]
    marks: list[Mark] = []
    for number, side in enumerate(sides):
        whole, values = sum(side.values()), [side.get(name, 0.0) for name in live]
        texts = [_part(x, whole, unit) for x in values]
        shift, thick = (0.0, 0.7) if beside is None else (0.4 * number - 0.2, 0.36)
        rows = [row + shift for row in range(len(live))]
        colour = number if looks is None else [looks.get(x, "light") for x in live]
        name = names[number] if beside is not None else ""
        marks += bars(values, texts, name=name, colour=colour, rows=rows, thick=thick)
    across = Axis({"J": "energy", "s": "time"}[unit], unit, zero=True)
    height = (24.0 if beside is None else 38.0) * len(live)
    panel = Panel(across, Axis(names=live), marks, height=height)
    caption = f"Without a share: {', '.join(nothing)}." if nothing else ""
    return Chart(title, [panel], caption, half=True)


def settings_chart(summary: Entry) -> Chart:
    """Return a chart of time, energy and power over the setting with most values, a
    line for each combination of the others. The best settings are marked; single lines
    have a 5 to 95 % band."""
    points = summary["points"]
    across, lines = lines_by_setting(points)
    word, unit = SETTINGS[across]
    panels = []
    for key, what, si_unit in _PANELS:
        if key == "energy_j" and has_node(summary):
            key, what = "wall_energy_j", "energy at the wall"
        marks: list[Mark] = []
        looks = zip(colours(len(lines)), lines.items(), strict=True)
        for i, (colour, (name, rows)) in enumerate(looks):
            feasible = [row for row in rows if row["feasible"]]
            x, y = ([row[x] for row in feasible] for x in (across, key))
            wide = 2.0 + 1.5 * min(len(lines) - 1 - i, 5)  # all seen where they meet
            marks.append(Line(x, y, name, colour, wide, shape=i % _STAR))
        if len(lines) == 1:
            marks += _band(points, across, key)
        marks += _best(summary, across, key)
        x, y = Axis(word, unit), Axis(what, si_unit)
        panels.append(Panel(x, y, marks, height=170.0))
    return Chart(f"{title_line(summary)} ({summary['grade']})", panels)


def lines_by_setting(points: Entries) -> tuple[str, dict[str, list[Entry]]]:
    """Return the setting with most values, and the points of each combination of the
    other settings in rising order of that one."""
    values = {key: {point[key] for point in points} for key in SETTINGS}
    across = max(values, key=lambda key: len(values[key]))
    others = [key for key in SETTINGS if key != across and len(values[key]) > 1]
    lines: dict[str, list[Entry]] = {}
    for point in sorted(points, key=lambda point: point[across]):
        words = (f"{SETTINGS[k][0]} {plain(point[k])} {SETTINGS[k][1]}" for k in others)
        lines.setdefault(", ".join(words), []).append(point)
    return across, lines


def _band(points: Entries, across: str, key: str) -> list[Mark]:
    """Band from 5 to 95 % of one quantity, if its interval is known."""
    ends = f"{key}_p5_p95"
    rows = [row for row in points if row["feasible"] and ends in row]
    rows = sorted(rows, key=lambda row: row[across])
    if not rows:
        return []
    low, high = ([row[ends][end] for row in rows] for end in (0, 1))
    return [Band([row[across] for row in rows], low, high, "5 to 95 %")]


def _best(summary: Entry, across: str, key: str) -> list[Mark]:
    """Marks at the points of least energy and of least energy-delay product."""
    marks: list[Mark] = []
    least = ("energy_j", "least energy")
    if has_node(summary):
        least = ("wall_energy_j", "least energy at the wall")
    for best, (energy, words), shape, colour in (
        ("best_edp", ("energy_j", "least energy x time"), 3, 2),
        ("best_energy", least, _STAR, 1),
    ):
        if summary[best] is not None:
            point = summary["points"][summary[best]]
            costs = f"{si(point[energy], 'J')} in {si(point['time_s'], 's')}"
            name = f"{words}: {costs}"
            marks.append(
                Points([point[across]], [point[key]], name, colour, shape, 6.5)
            )
    return marks
