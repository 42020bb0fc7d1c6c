"""How a planned fleet reads and looks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .._format import Entry, digits, si
from .._tables.columns import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from ...fleet import FleetResult

_SHOWN: Final = 24
"""Rows of the plan in a table for people."""
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
        _totals(summary),
        f"plan of slot {slot}, the nearest to a budget (replicas x GPUs each; "
        f"{len(summary['plan'])} rows in all: --out FILE.csv):",
        _plan(summary, slot),
        _sites(summary),
        *_prices(summary, slot),
        *_headroom(summary),
    ]


def figure(result: "FleetResult") -> "Figure":
    """GPUs by model and pool over the slots, and power against budgets."""
    from .._charts.plot_fleet import fleet_figure

    return fleet_figure(result)


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


def _totals(summary: Entry) -> str:
    """Joules, cost and carbon, and what prices alone prove."""
    value, alone = summary["value"], summary["bound_by_prices"]
    proven = 100 * (value - alone) / abs(value) if value else 0.0
    cost, carbon = summary["cost"], summary["carbon_g"]
    return (
        f"energy {si(summary['energy_j'], 'J')}, cost {digits(cost)}, carbon "
        f"{si(carbon, 'g')}; the prices below alone prove a bound {proven:.2g} % "
        f"under; {sum(x['replicas'] for x in summary['starts'])} starts"
    )


def _plan(summary: Entry, slot: int) -> "Table":
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
    columns = [column for column in columns if column[1] not in empty]
    return table(columns, rows[:_SHOWN], left=2)


def _latencies(entry: Entry) -> str:
    """95th percentiles of TTFT and TPOT, ms."""
    return f"{1e3 * entry['ttft_p95_s']:.3g} / {1e3 * entry['tpot_p95_s']:.3g}"


def _sites(summary: Entry) -> "Table":
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
    return table(columns, rows)


def _prices(summary: Entry, slot: int) -> list[Any]:
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
    return [table((f"worth in slot {slot}", summary["objective"]), told[:_SHOWN])]


def signed(summary: Entry, value: float, costs: bool) -> str:
    """A price in words; one that `costs` is what the objective rises by."""
    if abs(value) <= 1e-9 * abs(summary["value"] or 1.0):
        return "0"
    word = "costs" if costs == (value > 0) else "saves"
    return f"{word} {amount(summary, abs(value))}"


def _headroom(summary: Entry) -> Sequence[str]:
    room = summary["headroom"]
    if room is None:
        return []
    watts = [f"1 kW at {x} adds {1e5 * y:.3g} %" for x, y in room["per_watt"].items()]
    gpus = [f"1 GPU in {x} {100 * y:.3g} %" for x, y in room["per_gpu"].items()]
    return [
        f"headroom: demand can grow to {room['demand_scale']:.3f} times (slot "
        f"{room['slot']}, shares of replicas allowed); {', '.join([*watts, *gpus])}"
    ]
