"""View of a frequency schedule."""

from typing import TYPE_CHECKING, Final

import numpy as np

from .._blocks import Block, Table
from .._format import UNKNOWN, Entries, Entry, change, digits, plain, si
from .._tables.lines import frame, has_node, title_line, wall_lines
from .._tables.schedule_words import BASELINES, FREE, free_case

if TYPE_CHECKING:
    from ...charts import Chart
    from ...dvfs import PlanResult

_MOST_ROWS: Final = 60
"""Maximum number of rows printed in full; above it only the longest are shown."""
_SHOWN: Final = 40
_CURVE: Final = 12
_COSTS: Final = (
    ("time", "time_s", "s"),
    ("change", "time_change_pct", change),
    ("energy", "energy_j", "J"),
    ("change", "energy_change_pct", change),
)
_AT_WALL: Final = (
    ("at the wall", "wall_energy_j", "J"),
    ("change", "wall_energy_change_pct", change),
)


def line(result: "PlanResult") -> str:
    """Return a line with time and energy and their changes against default clocks."""
    summary = result.summary
    return (
        f"{_title(summary)}: {si(summary['time_s'], 's')} "
        f"({change(summary['time_change_pct'])}), {si(summary['energy_j'], 'J')} "
        f"({change(summary['energy_change_pct'])}; bound "
        f"{change(summary['bound_energy_change_pct'])})"
    )


def blocks(result: "PlanResult") -> list[Block]:
    """Return assumptions, totals beside the baselines, bound, and kernel clocks."""
    summary = result.summary
    parts = schedule_blocks(summary, result.rows())
    return [_title(summary), *parts] if "table" in summary else frame(summary, parts)


def charts(result: "PlanResult") -> "dict[str, Chart]":
    """Return charts of the schedule in time and energy, and of its clocks over time."""
    from .._charts.schedule import schedule_charts

    summary = result.summary
    title = _title(summary)
    if "table" not in summary:
        title += f" ({summary['grade']})"
    return schedule_charts(result.problem, result.plan, summary, title)


def schedule_blocks(summary: Entry, rows: Entries) -> list[Block]:
    """Return totals beside the baselines, bound and clocks; of many rows the longest.

    `summary` is that of `schedule_summary`, `rows` those of `schedule_rows`. Stages
    whose clocks are left alone have a line instead of a table.
    """
    stages = dict.fromkeys(row["stage"] for row in rows)
    changed = {row["stage"] for row in rows if _changes(row)}
    left_alone = [stage for stage in stages if stage not in changed]
    rows = [row for row in rows if row["stage"] in changed]
    shown = rows
    if len(rows) > _MOST_ROWS:
        order = np.argsort([-row["count"] * row["time_s"] for row in rows])
        shown = [rows[i] for i in np.sort(order[:_SHOWN])]
    parts: list[Block] = [_totals(summary), *wall_lines(summary), _bound_line(summary)]
    parts += [*_switching_lines(summary), *_promise_lines(summary)]
    if left_alone and changed:
        parts.append(f"{', '.join(left_alone)}: clocks left alone")
    parts += _stages(shown, titled=len(stages) > 1)
    if len(shown) < len(rows):
        parts.append(
            f"{len(shown)} of {len(rows)} rows are shown, those that take most time; "
            f"--out FILE has all."
        )
    if "power_curve" in summary:
        parts.append(_power_curve(summary["power_curve"]))
    return parts


def _changes(costs: Entry) -> bool:
    """Whether time or energy of a row or a schedule show a change."""
    shown = (change(costs[f"{x}_change_pct"]) for x in ("time", "energy"))
    return any(text != change(0.0) for text in shown)


def _title(summary: Entry) -> str:
    if "table" in summary:
        return f"measured: {summary['table']}"
    return title_line(summary)


def _totals(summary: Entry) -> Table:
    """Table of time and energy of an iteration: default clocks, baselines unless none
    of them changes anything, the schedule."""
    default = {**summary["default"], "time_change_pct": 0.0, "energy_change_pct": 0.0}
    named: dict[str, Entry | None] = {"default clocks": default}
    baselines = summary["baselines"]
    if any(figures and _changes(figures) for figures in (summary, *baselines.values())):
        for name, figures in baselines.items():
            named[BASELINES[name] if name in BASELINES else name] = figures
    named["this schedule"] = summary
    if free := free_case(summary):
        named[FREE] = free
    costs = (*_COSTS, *_AT_WALL) if has_node(summary) else _COSTS
    default["wall_energy_change_pct"] = 0.0
    unknown = dict.fromkeys(key for _, key, _ in costs)
    entries = [
        {"name": name, **(figures or unknown), "by": _setting(figures or {})}
        for name, figures in named.items()
    ]
    by = [("by", "by")] if any(entry["by"] for entry in entries) else []
    columns = [("", "name"), *costs, *by]
    spare = ("change", "by") if has_node(summary) else ("by", "change")
    return Table(columns, entries, spare=spare, fold=["", "by"])


