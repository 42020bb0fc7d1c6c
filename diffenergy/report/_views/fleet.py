"""How a planned fleet reads and looks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._charts import style
from .._format import Entries, Entry, digits, si
from .._tables.columns import Columns, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from ...fleet import FleetResult

_SHOWN: Final = 24
"""Rows of the plan in a table for people."""
_POOLS: Final = 6
"""Pools that are drawn, those with most GPUs."""
_MODELS: Final = 7
"""Models with a colour of their own, those with most GPUs; the rest are grey."""
_SITES: Final = (*style.PALETTE[6:], *style.PALETTE[5:1:-1])
"""Colours of sites, other than those of the first models."""
_HEIGHT: Final = 1.35
"""Inches of a panel."""
_OPTIONAL: Final = ("sm_clock_mhz", "power_limit_w", "max_batch")


def line(result: "FleetResult") -> str:
    """What was planned, its value and how far the bound is."""
    summary = result.summary
    slots = summary["slots"]
    return (
        f"{slots} slot{'s' * (slots != 1)} of {summary['slot_s']:g} s, least "
        f"{summary['objective']}: {amount(summary, summary['value'])}, bound "
        f"{amount(summary, summary['bound'])}, gap {100 * summary['gap']:.2g} %"
    )


def parts(result: "FleetResult") -> list[Any]:
    """Totals, the plan of the hardest slot, sites, prices and headroom."""
    summary = result.summary
    slot = busiest(summary)
    return [
        line(result),
        totals(summary),
        f"plan of slot {slot}, the nearest to a budget (replicas x GPUs each; "
        f"{len(summary['plan'])} rows in all: --out FILE.csv):",
        _first(*plan_rows(summary, slot), left=2),
        table(*site_rows(summary)),
        _first(*price_rows(summary, slot)),
        *headroom(summary),
    ]


def _first(columns: Columns, rows: Sequence[Any], left: int = 1) -> "Table":
    return table(columns, rows[:_SHOWN], left=left)


class Drawn(NamedTuple):
    """What pictures show: GPUs of every model in every pool, the pools that have a
    picture, and the models that have a colour."""

    used: Float[np.ndarray, "slot model pool"]
    pools: Int[np.ndarray, " shown"]
    models: Int[np.ndarray, " coloured"]


def drawn(result: "FleetResult") -> Drawn:
    """Who runs where, those with most GPUs first to have a picture."""
    summary, problem = result.summary, result.solved.problem
    used = np.zeros((summary["slots"], len(problem.models), len(problem.pools)))
    names = problem.models, problem.pools
    of, at = ({x: i for i, x in enumerate(own)} for own in names)
    for entry in summary["plan"]:
        place = entry["slot"], of[entry["model"]], at[entry["pool"]]
        used[place] += entry["replicas"] * entry["gpus_per_replica"]
    each = used.sum(axis=(0, 2))
    pools = np.argsort(-problem.count, kind="stable")[:_POOLS]
    models = np.argsort(-each, kind="stable")[:_MODELS]
    return Drawn(used, np.sort(pools), np.sort(models[each[models] > 0]))


def amount(summary: Entry, value: float | None) -> str:
    """A value of the objective with its unit."""
    if summary["objective"] == "energy":
        return si(value, "J")
    if summary["objective"] == "carbon":
        return si(value, "g")
    return digits(value)


def busiest(summary: Entry) -> int:
    """The slot nearest to a budget; without budgets that of most power."""
    power: dict[int, float] = {}
    close: dict[int, float] = {}
    for entry in summary["site_power"]:
        slot, drawn = entry["slot"], entry["power_w"]
        power[slot] = power.get(slot, 0.0) + drawn
        if entry["budget_w"]:
            close[slot] = max(close.get(slot, 0.0), drawn / entry["budget_w"])
    ranked = close or power
    return max(ranked, key=lambda slot: (ranked[slot], -slot))


def totals(summary: Entry) -> str:
    """Joules, cost and carbon, and what prices alone prove."""
    value, alone = summary["value"], summary["bound_by_prices"]
    proven = 100 * (value - alone) / abs(value) if value else 0.0
    cost, carbon = summary["cost"], summary["carbon_g"]
    return (
        f"energy {si(summary['energy_j'], 'J')}, cost {digits(cost)}, carbon "
        f"{si(carbon, 'g')}; the prices below alone prove a bound {proven:.2g} % "
        f"under; {sum(x['replicas'] for x in summary['starts'])} starts"
    )


def plan_rows(summary: Entry, slot: int) -> tuple[Columns, Entries]:
    """The plan of a slot: columns and rows."""
    rows = [entry for entry in summary["plan"] if entry["slot"] == slot]
    columns = [
        ("model", "model"),
        ("pool", "pool"),
        ("replicas", lambda x: f"{x['replicas']} x {x['gpus_per_replica']}"),
        ("clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("limit", "power_limit_w", "{:.0f} W"),
        ("batch", "max_batch"),
        ("req/s", "requests_per_s", "{:.3g}"),
        ("p95 in ms", _latencies),
        ("power", "power_w", "{:.0f} W"),
    ]
    empty = [x for x in _OPTIONAL if all(row[x] is None for row in rows)]
    return [column for column in columns if column[1] not in empty], rows


def _latencies(entry: Entry) -> str:
    """95th percentiles of TTFT and TPOT, ms."""
    return f"{1e3 * entry['ttft_p95_s']:.3g} / {1e3 * entry['tpot_p95_s']:.3g}"


def site_rows(summary: Entry) -> tuple[Columns, list[Any]]:
    """Mean and largest power of every site, and its tightest budget."""
    names = dict.fromkeys(entry["site"] for entry in summary["site_power"])
    rows = []
    for name in names:
        mine = [x for x in summary["site_power"] if x["site"] == name]
        drawn = [x["power_w"] for x in mine]
        budgets = [x["budget_w"] for x in mine if x["budget_w"] is not None]
        rows.append(
            (name, sum(drawn) / len(drawn), max(drawn), min(budgets, default=None))
        )
    columns = ("site", ("mean power", 1, "W"), ("most", 2, "W"), ("budget", 3, "W"))
    return columns, rows


def price_rows(summary: Entry, slot: int) -> tuple[Columns, list[Any]]:
    """What one more W, GPU or request/s is worth in a slot."""
    rows = [entry for entry in summary["shadow_prices"] if entry["slot"] == slot]
    words = {
        "watt": "1 W more at",
        "gpu": "1 GPU more in",
        "request": "1 req/s more of",
    }
    told = [
        (
            f"{words[x['kind']]} {x.get('site') or x.get('pool') or x.get('model')}",
            signed(summary, x.get("net", x["value"]), x["kind"] == "request"),
        )
        for x in rows
    ]
    return (f"worth in slot {slot}", summary["objective"]), told


def signed(summary: Entry, value: float, costs: bool) -> str:
    """A price in words; one that `costs` is what the objective rises by."""
    if abs(value) <= 1e-9 * abs(summary["value"] or 1.0):
        return "0"
    word = "costs" if costs == (value > 0) else "saves"
    return f"{word} {amount(summary, abs(value))}"


def headroom(summary: Entry) -> Sequence[str]:
    """How far demand can grow, as lines."""
    room = summary["headroom"]
    if room is None:
        return []
    watts = [f"1 kW at {x} adds {1e5 * y:.3g} %" for x, y in room["per_watt"].items()]
    gpus = [f"1 GPU in {x} {100 * y:.3g} %" for x, y in room["per_gpu"].items()]
    return [
        f"headroom: demand can grow to {room['demand_scale']:.3f} times (slot "
        f"{room['slot']}, shares of replicas allowed); {', '.join([*watts, *gpus])}"
    ]


@style.house()
def figure(result: "FleetResult") -> "Figure":
    """A panel for each pool, GPUs of the models one on the other up to its count, and
    one of power at the meter of every site with its budget dashed."""
    summary, problem = result.summary, result.solved.problem
    used, pools, shown = drawn(result)
    figure = style.canvas(1.3 + _HEIGHT * (len(pools) + 1.3))
    ratios = [1.0] * len(pools) + [1.4]
    axes = figure.subplots(
        len(pools) + 1, 1, sharex=True, squeeze=False, height_ratios=ratios
    )[:, 0]
    names = [problem.models[x] for x in shown]
    for panel, pool in zip(axes, pools, strict=False):
        _pool(panel, used[:, :, pool], shown, names, float(problem.count[pool]))
        panel.set_title(f"GPUs of {problem.pools[pool]}")
    _power(axes[-1], summary, problem.sites)
    axes[-1].set_xlabel(f"slot of {summary['slot_s']:g} s")
    style.few_ticks(axes[-1].xaxis, 9, whole=True)
    axes[-1].set_xlim(0, summary["slots"])
    handles, labels = axes[0].get_legend_handles_labels()
    by_name = dict(zip(labels, handles, strict=True))
    known = [(by_name[x], x) for x in (*names, "others") if x in by_name]
    if known:
        figure.legend(
            *zip(*known, strict=True), loc="outside lower center", ncols=4,
            frameon=False,
        )  # fmt: skip
    style.headline(figure, line(result))
    return figure


def _pool(
    axes: "Axes",
    used: Float[np.ndarray, "slot model"],
    shown: np.ndarray,
    names: list[str],
    count: float,
) -> None:
    """Models one on the other; the pool's GPUs as a line."""
    edges = np.arange(len(used) + 1)
    floor = np.zeros(len(used))
    others = np.setdiff1d(np.arange(used.shape[1]), shown)
    parts = [(x, used[:, model]) for x, model in enumerate(shown)]
    if used[:, others].any():
        parts.append((len(style.PALETTE) - 1, used[:, others].sum(axis=1)))
    for (colour, values), label in zip(parts, [*names, "others"], strict=False):
        top = floor + values
        axes.fill_between(
            edges, np.r_[floor, floor[-1]], np.r_[top, top[-1]], step="post",
            color=style.PALETTE[colour], label=label, linewidth=0,
        )  # fmt: skip
        floor = top
    axes.axhline(count, color=style.BLACK, linewidth=0.9, linestyle="--")
    axes.set_ylim(0, 1.08 * max(count, 1.0))
    style.few_ticks(axes.yaxis, 4, whole=True)


def _power(axes: "Axes", summary: Entry, sites: tuple[str, ...]) -> None:
    """W at the meter of every site, and its budget dashed."""
    edges = np.arange(summary["slots"] + 1)
    most = 0.0
    for number, name in enumerate(sites):
        mine = [x for x in summary["site_power"] if x["site"] == name]
        power = np.array([x["power_w"] for x in mine])
        budget = np.array([x["budget_w"] or np.nan for x in mine])
        colour = _SITES[number % len(_SITES)]
        axes.stairs(
            power, edges, color=colour, label=name, linewidth=1.8, baseline=None
        )
        axes.stairs(
            budget, edges, color=colour, linestyle="--", linewidth=1.2, baseline=None
        )
        most = max(most, power.max(), np.nanmax(np.r_[budget, 0.0]))
    axes.set_ylim(0, 1.1 * most)
    axes.set_title("power at the meter, budget dashed")
    style.si_ticks(axes.yaxis, "W")
    style.legend_above(axes)
