"""View of the best training plan."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from .._blocks import Block, Table
from .._format import Entry, percent, si
from .._tables.lines import (
    BOARD_ONLY,
    WALL,
    assumed_line,
    has_node,
    memory_lines,
    power_lines,
    wall_lines,
)

if TYPE_CHECKING:
    from ...charts import Chart
    from ...parallel import PlanResult

_SHOWN: Final = 12
"""Maximum number of rows of the frontier in a printed table."""
_WORDS: Final = {"time": "fastest", "energy": "of least energy"}


def line(result: "PlanResult") -> str:
    """Return a line with the plan and the time and energy of a step."""
    s = result.summary
    best = s["best"]
    return (
        f"{title(s)}: --plan {s['plan']}, {si(best['time_s'], 's')} and "
        f"{si(best['energy_j'], 'J')} a step"
    )


def title(s: Entry) -> str:
    """Return a line with the model, GPUs and global batch."""
    return (
        f"{s['model']} on {s['num_gpus']:,} x {s['gpu']}, {s['global_batch']:,} "
        "sequences a step"
    )


def blocks(result: "PlanResult") -> Iterator[Block]:
    """Yield the best plan, its time and energy, the runner-up, and the frontier."""
    s = result.summary
    best = s["best"]
    yield assumed_line(best)
    yield title(s)
    lowered = s["sm_clock_mhz"] < s["highest_sm_clock_mhz"]  # by a limit of power
    clock = f" at --sm-clock {s['sm_clock_mhz']:g}" if lowered else ""
    yield f"{_WORDS[s['objective']]}: --plan {s['plan']}{clock}"
    low, high = best["time_s_p5_p95"]
    rows = [
        ("step time", f"{si(best['time_s'], 's')} ({si(low, 's')} to {si(high, 's')})"),
        ("energy of a step", si(best["energy_j"], "J")),
        ("energy of a token", si(best["energy_j_per_token"], "J")),
        ("power of all GPUs", si(best["power_total_w"], "W")),
        ("MFU (useful FLOP / peak)", percent(best["mfu"])),
        ("bubble", percent(best["bubble"])),
        ("exposed communication", percent(best["exposed_communication"])),
    ]
    yield Table(("a step", ""), rows)
    yield from (*wall_lines(best), *power_lines(best))
    yield from memory_lines(best)
    yield _others(s)
    yield _ranking(s)
    if s["sensitivities"]:
        yield _sensitivities(s["sensitivities"])
    yield "Pareto front of time, energy and memory, in ranked order:"
    yield _frontier(s)
    yield f"grade: {best['grade']}"
    yield from (f"warning: {warning}" for warning in best["warnings"])
    yield WALL if has_node(best) else BOARD_ONLY


def charts(result: "PlanResult") -> "dict[str, Chart]":
    """Return a chart of step time and energy of every plan, with the frontier."""
    from .._charts.plans import plans_chart

    return {"plans": plans_chart(result, title(result.summary))}


def _others(s: Entry) -> str:
    words = f"{s['considered']:,} plans, of which {s['fitting']:,} fit the memory"
    second = s["second"]
    if second is None:
        return words
    meter = "wall_energy_j" if has_node(s["best"]) else "energy_j"
    keys = {"time": ("step_time_s", "time_s"), "energy": (meter, meter)}
    key, best = keys[s["objective"]]
    more = second[key] / s["best"][best] - 1
    return f"{words}; next: {second['plan']}, {percent(more)} more {s['objective']}"


def _ranking(s: Entry) -> str:
    """Line on how far the ranking of plans can be wrong."""
    if s["next_behind"] is None:
        return "all of them are priced as `estimate` prices them"
    return (
        f"the first {s['priced']} of the ranking are priced as `estimate` prices "
        f"them, on which it is wrong by at most {100 * s['ranking_error']:.2g} %; the "
        f"next is {percent(s['next_behind'])} behind the best"
    )


def _sensitivities(slopes: dict[str, dict[str, Entry]]) -> Any:
    def of(key: str) -> Callable[[str], str]:
        slope = {name: x["per_percent"] for name, x in slopes[key].items()}
        return lambda x: "none" if slope[x] is None else f"{slope[x]:+.3f} %"

    pairs = [("time", of("step_time_s")), ("energy", of("energy_j"))]
    if "wall_energy_j" in slopes:
        pairs.append(("energy at the wall", of("wall_energy_j")))
    return Table((("1 % more of", str), *pairs), slopes["step_time_s"])


def _frontier(s: Entry) -> Any:
    """Table of the frontier's plans; columns with equal values are left out."""
    size, unit = (1e6, "MJ") if s["best"]["energy_j"] >= 1e6 else (1e3, "kJ")
    columns = [
        ("plan", "plan"),
        ("GPUs", "num_gpus"),
        ("MHz", "sm_clock_mhz", "{:.0f}"),
        ("s", "step_time_s", "{:.4g}"),
        (unit, lambda x: f"{x['energy_j'] / size:.4g}"),
        ("GB", lambda x: f"{x['memory_per_gpu_bytes'] / 1e9:.1f}"),
        ("kW", lambda x: f"{x['power_total_w'] / 1e3:.4g}"),
    ]
    if has_node(s["best"]):
        wall = (f"{unit} wall", lambda x: f"{x['wall_energy_j'] / size:.4g}")
        columns.insert(5, wall)
    if "swing_w" in s["frontier"][0]:
        columns.append(("kW swing", lambda x: f"{x['swing_w'] / 1e3:.4g}"))
    for key in ("num_gpus", "sm_clock_mhz"):
        if len({x[key] for x in s["frontier"]}) == 1:
            columns = [x for x in columns if x[1] != key]
    return Table(columns, s["frontier"], most=_SHOWN, fold=("plan",))
