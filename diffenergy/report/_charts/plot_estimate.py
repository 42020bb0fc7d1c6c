"""Pictures of one estimate (totals, energy by unit, kernels by class) and of several,
over clocks or power limits."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...estimator import kernel_totals
from .._format import Entries, Entry, percent, plain, si
from .._tables.lines import title_line
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS: Final = {
    "compute": (style.BLUE, ("tensor", "fma", "sfu", "issue")),
    "memory and links": (style.VERMILION, ("smem", "l2", "dram", "link")),
    "clocks and other": (style.ORANGE, ("clock_tree", "launch", "other")),
    "idle and leakage": (style.GREY, ("idle", "leakage")),
}
"""Units by what they are for, with their colour."""
_MOST_CLASSES: Final = 7
_NOTHING: Final = 5e-4
"""Share of the total below which a unit or a class is left out."""
_WAITING: Final = "no kernel runs"
_QUANTITIES: Final = (("time_s", "time", "s"), ("energy_j", "energy", "J"))
SETTINGS: Final = {
    "sm_clock_set_mhz": ("SM clock", "MHz"),
    "mem_clock_mhz": ("memory clock", "MHz"),
    "power_limit_w": ("power limit", "W"),
}
"""What a sweep can vary: key, words, unit."""
_PANELS: Final = (*_QUANTITIES, ("avg_power_w", "mean power", "W"))


@style.house()
def estimate_figure(summary: Entry, kernels: Entries) -> "Figure":
    """Three panels: time and energy by phase with their intervals; energy by unit; time
    and energy by kernel class.

    `summary` is that of one setting, `kernels` those of `kernel_entries`.
    """
    units, classes = energy_units(summary), kernel_classes(summary, kernels)
    heights = [1.3, 0.6 + 0.22 * len(units), 0.6 + 0.36 * len(classes)]
    figure = style.canvas(0.4 + sum(heights))
    totals, parts, kinds = figure.subplots(3, 1, height_ratios=heights).tolist()
    _draw_totals(summary, totals)
    _draw_units(summary, units, parts)
    _draw_classes(summary, classes, kinds)
    style.headline(figure, f"{title_line(summary)} ({summary['grade']})")
    return figure


def energy_units(summary: Entry) -> dict[str, float]:
    """Energy by unit, J, largest first; what takes next to nothing is left out."""
    least = _NOTHING * summary["energy_j"]
    parts = sorted(summary["energy_j_by_unit"].items(), key=lambda part: -part[1])
    return {name: energy for name, energy in parts if energy > least}


def kernel_classes(summary: Entry, kernels: Entries) -> dict[str, tuple[float, float]]:
    """Time (s) and energy (J) of all launches by op, those of most time first.

    The smallest are summed up as "others"; the rest of the totals is the time in which
    the host is not ready.
    """
    sums = kernel_totals(
        kernels, summary, lambda kernel: kernel["op"].replace("_", " ")
    )
    order = sorted(sums, key=lambda op: -sums[op][0])
    kept = {op: sums[op] for op in order[:_MOST_CLASSES]}
    if rest := [sums[op] for op in order[_MOST_CLASSES:]]:
        kept[f"{len(rest)} others"] = (sum(x[0] for x in rest), sum(x[1] for x in rest))
    time = summary["time_s"] - sum(x[0] for x in kept.values())
    energy = summary["energy_j"] - sum(x[1] for x in kept.values())
    if time > _NOTHING * summary["time_s"]:
        kept[_WAITING] = (time, max(energy, 0.0))
    return kept


def _draw_totals(summary: Entry, axes: "Axes") -> None:
    """Phases one after the other on a bar each for time and energy, the interval of
    their sum as a line."""
    names, end = [], 0.0
    for row, (key, word, unit) in enumerate(_QUANTITIES):
        left, total = 0.0, summary[key]
        for phase, colour in zip(summary["phases"], style.PALETTE, strict=False):
            share = 100 * summary["phases"][phase][key] / total
            label = phase if row == 0 else None
            axes.barh(row, share, left=left, color=colour, label=label, height=0.7)
            left += share
        low, high = summary[f"{key}_p5_p95"]
        below, above = (100 * (x / total - 1) for x in (low, high))
        axes.errorbar(
            100, row, xerr=[[max(-below, 0.0)], [max(above, 0.0)]],
            color=style.BLACK, capsize=4, linewidth=1.4,
        )  # fmt: skip
        end = max(end, 100 + above)
        names.append(f"{word}: {si(total, unit)}\n{si(low, unit)} to {si(high, unit)}")
    style.rows_down(axes, names)
    axes.set_title("Totals and their 5 to 95 % range")
    axes.set_xlabel("share of the total, %")
    axes.set_xlim(0.0, 1.04 * end)
    if len(summary["phases"]) > 1:
        style.legend_above(axes)


def _draw_units(summary: Entry, units: Mapping[str, float], axes: "Axes") -> None:
    """Energy of every unit, coloured by what it is for."""
    kinds = {unit: kind for kind, (_, members) in KINDS.items() for unit in members}
    for kind in dict.fromkeys(kinds[name] for name in units):
        rows = [row for row, name in enumerate(units) if kinds[name] == kind]
        energies = [units[name] for name in units if kinds[name] == kind]
        shares = (percent(energy / summary["energy_j"]) for energy in energies)
        look = {"color": KINDS[kind][0], "label": kind, "height": 0.75}
        style.bars(axes, rows, energies, shares, **look)
    style.rows_down(axes, [name.replace("_", " ") for name in units])
    style.name_axis(axes.xaxis, "energy by unit", "J")
    axes.set_title("Energy")
    axes.margins(x=0.12)
    style.legend_above(axes)


def _draw_classes(
    summary: Entry, classes: Mapping[str, tuple[float, float]], axes: "Axes"
) -> None:
    """Shares of time and energy of every class, in one group of bars each."""
    totals = (summary["time_s"], summary["energy_j"])
    colours = (style.SKY, style.GREEN)
    for which, (_, word, unit) in enumerate(_QUANTITIES):
        shares = [100 * sums[which] / totals[which] for sums in classes.values()]
        rows = [row - 0.2 + 0.4 * which for row in range(len(classes))]
        texts = (si(sums[which], unit) for sums in classes.values())
        look = {"color": colours[which], "label": word, "height": 0.38}
        style.bars(axes, rows, shares, texts, **look)
    style.rows_down(axes, list(classes))
    axes.set_title("Kernel classes")
    axes.set_xlabel("share of the total, %")
    axes.margins(x=0.14)
    style.legend_above(axes)


@style.house()
def sweep_figure(summary: Entry) -> "Figure":
    """Time, energy and power over what was varied most, a line for each value of the
    rest; the best settings are marked, and 5 to 95 % is a band around single lines."""
    points = summary["points"]
    across, lines = swept(points)
    figure = style.canvas(7.4)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=[1, 1.25, 0.8]).tolist()
    looks = _looks(len(lines))
    for axes, (key, word, unit) in zip(panels, _PANELS, strict=True):
        for look, (name, rows) in zip(looks, lines.items(), strict=True):
            named = name and key == "time_s"
            kept = [row for row in rows if row["feasible"]]
            x, y = ([row[what] for row in kept] for what in (across, key))
            axes.plot(x, y, **look, label=name if named else "_")
        if len(lines) == 1:
            _draw_band(points, across, key, axes)
        style.name_axis(axes.yaxis, word, unit)
    _mark_best(summary, across, panels)
    word, unit = SETTINGS[across]
    panels[-1].set_xlabel(f"{word}, {unit}")
    if len(lines) > 1:
        panels[0].legend(loc="best")
    panels[1].legend(loc="best")
    style.headline(figure, f"{title_line(summary)} ({summary['grade']})")
    return figure


def swept(points: Entries) -> tuple[str, dict[str, list[Entry]]]:
    """Key of the setting with most values, and the points of every line by what else
    was varied, in rising order of that setting."""
    values = {key: {point[key] for point in points} for key in SETTINGS}
    across = max(values, key=lambda key: len(values[key]))
    others = [key for key in SETTINGS if key != across and len(values[key]) > 1]
    lines: dict[str, list[Entry]] = {}
    for point in sorted(points, key=lambda point: point[across]):
        words = (f"{SETTINGS[k][0]} {plain(point[k])} {SETTINGS[k][1]}" for k in others)
        lines.setdefault(", ".join(words), []).append(point)
    return across, lines


def _looks(count: int) -> list[dict[str, Any]]:
    """Colour, marker and width of every line; lines below are wider, so that all are
    seen where they meet."""
    extra = [min(count - 1 - number, 5) for number in range(count)]
    return [
        {
            "color": colour,
            "marker": style.MARKERS[number % len(style.MARKERS)],
            "markersize": 4.0 + 1.5 * extra[number],
            "linewidth": 1.5 + 1.5 * extra[number],
        }
        for number, colour in enumerate(style.colours(count))
    ]


def _draw_band(points: Entries, across: str, key: str, axes: "Axes") -> None:
    """5 to 95 % of one quantity, if its interval is known."""
    ends = f"{key}_p5_p95"
    kept = [row for row in points if row["feasible"] and ends in row]
    kept.sort(key=lambda row: row[across])
    if kept:
        low, high = ([row[ends][end] for row in kept] for end in (0, 1))
        axes.fill_between(
            [row[across] for row in kept], low, high, color=style.BLUE,
            alpha=style.BAND, linewidth=0,
            label="5 to 95 %" if key == "energy_j" else "_",
        )  # fmt: skip


def _mark_best(summary: Entry, across: str, panels: Sequence["Axes"]) -> None:
    """Rows of least energy and of least energy-delay product."""
    for key, words, marker, colour in (
        ("best_edp", "least energy x time", "D", style.GREEN),
        ("best_energy", "least energy", "*", style.VERMILION),
    ):
        if summary[key] is None:
            continue
        best = summary["points"][summary[key]]
        said = f"{words}: {si(best['energy_j'], 'J')} in {si(best['time_s'], 's')}"
        for axes, (quantity, _, _) in zip(panels, _PANELS, strict=True):
            axes.plot(
                best[across], best[quantity], marker, color=colour, mec="white",
                markersize=13, zorder=4,
                label=said if quantity == "energy_j" else "_",
            )  # fmt: skip
