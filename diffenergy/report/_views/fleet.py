"""How a planned fleet reads and looks."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from .._blocks import Block, Columns, Table, Tile, Tiles
from .._charts import style
from .._format import Entries, Entry, digits, percent, si
from .._tables.lines import assumed_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...fleet import FleetResult

_SHOWN: Final = 24
"""Rows of the plan in a table for people."""
_POOLS: Final = 6
"""Pools that are drawn, those with most GPUs."""
_MODELS: Final = 7
"""Models with a colour of their own, those with most GPUs; the rest have the next."""
_SITES: Final = (*style.PALETTE[6:], *style.PALETTE[5:1:-1])
"""Colours of sites, other than those of the first models."""
_HEIGHT: Final = 1.35
"""Inches of a panel."""
SCOPE: Final = "GPU boards times PUE: no hosts. Modelled: nothing was run on a GPU."
WHAT: Final = {"energy": "energy", "cost": "cost", "carbon": "emissions"}
"""What each objective is the least of."""
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


def blocks(result: "FleetResult") -> list[Block]:
    """Totals, the plan of the hardest slot, sites, prices and headroom."""
    summary = result.summary
    slot = busiest(summary)
    return [
        *([assumed_line(summary)] if summary["assumed"] else []),
        line(result),
        *_tiles(summary),
        totals(summary),
        f"plan of slot {slot}, the nearest to a budget (replicas x GPUs each; "
        f"{len(summary['plan'])} rows in all: --out FILE.csv):",
        Table(*plan_rows(summary, slot), left=2, most=_SHOWN),
        Table(*site_rows(summary)),
        Table(*price_rows(summary, slot), most=_SHOWN),
        *headroom(summary),
    ]


def _tiles(summary: Entry) -> list[Tiles]:
    """The value with its bound, and the other totals."""
    of_goal = partial(amount, summary)
    large = [
        Tile(f"Least {summary['objective']}", summary["value"], of_goal),
        Tile("No plan is below", summary["bound"], of_goal),
        Tile("Gap", summary["gap"], partial(percent, places=3)),
    ]
    small = [
        Tile("Energy", summary["energy_j"], "J"),
        Tile("Cost", summary["cost"], partial(cost, summary)),
        Tile("Carbon", summary["carbon_g"], "g"),
    ]
    return [Tiles(large), Tiles(small, small=True)]


class Pool(NamedTuple):
    """A pool as pictures show it: `models` are colour, name, and GPUs of each slot."""

    number: int
    name: str
    gpus: float
    models: list[tuple[int, str, Float[np.ndarray, " slot"]]]


def drawn(result: "FleetResult") -> list[Pool]:
    """Who runs where: pools with most GPUs, in them the models with most GPUs of all
    and the sum of the others."""
    summary, problem = result.summary, result.solved.problem
    used = np.zeros((len(problem.pools), len(problem.models), summary["slots"]))
    names = problem.pools, problem.models
    at, of = ({x: i for i, x in enumerate(own)} for own in names)
    for entry in summary["plan"]:
        place = at[entry["pool"]], of[entry["model"]], entry["slot"]
        used[place] += entry["replicas"] * entry["gpus_per_replica"]
    each = used.sum(axis=(0, 2))
    first = np.argsort(-each, kind="stable")[:_MODELS]
    models = np.sort(first[each[first] > 0])
    found = []
    for pool in sorted(np.argsort(-problem.count, kind="stable")[:_POOLS].tolist()):
        own = [(i, problem.models[x], used[pool, x]) for i, x in enumerate(models)]
        rest = np.delete(used[pool], models, axis=0).sum(axis=0)
        if rest.any():
            own.append((_MODELS, "others", rest))
        found.append(Pool(pool, problem.pools[pool], float(problem.count[pool]), own))
    return found


class Site(NamedTuple):
    """W at the meter of a site in each slot, and its budgets; NaN: none."""

    power: Float[np.ndarray, " slot"]
    budget: Float[np.ndarray, " slot"]


def site_power(summary: Entry) -> dict[str, Site]:
    """Power of every site."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for entry in summary["site_power"]:
        power, budget = found.setdefault(entry["site"], ([], []))
        power.append(entry["power_w"])
        budget.append(np.nan if entry["budget_w"] is None else entry["budget_w"])
    return {name: Site(*map(np.array, both)) for name, both in found.items()}


def amount(summary: Entry, value: float | None) -> str:
    """A value of the objective with its unit."""
    if summary["objective"] == "energy":
        return si(value, "J")
    if summary["objective"] == "carbon":
        return si(value, "g")
    return cost(summary, value)


