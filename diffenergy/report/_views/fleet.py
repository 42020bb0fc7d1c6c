"""View of a planned fleet."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._blocks import Block, Columns, Table, Tile, Tiles
from .._charts.fleet import site_power
from .._format import Entries, Entry, digits, percent, si
from .._tables.lines import assumed_line, modelled

if TYPE_CHECKING:
    from ...charts import Chart
    from ...fleet import FleetResult

_SHOWN: Final = 24
"""Maximum number of rows of the plan in a printed table."""
_BOARDS: Final = "GPU boards times PUE: no hosts."
WHAT: Final = {"energy": "energy", "cost": "cost", "carbon": "emissions"}
"""The quantity that each objective minimizes."""
_OPTIONAL: Final = ("sm_clock_mhz", "power_limit_w", "max_batch")


def scope(result: "FleetResult") -> str:
    """Return what the power on the page includes."""
    return modelled(result.summary, _BOARDS)


def line(result: "FleetResult") -> str:
    """Return a line with the slots, objective value, bound and gap."""
    summary = result.summary
    slots = summary["slots"]
    return (
        f"{slots} slot{'s' * (slots != 1)} of {summary['slot_s']:g} s, least "
        f"{summary['objective']}: {amount(summary, summary['value'])}, bound "
        f"{amount(summary, summary['bound'])}, gap {100 * summary['gap']:.2g} %"
    )


def blocks(result: "FleetResult") -> list[Block]:
    """Return totals, the plan of the busiest slot, sites, prices and headroom."""
    summary = result.summary
    slot = busiest(summary)
    return [
        *([assumed_line(summary)] if summary["assumed"] else []),
        line(result),
        *_tiles(summary),
        totals(summary),
        *wall(summary),
        f"plan of slot {slot}, the nearest to a budget (replicas x GPUs each; "
        f"{len(summary['plan'])} rows in all: --out FILE.csv):",
        Table(*plan_rows(summary, slot), left=2, most=_SHOWN),
        Table(*site_rows(summary)),
        Table(*price_rows(summary, slot), most=_SHOWN),
        *headroom(summary),
    ]


def wall(summary: Entry) -> list[Block]:
    """Return a line with the energy by part and a table of the pools' servers; nothing
    without nodes."""
    if "nodes" not in summary:
        return []
    parts, whole = summary["wall_energy_j_by_part"], summary["energy_j"]
    shares = ", ".join(f"{x} {percent(y / whole)}" for x, y in parts.items() if y)
    columns = [
        ("pool", "pool"),
        ("node", lambda x: f"{x['nodes']:g} x {x['name']}"),
        ("parked", "parked_power_w", "{:.0f} W"),
        ("host a GPU", "host_power_w_per_gpu", "{:.0f} W"),
        ("x boards", "wall_per_board_power", "{:.3f}"),
        ("grade", "grade"),
    ]
    return [f"energy at the meters: {shares}", Table(columns, summary["nodes"], left=2)]


def _tiles(summary: Entry) -> list[Tiles]:
    """Tiles of the objective value, its bound, and totals."""
    of_goal = partial(amount, summary)
    large = [
        Tile(f"Least {summary['objective']}", summary["value"], of_goal),
        Tile("Lower bound", summary["bound"], of_goal),
        Tile("Gap", summary["gap"], partial(percent, places=3)),
    ]
    small = [
        Tile("Energy", summary["energy_j"], "J"),
        Tile("Cost", summary["cost"], partial(cost, summary)),
        Tile("Carbon", summary["carbon_g"], "g"),
    ]
    return [Tiles(large), Tiles(small, small=True)]


def amount(summary: Entry, value: float | None) -> str:
    """Return a value of the objective with its unit."""
    if summary["objective"] == "energy":
        return si(value, "J")
    if summary["objective"] == "carbon":
        return si(value, "g")
    return cost(summary, value)


def cost(summary: Entry, value: float | None) -> str:
    """Return an amount of money with its currency."""
    if value is None:
        return digits(value)
    return f"{digits(value)} {summary['currency'] or 'currency units'}"


def busiest(summary: Entry) -> int:
    """Return the slot nearest to a power budget; without budgets the one of most
    power."""
    sites = site_power(summary).values()
    close = np.nan_to_num([site.power / site.budget for site in sites]).max(axis=0)
    ranked = close if close.any() else sum(site.power for site in sites)
    return int(np.argmax(ranked))


def totals(summary: Entry) -> str:
    """Return a line with energy, cost, carbon, and the bound that prices alone
    prove."""
    value, alone = summary["value"], summary["bound_by_prices"]
    proven = 100 * (value - alone) / abs(value) if value else 0.0
    return (
        f"energy {si(summary['energy_j'], 'J')}, cost {cost(summary, summary['cost'])},"
        f" carbon {si(summary['carbon_g'], 'g')}; the prices below alone prove a bound "
        f"{proven:.2g} % under; {sum(x['replicas'] for x in summary['starts'])} starts"
    )


def plan_rows(summary: Entry, slot: int) -> tuple[Columns, Entries]:
    """Return columns and rows of a slot's plan."""
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
        ("wall", "wall_power_w", "{:.0f} W")
        if "nodes" in summary
        else ("power", "power_w", "{:.0f} W"),
    ]
    empty = [x for x in _OPTIONAL if all(row[x] is None for row in rows)]
    return [column for column in columns if column[1] not in empty], rows


