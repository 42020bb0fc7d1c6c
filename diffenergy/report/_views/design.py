"""View of a design search."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...codesign import LIMITS, TILES
from ...units import GiB
from .._blocks import Block, Table
from .._format import Entry, change, product
from .._tables.design_words import (
    METRIC_KEYS,
    active_lines,
    design_words,
    effort_line,
    field_text,
    first_goal,
    in_unit,
    short,
    span,
)
from .._tables.lines import BOARD_ONLY, WALL, assumed_line, grade_line, title_line
from .tiles import TILE

if TYPE_CHECKING:
    from ...charts import Chart
    from ...codesign import SearchResult

_ROUNDING: Final = 1e-9
_EDGE: Final = 1e-6
_SHOWN_TILES: Final = 12
_SHOWN_NUMBERS: Final = 8
_SHOWN_FIELDS: Final = 4


def line(result: "SearchResult") -> str:
    """Return a line with the objective before and after, and the best design's
    fields."""
    summary, best = result.summary, result.best
    goal, words = first_goal(summary), summary["best"].get("words", {})
    start, end = (in_unit(goal, summary[x]["objective"]) for x in ("start", "best"))
    return (
        f"{summary['model']} on a design based on {result.card.name}: "
        f"{goal} {start} -> {end}, {design_words(words | best.fields)}, "
        f"{summary['grade']}"
    )


def blocks(result: "SearchResult") -> list[Block]:
    """Return assumptions, totals, limits, fields, tiles and active constraints."""
    summary = result.summary
    parts = []
    for member in summary.get("workloads", [summary]):
        times = f"{member['weight']:g} x " if "weight" in member else ""
        parts += [assumed_line(member), times + title_line(member)]
    parts.append(_totals(summary))
    if "choices" in summary:
        parts.append(_choices(summary))
    if summary["limits"]:
        parts.append(_limits(summary))
    numbers = [name for name in summary["vary"] if name != TILES]
    if numbers:
        parts.append(_fields(summary, numbers))
    parts += [*_tiles(summary), *active_lines(summary)]
    parts += [_elasticities(summary)] if summary["sensitivities"] else []
    if summary["pareto"]:
        parts.append(_front(summary, numbers[:_SHOWN_FIELDS]))
    scope = WALL if "wall_energy_j" in summary["best"] else BOARD_ONLY
    return [*parts, effort_line(summary), grade_line(summary), scope]


def charts(result: "SearchResult") -> "dict[str, Chart]":
    """Return charts of the front, or of base against best and the search path."""
    from .._charts.design import design_charts

    return design_charts(result.summary, result.path)


def refusal(result: "SearchResult") -> str:
    """Return which limits the best design violates, worst first, and what it
    reaches."""
    problem, metrics = result.problem, result.best.metrics
    passed = {
        metric: metrics[metric] / limit
        for metric, limit in problem.limits.items()
        if metrics[metric] > limit * (1 + _ROUNDING)
    }
    worst = sorted(passed, key=lambda metric: -passed[metric])
    reasons = [_passed(result, metric) for metric in worst]
    together = " together" if len(reasons) > 1 else ""
    line = f"{' and '.join(reasons)} cannot be met{together}"
    if not reasons:
        line = "`power_cap` cannot be kept at the lowest clock"
    return f"{line}; its fields: {design_words(result.best.fields)}."


def _passed(result: "SearchResult", metric: str) -> str:
    problem, reached = result.problem, result.best.metrics[metric]
    if metric == "memory":
        need = max(float(member.memory) for member in problem.task.members)
        return (
            f"`{LIMITS[metric]}` (needed {need / GiB:.1f} GiB, the closest design has "
            f"{need / reached / GiB:.1f} GiB; it follows `dram_bandwidth` unless it is "
            "varied)"
        )
    return (
        f"`limits['{metric}']` (allowed {in_unit(metric, problem.limits[metric])}, the "
        f"closest design has {in_unit(metric, reached)})"
    )


def _totals(summary: Entry) -> Table:
    """Table of time, energy, power, area and objective of base and best design."""
    goal, gained = first_goal(summary), summary["improvement_pct"]
    wall = "wall_energy_j" in summary["best"]
    objective = (short(goal), "objective", lambda value: in_unit(goal, value))
    columns = [
        ("", "name"),
        ("time", "time_s", "s"),
        ("energy", "energy_j", "J"),
        *([("at the wall", "wall_energy_j", "J")] if wall else []),
        ("power", "avg_power_w", "{:.1f} W"),
        ("area", "area_mm2", "{:.0f} mm2"),
        *([] if goal in ("time", "energy", "area") else [objective]),
        (f"change of {short(goal)}", "change", change),
    ]
    fallen = None if gained is None else -gained
    base = {**summary["start"], "name": "base", "change": 0.0}
    best = {**summary["best"], "name": "best", "change": fallen}
    return Table(columns, (base, best))


def _choices(summary: Entry) -> Table:
    """Table of the best design of each process and memory."""
    names = [*summary["choices"][0]["words"]]
    columns = [
        *((name, lambda x, name=name: x["words"][name]) for name in names),
        ("time", "time_s", "s"),
        ("energy", "energy_j", "J"),
        ("power", "avg_power_w", "{:.1f} W"),
        ("area", "area_mm2", "{:.0f} mm2"),
    ]
    return Table(columns, summary["choices"], left=len(names))


def _limits(summary: Entry) -> Table:
    """Table of every limit with the values of base and best design."""

    def of(key: str) -> Callable[[Entry], str]:
        return lambda limit: in_unit(limit["metric"], limit[key])

    name = ("limit", lambda limit: limit["name"].replace("_", " "))
    sides = (("allowed", of("limit")), ("base", of("start")), ("best", of("best")))
    return Table((name, *sides), summary["limits"])


def _fields(summary: Entry, names: Sequence[str]) -> Table:
    """Table of the varied numbers: base, best and bounds."""
    fields = summary["best"]["fields"]
    entries = [
        {**summary["vary"][name], "name": name, "best": fields[name]} for name in names
    ]
    columns = (
        ("field", "name"),
        ("base", lambda x: field_text(x["name"], x["base"])),
        ("best", lambda x: field_text(x["name"], x["best"])),
        ("change", lambda x: change(100 * (x["best"] / x["base"] - 1))),
        ("bounds", lambda x: span(x["name"], x["low"], x["high"])),
        ("at", _bound),
    )
    return Table(columns, entries, fold=["bounds"])


def _bound(field: Entry) -> str:
    """Name of the bound that a number is at, or ""."""
    if field["best"] <= field["low"] * (1 + _EDGE):
        return "lower"
    return "upper" if field["best"] >= field["high"] * (1 - _EDGE) else ""


def _tiles(summary: Entry) -> list[Block]:
    """Table of the matrix products' tiles, by falling count."""
    tiles = summary["best"]["fields"].get(TILES)
    if not tiles:
        return []
    several = "workload" in tiles[0]
    columns = [
        *([("workload", "workload")] if several else []),
        ("GEMM", lambda x: f"{x['phase'] or 'forward'} {product({'op': 'gemm', **x})}"),
        ("count", "count", "{:.6g}"),
        *TILE,
    ]
    order = sorted(tiles, key=lambda tile: -tile["count"])[:_SHOWN_TILES]
    table = Table(columns, order, left=1 + several, fold=["GEMM"])
    rest = len(tiles) - len(order)
    more = [f"{rest} more tiles are in --json and --out FILE."] if rest else []
    return [table, *more]


def _elasticities(summary: Entry) -> Table:
    """Table of the GPU numbers that the objective is most sensitive to."""
    goal = short(first_goal(summary))
    columns = (
        ("1 % more of", "field"),
        (f"changes {goal} by", "elasticity", "{:+.3f} %"),
    )
    top = [x for x in summary["sensitivities"] if x["elasticity"]]
    return Table(columns, top, most=_SHOWN_NUMBERS)


def _front(summary: Entry, names: Sequence[str]) -> Table:
    """Table of the front, by rising first objective."""
    columns = [
        *(
            (short(goal), METRIC_KEYS[goal], lambda x, goal=goal: in_unit(goal, x))
            for goal in summary["objective"].split(",")
        ),
        *(
            (name, lambda x, name=name: field_text(name, x["fields"][name]))
            for name in names
        ),
    ]
    return Table(columns, summary["pareto"], left=0)