def _bound_line(summary: Entry) -> str:
    """Line with the bound, the gap to the optimum, and the solver."""
    gap = summary["gap_pct"]
    words = UNKNOWN if gap is None else f"{gap:.3f} %"
    if has_node(summary):
        bound = f"{change(summary['bound_wall_energy_change_pct'])} at the wall"
    else:
        bound = f"{change(summary['bound_energy_change_pct'])} of energy"
    return (
        f"bound: {bound}; gap to the "
        f"optimum at most {words}; solver: {summary['solver']}"
    )


def _switching_lines(summary: Entry) -> list[str]:
    """Lines on the cost of clock changes and advice."""
    lines = []
    if free := free_case(summary):
        least = change(free["bound_energy_change_pct"])
        lines += [_cost(summary), f"bound if changes were free: {least} of energy"]
    if summary.get("advice"):
        lines.append(f"advice: {summary['advice']}")
    return lines


def _cost(summary: Entry) -> str:
    """Line with the latency and energy of a clock change, and their source."""
    latency, energy = summary["switch_latency_s"], summary["switch_energy_j"]
    if latency is None or energy is None:
        return "clocks cannot change"
    parts = [si(latency, "s")] if latency else []
    parts += [si(energy, "J")] if energy else []
    how = {"stall": "the GPU waits", "lookahead": "requests are sent ahead"}
    source = summary["switch_latency_source"]
    words = f"{' and '.join(parts)}, {how[summary['switch_kind']]}"
    return f"a change of clocks takes {words}" + (f": {source}" if source else "")


def _promise_lines(summary: Entry) -> list[str]:
    """Line on the 95 % bound of a re-measured schedule and the noise of readings."""
    if "noise_time_pct" not in summary:
        return []
    late = change(summary["time_change_pct_p95"])
    noise = [f"{summary[f'noise_{x}_pct']:.2g} %" for x in ("time", "energy")]
    return [
        f"re-measured, its time changes by at most {late} in 19 of 20 cases; "
        f"noise of a reading: time {noise[0]}, energy {noise[1]}"
    ]


def _power_curve(curve: Entries) -> Table:
    """Table of time, energy and tokens per second by power limit, at most 12 rows."""
    picked = np.unique(np.linspace(0, len(curve) - 1, _CURVE).round().astype(int))
    columns = (
        ("power limit", "power_limit_w", "{:.6g} W"),
        ("time", "time_s", "s"),
        ("energy", "energy_j", "J"),
        ("SM clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("tokens/s", "tokens_per_s", digits),
    )
    return Table(columns, [curve[i] for i in picked])


def _stages(rows: Entries, titled: bool) -> list[Table]:
    """Tables of clocks and cost of one launch of every kernel, one for each stage,
    `titled` by its name."""
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    memory = any(row["mem_clock_mhz"] is not None for row in rows)
    columns = [
        ("kernel", "kernel"),
        ("count", "count", "{:.6g}"),
        ("SM/mem MHz" if memory else "SM MHz", lambda x: _clocks(x, memory)),
        *_COSTS,
    ]
    return [
        Table(
            columns,
            [row for row in rows if row["stage"] == stage],
            spare=("count", "change", "time"),
            title=stage if titled else "",
            fold=["kernel"],
        )
        for stage in stages
    ]


def _setting(row: Entry) -> str:
    """Clocks or power limit of a baseline, if it has them."""
    if "power_limit_w" in row:
        return f"{plain(row['power_limit_w'])} W"
    if "stages" in row:
        return ", ".join(f"{name} {_pair(x)}" for name, x in row["stages"].items())
    return _pair(row) if "mem_clock_mhz" in row else ""


def _pair(row: Entry) -> str:
    """SM clock, with the memory clock if it is locked."""
    pair = _clocks(row, row["mem_clock_mhz"] is not None)
    return pair if pair == "auto" else f"{pair} MHz"


def _clocks(row: Entry, memory: bool) -> str:
    """SM clock (MHz) and, with `memory`, the memory clock; "auto" if not set."""
    clocks = [row["sm_clock_mhz"], row["mem_clock_mhz"]][: 1 + memory]
    return "/".join("auto" if mhz is None else plain(mhz) for mhz in clocks)
