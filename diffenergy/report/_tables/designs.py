"""Tables of `codesign`, from the summary that `--json` prints."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...codesign._problem.goals import UNITS
from ...codesign._space.axes import TILES
from ...hardware._fields import FIELDS
from .._format import UNKNOWN, digits, plain, si
from .estimates import kernel_name
from .schedules import change
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Summary = Mapping[str, Any]
_SHOWN_TILES: Final = 12
_SHOWN_NUMBERS: Final = 8
_SHOWN_FIELDS: Final = 4
_EDGE: Final = 1e-6
_PREFIXED: Final = ("Hz", "B", "B/s", "s", "W", "V", "B/SM")
METRIC_KEYS: Final = {
    "time": "time_s",
    "energy": "energy_j",
    "area": "area_mm2",
    "energy_per_token": "energy_j_per_token",
    "cost": "cost",
}
"""Key of a goal that is a metric by itself."""
_STEPS: Final = {
    "Hz": (1e6, "MHz"),
    "B": (1e6, "MB"),
    "B/SM": (1e3, "kB a SM"),
    "B/s": (1e9, "GB/s"),
    "s": (1e-3, "ms"),
    "share of DRAM": (1e-2, "%"),
}
"""Room that a multiplier is told for, by unit; one unit elsewhere."""
_WORDS: Final = {
    "num_sms": "SM",
    "max_latency": "latency",
    "max_power": "mean power",
    "max_area": "area",
    "max_cost": "cost",
    "max_ttft": "TTFT",
    "max_tpot": "TPOT",
    "dram_capacity": "DRAM capacity",
    "tdp": "TDP",
}
_CAPITALS: Final = ("sm", "l1", "l2", "dram", "smem", "fma", "sfu", "vf", "cta")


def design_parts(summary: Summary) -> list["RenderableType"]:
    """What `codesign` prints between its head and its grade."""
    parts: list[RenderableType] = [totals_table(summary)]
    if summary["limits"]:
        parts.append(limits_table(summary))
    numbers = [name for name in summary["vary"] if name != TILES]
    if numbers:
        parts.append(fields_table(summary, numbers))
    parts += tile_parts(summary)
    parts += active_lines(summary)
    parts += [elasticity_table(summary)]
    if summary["pareto"]:
        parts.append(front_table(summary))
    return [*parts, effort_line(summary)]


def totals_table(summary: Summary) -> "Table":
    """Base and best design: time, energy, power, area, and the objective."""
    goal = _first(summary)
    own = goal not in ("time", "energy", "area")
    columns = ["", "time", "energy", "power", "area", *([_short(goal)] if own else [])]
    rows = []
    for name, score in (("base", summary["start"]), ("best", summary["best"])):
        row = [name, *_score_cells(score)]
        row += [in_unit(goal, score["objective"])] if own else []
        fallen = 0.0 if name == "base" else _negative(summary["improvement_pct"])
        rows.append([*row, change(fallen)])
    return table([*columns, f"change of {_short(goal)}"], rows)


def limits_table(summary: Summary) -> "Table":
    """Every limit with what base and best design need of it."""
    rows = [
        [
            limit["name"].replace("_", " "),
            *(
                in_unit(limit["metric"], limit[key])
                for key in ("limit", "start", "best")
            ),
        ]
        for limit in summary["limits"]
    ]
    return table(["limit", "allowed", "base", "best"], rows)


def fields_table(summary: Summary, names: Sequence[str]) -> "Table":
    """Varied numbers, base and best, with their bounds."""
    rows = []
    for name in names:
        space, best = summary["vary"][name], summary["best"]["fields"][name]
        bounds = _span(name, space["low"], space["high"])
        rows.append(
            [
                name,
                shown(name, space["base"]),
                shown(name, best),
                change(100 * (best / space["base"] - 1)),
                bounds,
                _mark(space, best),
            ]
        )
    columns = ["field", "base", "best", "change", "bounds", "at"]
    return table(columns, rows, fold=["bounds"])


def tile_parts(summary: Summary) -> list["RenderableType"]:
    """Tiles of the matrix products, those launched most first."""
    tiles = summary["best"]["fields"].get(TILES)
    if not tiles:
        return []
    order = sorted(tiles, key=lambda tile: -tile["count"])
    rows = [
        [
            *([str(tile["workload"])] if "workload" in tile else []),
            f"{tile['phase'] or 'forward'} "
            + kernel_name({"op": "gemm", **tile})
            .removeprefix("gemm ")
            .removeprefix("1x"),
            plain(tile["count"]),
            "x".join(str(tile[x]) for x in ("tile_m", "tile_n", "tile_k", "stages")),
            str(tile["split_k"]),
        ]
        for tile in order[:_SHOWN_TILES]
    ]
    several = "workload" in tiles[0]
    columns = [*(["workload"] if several else []), "GEMM"]
    columns += ["count", "tile x stages", "split"]
    shown_table = table(columns, rows, left=1 + several, fold=["GEMM"])
    rest = len(tiles) - len(rows)
    if not rest:
        return [shown_table]
    return [shown_table, f"{rest} more tiles are in --json and --out FILE."]


def active_lines(summary: Summary) -> list[str]:
    """What each active limit or bound costs, in handy units."""
    lines = [
        _active(summary, active)
        for active in summary["active_constraints"]
        if active["multiplier"] is not None
    ]
    return lines or ["no limit or bound holds the design back"]


def elasticity_table(summary: Summary) -> "Table":
    """The numbers of the GPU that the objective depends on most."""
    goal = _short(_first(summary))
    top = [x for x in summary["sensitivities"] if x["elasticity"]][:_SHOWN_NUMBERS]
    rows = [[x["field"], f"{x['elasticity']:+.3f} %"] for x in top]
    return table(["1 % more of", f"changes {goal} by"], rows)


def front_table(summary: Summary) -> "Table":
    """The front, by rising first objective."""
    goals = summary["objective"].split(",")
    names = [name for name in summary["vary"] if name != TILES]
    listed = names[:_SHOWN_FIELDS]
    rows = [
        [
            *(in_unit(goal, score[METRIC_KEYS[goal]]) for goal in goals),
            *(shown(name, score["fields"][name]) for name in listed),
        ]
        for score in summary["pareto"]
    ]
    columns = [*map(_short, goals), *listed]
    return table(columns, rows, left=0)


def effort_line(summary: Summary) -> str:
    """What the search took."""
    cut = ", interrupted" if summary["interrupted"] else ""
    return (
        f"{summary['evaluations']:,} model evaluations (a gradient counts as three) in "
        f"{digits(summary['wall_s'], 3)} s, seed {summary['seed']}{cut}"
    )


def design_words(fields: Mapping[str, Any]) -> str:
    """A design in one line."""
    words = [
        f"{name} {shown(name, value)}"
        for name, value in fields.items()
        if name != TILES
    ]
    return ", ".join(words) or "tiles alone"


def shown(name: str, value: float) -> str:
    """A varied number with its unit.

    >>> shown("dram_bandwidth", 3.352e12), shown("num_sms", 132.0)
    ('3.352 TB/s', '132')
    """
    unit = unit_of(name)
    if unit in _PREFIXED:
        return si(value, unit)
    return plain(value)


def in_unit(metric: str, value: float | None) -> str:
    """A metric as people read it.

    >>> in_unit("time", 0.0123), in_unit("area", 814.0)
    ('12.30 ms', '814.0 mm2')
    """
    unit = UNITS.get(metric, "")
    if value is None or metric == "cost":
        return digits(value)
    if metric == "memory":
        return f"{digits(100 * value)} %"
    if unit.startswith(("s", "J", "W")):
        return si(value, unit)
    return f"{digits(value)} {unit}".strip()


def _span(name: str, low: float, high: float) -> str:
    """Two bounds, with the unit of the upper one.

    >>> _span("sm_clock", 345e6, 1980e6)
    '0.345 to 1.98 GHz'
    """
    if unit_of(name) not in _PREFIXED:
        return f"{plain(low)} to {plain(high)}"
    number, _, unit = si(high, unit_of(name)).partition(" ")
    scale = 10.0 ** round(math.log10(high / float(number)))
    return f"{digits(low / scale, 3)} to {digits(high / scale, 3)} {unit}"


def unit_of(name: str) -> str:
    """Unit of a field of the GPU or of the operating point."""
    point = {"sm_clock": "Hz", "mem_clock": "Hz", "power_cap": "W"}
    return point.get(name) or FIELDS[name].unit.split(",")[0]


def _active(summary: Summary, active: Summary) -> str:
    """A multiplier in words: one more GB/s of DRAM bandwidth saves 0.12 mJ."""
    goal, name = _first(summary), active["name"]
    field, _, end = name.partition(" ")
    bound = bool(end)
    unit = unit_of(field) if bound else active["unit"].partition("/(")[2][:-1]
    step, word = _STEPS.get(unit, (1.0, unit))
    gain = in_unit(goal, active["multiplier"] * step)
    token = " per token" if goal == "energy_per_token" else ""
    more = "less" if end == "(low)" else "more"
    if unit == "count":
        amount = f"one {more} {_words(field)}"
    elif field == "dram_capacity" and not bound:
        amount = f"1 % more {_words(field)}"
    elif word in ("", "price"):
        amount = f"one {more} of {_words(field)}"
    else:
        amount = f"one {word} {more} of {_words(field)}"
        amount = amount.replace(f"{word} more", f"more {word}")
    return f"{name}: {amount} saves {gain}{token}"


def _words(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name]
    words = [x.upper() if x in _CAPITALS else x for x in name.split("_")]
    return " ".join(words)


def _mark(space: Summary, value: float) -> str:
    """Which bound a number is at."""
    if value <= space["low"] * (1 + _EDGE):
        return "lower"
    return "upper" if value >= space["high"] * (1 - _EDGE) else ""


def _score_cells(score: Summary) -> list[str]:
    area = score["area_mm2"]
    power = score["avg_power_w"]
    return [
        si(score["time_s"], "s"),
        si(score["energy_j"], "J"),
        UNKNOWN if power is None else f"{power:.1f} W",
        UNKNOWN if area is None else f"{area:.0f} mm2",
    ]


def _first(summary: Summary) -> str:
    return summary["objective"].split(",")[0]


def _short(goal: str) -> str:
    return {"edp": "EDP", "ed2p": "ED2P"}.get(goal, goal.replace("_", " "))


def _negative(percent: float | None) -> float | None:
    return None if percent is None else -percent
