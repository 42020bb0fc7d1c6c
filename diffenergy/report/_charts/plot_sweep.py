"""Picture of estimates over clocks or power limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .._format import Entries, Entry, plain, si
from .._views.estimate import title_line
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: Final = {
    "sm_clock_set_mhz": ("SM clock", "MHz"),
    "mem_clock_mhz": ("memory clock", "MHz"),
    "power_limit_w": ("power limit", "W"),
}
"""What a sweep can vary: key, words, unit."""
_PANELS: Final = (
    ("time_s", "time", "s"),
    ("energy_j", "energy", "J"),
    ("avg_power_w", "mean power", "W"),
)


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
            _draw_line(rows, across, key, axes, **look, label=name if named else "_")
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


def _draw_line(rows: Entries, across: str, key: str, axes: "Axes", **look: Any) -> None:
    """One quantity over the setting, where the power limit can be kept."""
    kept = [row for row in rows if row["feasible"]]
    axes.plot([row[across] for row in kept], [row[key] for row in kept], **look)


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
