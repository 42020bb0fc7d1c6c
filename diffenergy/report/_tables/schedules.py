"""Tables of `dvfs`, from the summary that `--json` prints and the rows behind it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._format import UNKNOWN, digits, plain, si
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Summary = Mapping[str, Any]
_MOST_ROWS: Final = 60
"""Rows of a schedule that people still read; above it only the longest are shown."""
_SHOWN: Final = 40
_CURVE: Final = 12
BASELINES: Final = {
    "iteration": "one pair of clocks",
    "phase": "one pair a stage",
    "power_limit": "power limit alone",
}
"""Names of the baselines in words."""


def schedule_parts(
    summary: Summary, rows: Sequence[Summary], everything: bool = False
) -> list["RenderableType"]:
    """What `dvfs` prints: totals beside the baselines, bound, clocks of the kernels.

    `summary` is that of `schedule_json`, `rows` those of `schedule_rows`; of many rows
    those that take most time are shown unless `everything` is asked for.
    """
    shown = rows
    if len(rows) > _MOST_ROWS and not everything:
        order = np.argsort([-row["count"] * row["time_s"] for row in rows])
        shown = [rows[i] for i in np.sort(order[:_SHOWN])]
    parts: list[RenderableType] = [totals_table(summary), bound_line(summary)]
    parts += [*promise_lines(summary), *schedule_tables(shown)]
    if len(shown) < len(rows):
        parts.append(
            f"{len(shown)} of {len(rows)} rows are shown, those that take most time; "
            f"--out FILE has all."
        )
    if "power_curve" in summary:
        parts.append(power_table(summary["power_curve"]))
    return parts


def totals_table(summary: Summary) -> "Table":
    """Time and energy of an iteration: default clocks, baselines, the schedule."""
    default = {**summary["default"], "time_change_pct": 0.0, "energy_change_pct": 0.0}
    named: dict[str, Summary | None] = {"default clocks": default}
    for name, found in summary["baselines"].items():
        named[BASELINES[name] if name in BASELINES else name] = found
    named["this schedule"] = summary
    rows = [[name, *_total_cells(found)] for name, found in named.items()]
    settings = [_setting(found) if found else "" for found in named.values()]
    columns = ["", "time", "change", "energy", "change"]
    if not any(settings):
        return table(columns, rows)
    rows = [[*row, setting] for row, setting in zip(rows, settings, strict=True)]
    return table([*columns, "by"], rows, fold=["by"])


def bound_line(summary: Summary) -> str:
    """How near the optimum the schedule is, and who found it."""
    gap = summary["gap_pct"]
    words = UNKNOWN if gap is None else f"{gap:.3f} %"
    return (
        f"bound: {change(summary['bound_energy_change_pct'])} of energy; gap to the "
        f"optimum at most {words}; solver: {summary['solver']}"
    )


def promise_lines(summary: Summary) -> list[str]:
    """What a schedule of a smoothed table keeps in 19 of 20 cases."""
    if "noise_time_pct" not in summary:
        return []
    late = change(summary["time_change_pct_p95"])
    noise = [f"{summary[f'noise_{x}_pct']:.2g} %" for x in ("time", "energy")]
    return [
        f"re-measured, its time changes by at most {late} in 19 of 20 cases; "
        f"noise of a reading: time {noise[0]}, energy {noise[1]}"
    ]


def power_table(curve: Sequence[Summary]) -> "Table":
    """Time, energy and tokens per second by power limit; a dozen rows of them."""
    picked = np.unique(np.linspace(0, len(curve) - 1, _CURVE).round().astype(int))
    rows = [
        [
            f"{plain(row['power_limit_w'])} W",
            si(row["time_s"], "s"),
            si(row["energy_j"], "J"),
            f"{row['sm_clock_mhz']:.0f} MHz",
            UNKNOWN if row["tokens_per_s"] is None else digits(row["tokens_per_s"]),
        ]
        for row in (curve[i] for i in picked)
    ]
    return table(["power limit", "time", "energy", "SM clock", "tokens/s"], rows)


def schedule_tables(rows: Sequence[Summary]) -> list["Table"]:
    """Clocks and cost of one launch of every kernel: a table for each stage."""
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    memory = any(row["mem_clock_mhz"] is not None for row in rows)
    columns = ["kernel", "count", "SM/mem MHz" if memory else "SM MHz"]
    columns += ["time", "change", "energy", "change"]
    return [
        table(
            columns,
            [_cells(row, memory) for row in rows if row["stage"] == stage],
            title=stage if len(stages) > 1 else None,
            fold=["kernel"],
        )
        for stage in stages
    ]


def change(percent: float | None) -> str:
    """Change in per cent with its sign.

    >>> change(-15.638), change(0.0)
    ('-15.64 %', '0 %')
    """
    if percent is None:
        return UNKNOWN
    return "0 %" if abs(percent) < 0.005 else f"{percent:+.2f} %"


def clock(mhz: float | None) -> str:
    """Clock in MHz; "auto" if it is left alone."""
    return "auto" if mhz is None else plain(mhz)


def _cells(row: Summary, memory: bool) -> list[str]:
    behind = f"/{clock(row['mem_clock_mhz'])}" if memory else ""
    return [
        row["kernel"],
        plain(row["count"]),
        clock(row["sm_clock_mhz"]) + behind,
        si(row["time_s"], "s"),
        change(row["time_change_pct"]),
        si(row["energy_j"], "J"),
        change(row["energy_change_pct"]),
    ]


def _total_cells(found: Summary | None) -> list[str]:
    if found is None:
        return [UNKNOWN] * 4
    return [
        si(found["time_s"], "s"),
        change(found["time_change_pct"]),
        si(found["energy_j"], "J"),
        change(found["energy_change_pct"]),
    ]


def _setting(found: Summary) -> str:
    """Clocks or power limit of a baseline, as far as it says."""
    if "power_limit_w" in found:
        return f"{plain(found['power_limit_w'])} W"
    if "stages" in found:
        pairs = {name: _pair(clocks) for name, clocks in found["stages"].items()}
        return ", ".join(f"{name} {pair}" for name, pair in pairs.items())
    return _pair(found) if "mem_clock_mhz" in found else ""


def _pair(found: Summary) -> str:
    """SM clock, and behind it the memory clock if it is locked."""
    clocks = [found["sm_clock_mhz"], found["mem_clock_mhz"]]
    if clocks == [None, None]:
        return clock(None)
    return "/".join(clock(x) for x in (clocks if clocks[1] else clocks[:1])) + " MHz"