def cost(summary: Entry, value: float | None) -> str:
    """Money with its currency."""
    if value is None:
        return digits(value)
    return f"{digits(value)} {summary['currency'] or 'currency units'}"


def busiest(summary: Entry) -> int:
    """The slot nearest to a budget; without budgets that of most power."""
    sites = site_power(summary).values()
    close = np.nan_to_num([site.power / site.budget for site in sites]).max(axis=0)
    ranked = close if close.any() else sum(site.power for site in sites)
    return int(np.argmax(ranked))


def totals(summary: Entry) -> str:
    """Joules, cost and carbon, and what prices alone prove."""
    value, alone = summary["value"], summary["bound_by_prices"]
    proven = 100 * (value - alone) / abs(value) if value else 0.0
    return (
        f"energy {si(summary['energy_j'], 'J')}, cost {cost(summary, summary['cost'])},"
        f" carbon {si(summary['carbon_g'], 'g')}; the prices below alone prove a bound "
        f"{proven:.2g} % under; {sum(x['replicas'] for x in summary['starts'])} starts"
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
    rows = []
    for name, (power, budget) in site_power(summary).items():
        least = None if np.isnan(budget).all() else np.nanmin(budget)
        rows.append((name, power.mean(), power.max(), least))
    columns = ("site", ("mean power", 1, "W"), ("most", 2, "W"), ("budget", 3, "W"))
    return columns, rows


def price_rows(summary: Entry, slot: int) -> tuple[Columns, list[Any]]:
    """By how much one more W, GPU or request/s changes the objective of a slot."""
    rows = [entry for entry in summary["shadow_prices"] if entry["slot"] == slot]
    words = {
        "watt": "one more W at",
        "gpu": "one more GPU of",
        "request": "one more req/s of",
    }
    what = WHAT[summary["objective"]]
    told = [
        (
            f"{words[x['kind']]} {x.get('site') or x.get('pool') or x.get('model')}",
            change(summary, x),
        )
        for x in rows
    ]
    return (f"in slot {slot}", f"changes {what} by"), told


def change(summary: Entry, price: Entry) -> str:
    """What one more of something adds to the objective, with its sign."""
    fall = price.get("net", price["value"])
    value = fall if price["kind"] == "request" else -fall
    if abs(value) <= 1e-9 * abs(summary["value"] or 1.0):
        return "0"
    return f"{'+' if value > 0 else '-'}{amount(summary, abs(value))}"


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
    summary, pools = result.summary, drawn(result)
    figure = style.canvas(1.3 + _HEIGHT * (len(pools) + 1.3))
    ratios = [1.0] * len(pools) + [1.4]
    axes = figure.subplots(
        len(pools) + 1, 1, sharex=True, squeeze=False, height_ratios=ratios
    )[:, 0]
    for panel, pool in zip(axes, pools, strict=False):
        _draw_pool(panel, pool)
    _draw_power(axes[-1], summary, result.solved.problem.sites)
    axes[-1].set_xlabel(f"slot of {summary['slot_s']:g} s")
    style.few_ticks(axes[-1].xaxis, 9, whole=True)
    axes[-1].set_xlim(0, summary["slots"])
    handles, labels = axes[0].get_legend_handles_labels()
    if labels:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, frameon=False
        )
    style.headline(figure, line(result))
    return figure


def _draw_pool(axes: "Axes", pool: Pool) -> None:
    """Models one on the other; the pool's GPUs as a line."""
    floor = 0.0
    for colour, name, used in pool.models:
        top, edges = floor + np.append(used, used[-1]), np.arange(len(used) + 1)
        axes.fill_between(
            edges, floor, top, step="post", color=style.PALETTE[colour], label=name,
            linewidth=0,
        )  # fmt: skip
        floor = top
    axes.axhline(pool.gpus, color=style.BLACK, linewidth=0.9, linestyle="--")
    axes.set_ylim(0, 1.08 * max(pool.gpus, 1.0))
    axes.set_title(f"GPUs of {pool.name}")
    style.few_ticks(axes.yaxis, 4, whole=True)


def _draw_power(axes: "Axes", summary: Entry, sites: tuple[str, ...]) -> None:
    """W at the meter of every site, and its budget dashed."""
    found = site_power(summary)
    for number, name in enumerate(sites):
        look = {"color": _SITES[number % len(_SITES)], "baseline": None}
        power, budget = found[name]
        axes.stairs(power, label=name, linewidth=1.8, **look)
        axes.stairs(budget, linestyle="--", linewidth=1.2, **look)
    axes.set_ylim(0, 1.1 * np.nanmax(np.concatenate([*map(np.ravel, found.values())])))
    axes.set_title("power at the meter, budget dashed")
    style.si_ticks(axes.yaxis, "W")
    style.legend_above(axes)
