"""From a fleet file to the problem that is solved: series, rows, costs of starts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jaxtyping import Float

from ..measurements import read_sheet
from ..prices import Price, one_currency, read_header, read_price
from ._horizon import Progress
from ._hosts import Hosts
from ._problem import Problem, Rows, groups
from ._solve import Solved
from ._spec import Fleet, is_file
from ._tables import Demand, Series, read_points, read_series

if TYPE_CHECKING:
    from ._priced import Priced

NEEDS: Final = {"cost": "price", "carbon": "carbon"}
"""What each objective needs to know of every site."""
_PER_JOULE: Final = {"cost": 1 / 3.6e9, "carbon": 1 / 3.6e6}
"""Objective per joule from a price per MWh, and from g/kWh."""
_FLOOR: Final = 1e-5
"""Least weight of a joule over the largest: where power costs nothing, the plan that
takes least of it."""


def series_of(fleet: Fleet, demand: Demand) -> Series:
    """Values of every site by slot."""
    slots = len(demand.values)
    read: dict[tuple[str, str], tuple[np.ndarray, str]] = {}

    def file(name: str, key: str) -> tuple[Float[np.ndarray, " slot"], str]:
        if (name, key) not in read:
            read[name, key] = read_series(name, key, demand)
        return read[name, key]

    def one(value: float | str | None, key: str) -> Float[np.ndarray, " slot"] | None:
        if isinstance(value, str):
            return file(value, key)[0]
        return None if value is None else np.full(slots, float(value))

    def price(value: float | str | None) -> tuple[np.ndarray, Price] | None:
        if value is None:
            return None
        if not is_file(value):
            parsed = read_price("price", value)
            return np.full(slots, parsed.value), parsed
        values, column = file(str(value), "price")
        parsed = read_header(str(value), column)
        return values * parsed.value, parsed

    def all_(columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
        named = [column for column in columns if column is not None]
        return np.stack(named, axis=1) if len(named) == len(columns) else None

    sites = fleet.sites
    none = np.full(slots, np.inf)
    budgets = [one(site.power_budget_w, "power_budget_w") for site in sites]
    prices = [price(site.price) for site in sites]
    site_prices = {site.name: x[1] for site, x in zip(sites, prices, strict=True) if x}
    assumed: dict[str, str] = {}
    if not all(x.has_unit for x in site_prices.values()):
        assumed["price"] = "per MWh"
    return Series(
        demand.values,
        demand.times,
        np.stack([none if x is None else x for x in budgets], axis=1),
        all_([one(site.carbon, "carbon") for site in sites]),
        all_([None if x is None else x[0] for x in prices]),
        one_currency({name: x.currency for name, x in site_prices.items()}),
        assumed,
    )


def rows_of(
    fleet: Fleet, hosts: Hosts, progress: Progress, late: Callable[[], bool]
) -> tuple[Rows, list[str], "Priced | None"]:
    """All rows, and remarks; where the product prices them (until it is `late`) what
    was priced."""
    if fleet.points is None:
        from ._priced import price

        priced = price(fleet, progress, late)
        return priced.rows, priced.notes, priced
    rows, notes = read_points(
        fleet.points,
        [(x.name, *([x.model] if x.model else [])) for x in fleet.models],
        [(x.gpu,) for x in fleet.pools],
        hosts,
    )
    return rows, notes, None


def rows_between(
    fleet: Fleet,
    solved: Solved,
    curves: Sequence[Any],
    progress: Progress,
) -> list[Rows]:
    """Rows at clocks between the first ones, of what the plan uses."""
    problem, rows = solved.problem, solved.problem.rows
    slot, used = np.nonzero(solved.counts)
    each = rows.rate * solved.counts
    carried = np.stack([np.bincount(rows.model, x, len(fleet.models)) for x in each])
    model = rows.model[used]
    # what a replica has to carry of what it could
    need = rows.rate[used] * problem.demand[slot, model] / carried[slot, model]
    parts: list[Rows] = []
    for done, curve in enumerate(curves):
        progress("moving clocks", done, len(curves))
        mine = (model == curve.model) & (rows.gpus[used] == curve.tp)
        mine &= np.isin(rows.pool[used], curve.pools)
        if mine.any():
            spec = fleet.models[curve.model]
            limits = spec.slo_ttft_p95_s, spec.slo_tpot_p95_s
            parts += curve.between(np.unique(need[mine]), *limits)
    return parts


def problem_of(
    fleet: Fleet,
    demand: Demand,
    series: Series,
    objective: str,
    rows: Rows,
    hosts: Hosts,
) -> Problem:
    """The problem with all rows."""
    site_names = [site.name for site in fleet.sites]
    problem = Problem(
        rows,
        demand.values * (1 + fleet.headroom),
        np.array([pool.count for pool in fleet.pools], float),
        hosts.parked,
        np.array([site_names.index(pool.site) for pool in fleet.pools]),
        np.array([site.pue for site in fleet.sites]),
        series.budget,
        _weights(series, objective),
        hosts.slope[rows.pool] * _starts(fleet, rows),
        fleet.slot_s,
        tuple(model.name for model in fleet.models),
        tuple(pool.name for pool in fleet.pools),
        tuple(site_names),
        hosts.slope,
        hosts.each,
    )
    low = np.flatnonzero(problem.extra < 0)
    if len(low):
        pool, power = int(rows.pool[low[0]]), rows.power[low[0]]
        place = read_sheet(str(fleet.points)).place(int(rows.source[low[0]]))
        raise ValueError(
            f"{place}: `power_w` is {power:g}, less "
            f"than its GPUs of pool `{problem.pools[pool]}` draw parked (parked_w "
            f"{hosts.boards[pool]:g} each); correct one of them."
        )
    return problem


def _weights(series: Series, objective: str) -> Float[np.ndarray, "slot site"]:
    """Objective per joule at the meter that decides: never below 0, or power would be
    burnt for money."""
    if objective == "energy":
        return np.ones(series.budget.shape)
    values = getattr(series, NEEDS[objective])
    weight = np.maximum(values, 0.0) * _PER_JOULE[objective]
    top = float(weight.max(initial=0.0)) or 1.0
    return np.maximum(weight, _FLOOR * top)


def _starts(fleet: Fleet, rows: Rows) -> Float[np.ndarray, " row"]:
    """J of boards to load a replica of every row: `start_j`, else `start_s` at the
    least power of a row of the same (model, pool, n)."""
    joules = np.zeros(len(rows))
    group = groups(rows)
    power = np.full(group.max(initial=-1) + 1, np.inf)
    np.minimum.at(power, group, rows.power)
    for number, model in enumerate(fleet.models):
        mine = rows.model == number
        if model.start_j is not None:
            joules[mine] = model.start_j
        elif model.start_s is not None:
            joules[mine] = model.start_s * power[group[mine]]
    return joules