def _latencies(entry: Entry) -> str:
    """95th percentiles of TTFT and TPOT (ms) as text."""
    return f"{1e3 * entry['ttft_p95_s']:.3g} / {1e3 * entry['tpot_p95_s']:.3g}"


def site_rows(summary: Entry) -> tuple[Columns, list[Any]]:
    """Return columns and rows of mean and peak power of every site, and its tightest
    budget (W)."""
    rows = []
    for name, (power, budget) in site_power(summary).items():
        least = None if np.isnan(budget).all() else np.nanmin(budget)
        rows.append((name, power.mean(), power.max(), least))
    columns = ("site", ("mean power", 1, "W"), ("peak", 2, "W"), ("budget", 3, "W"))
    return columns, rows


def price_rows(summary: Entry, slot: int) -> tuple[Columns, list[Any]]:
    """Return columns and rows of how one more W, GPU or request/s changes a slot's
    objective."""
    rows = [entry for entry in summary["shadow_prices"] if entry["slot"] == slot]
    words = {
        "watt": "one more W at",
        "gpu": "one more GPU of",
        "request": "one more req/s of",
    }
    what = WHAT[summary["objective"]]
    rows = [
        (
            f"{words[x['kind']]} {x.get('site') or x.get('pool') or x.get('model')}",
            change(summary, x),
        )
        for x in rows
    ]
    return (f"in slot {slot}", f"changes {what} by"), rows


def change(summary: Entry, price: Entry) -> str:
    """Return the objective's change per unit of a resource or demand, with its sign."""
    fall = price.get("net", price["value"])
    value = fall if price["kind"] == "request" else -fall
    if abs(value) <= 1e-9 * abs(summary["value"] or 1.0):
        return "0"
    return f"{'+' if value > 0 else '-'}{amount(summary, abs(value))}"


def headroom(summary: Entry) -> Sequence[str]:
    """Return a line on how far demand can grow."""
    room = summary["headroom"]
    if room is None:
        return []
    rate = room["requests_per_s"]
    more = {
        **{f"one more W at {x}": y * rate for x, y in room["per_watt"].items()},
        **{f"one more GPU of {x}": y * rate for x, y in room["per_gpu"].items()},
    }
    first, *others = [f"{x}: {y:.3g}" for x, y in more.items()]
    hosts = " (a GPU more brings its host)" if "nodes" in summary else ""
    return [
        f"headroom: demand can grow to {room['demand_scale']:.3f} times (slot "
        f"{room['slot']} with {rate:.4g} req/s, shares of replicas allowed); "
        f"{', '.join([f'{first} req/s', *others])}{hosts}"
    ]


def charts(result: "FleetResult") -> "dict[str, Chart]":
    """Return charts of each pool's GPUs by model, and of every site's power and
    budget."""
    from .._charts.fleet import fleet_charts

    return fleet_charts(result, line(result))
