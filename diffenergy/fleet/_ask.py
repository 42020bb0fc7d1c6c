"""`plan`: from files and flags to a planned fleet."""

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from ..results import Infeasible
from ._answer.refusal import NoPlan, short, slow
from ._answer.result import FleetResult, fleet_summary
from ._answer.true_values import Series
from ._problem.problem import Problem, Rows, groups, joined
from ._reading.points import read_points
from ._reading.series import ALLOWED, Demand, read_demand, read_series
from ._reading.spec import Fleet, read_fleet
from ._solve import Solved, Unsolved, solve, useful
from ._whole.horizon import Told

OBJECTIVES: Final = ("energy", "cost", "carbon")
_PER_JOULE: Final = {"cost": 1 / 3.6e9, "carbon": 1 / 3.6e6}
"""Objective per joule from a price per MWh, and from g/kWh."""
_NEEDS: Final = {"cost": "price", "carbon": "carbon"}
_FLOOR: Final = 1e-5
"""Least weight of a joule over the largest: where power costs nothing, the plan that
takes least of it."""


def plan(
    fleet: str | os.PathLike[str] | Fleet,
    *,
    objective: str = "energy",
    demand: str | None = None,
    points: str | None = None,
    power_budget: float | str | None = None,
    carbon: float | str | None = None,
    price: float | str | None = None,
    max_gap: float = 1e-3,
    time_limit: float = 20.0,
    told: Told | None = None,
) -> FleetResult:
    """Which model runs on which GPUs, how many replicas, at which clock, in each slot.

    Args:
        fleet: path of a FLEET.toml, or one that was read.
        objective: `energy` (J), `cost` (currency of `price`) or `carbon` (g).
        demand: file of the demand; those below too replace what the fleet says.
        points: file of measured serving points.
        power_budget: W at the meter of every site, or a file of a series.
        carbon: g/kWh, or a file.
        price: per MWh, or a file.
        max_gap: relative distance from the bound that will do.
        time_limit: s of the whole search.
        told: called with what is done, how much of it, and of how much.

    Returns:
        The plan with its bound, prices and headroom; `summary` is the JSON of the
        command.

    Raises:
        ValueError: for input that cannot be, in one sentence.
        Infeasible: no plan keeps the limits; `reason` says which binds, and the least
            change that helps.

    Example:

        >>> import diffenergy as de
        >>> found = de.fleet.plan("docs/examples/fleet/fleet.toml")
        >>> found.summary["status"]
        'optimal'
    """
    begun = time.monotonic()
    _check(objective, max_gap, time_limit)
    asked = fleet if isinstance(fleet, Fleet) else read_fleet(os.fspath(fleet))
    asked = _replaced(asked, demand, points, power_budget, carbon, price)
    names = [x.name for x in asked.models]
    read = read_demand(_named(asked.demand, "demand"), names, asked.slot_s)
    series = _series(asked, read)
    if objective in _NEEDS and getattr(series, _NEEDS[objective]) is None:
        need = _NEEDS[objective]
        raise ValueError(
            f"`objective` is {objective}, but not every site has a `{need}`; give "
            f"`{need}` at each of the [[sites]], or for all."
        )
    told = told or _nobody
    rows, notes, curves = _rows(asked, told)
    problem = _problem(asked, read, series, objective, rows)
    _check_latencies(asked, problem)
    problem = problem.take(np.flatnonzero(_quick(asked, problem.rows)))
    # half of the time for clocks between those priced first
    found = solve(problem, max_gap, time_limit / (2 if curves else 1), told)
    known = found
    if isinstance(found, Unsolved) and curves:  # may be for want of a clock
        free = np.full(problem.budget.shape, np.inf)
        free = dataclasses.replace(problem, budget=free)
        known = solve(free, max_gap, time_limit / 4, told)
    more = _between(asked, known, curves, told) if isinstance(known, Solved) else []
    if more:
        problem = _problem(asked, read, series, objective, joined([rows, *more]))
        problem = problem.take(np.flatnonzero(_quick(asked, problem.rows)))
        better = solve(problem, max_gap, time_limit / 2, told)
        if isinstance(found, Unsolved):
            found = better
        elif isinstance(better, Solved) and better.value < found.value:
            saved = 100 * (1 - better.value / found.value)
            notes = [*notes, f"clocks between those priced first save {saved:.3g} %."]
            found = better
    if isinstance(found, Unsolved):
        raise _refused(problem, found, time_limit)
    summary = fleet_summary(asked, found, series, objective)
    summary["seconds"] = time.monotonic() - begun
    return FleetResult(
        summary, found, series, [*notes, *_said(asked, found, objective)]
    )


def _check(objective: str, max_gap: float, time_limit: float) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(
            f"`objective` is '{objective}'; allowed are {', '.join(OBJECTIVES)}."
        )
    if not 0 <= max_gap < 1:
        raise ValueError(f"`max_gap` is {max_gap:g}; allowed is from 0 to below 1.")
    if not 0 < time_limit <= 86_400:
        raise ValueError(
            f"`time_limit` is {time_limit:g} s; allowed is above 0, up to a day."
        )


def _named(path: str | None, key: str) -> str:
    if path is None:
        raise ValueError(f"`{key}` is missing; name a .csv file.")
    return path


def _replaced(
    fleet: Fleet,
    demand: str | None,
    points: str | None,
    power_budget: float | str | None,
    carbon: float | str | None,
    price: float | str | None,
) -> Fleet:
    """The fleet with what flags say instead."""
    given = {"power_budget_w": power_budget, "carbon": carbon, "price": price}
    new: dict[str, Any] = {x: y for x, y in given.items() if y is not None}
    for key, value in new.items():
        if not isinstance(value, str) and not ALLOWED[key].holds(np.array([value]))[0]:
            name = key.removesuffix("_w")
            raise ValueError(f"`{name}` is {value:g}; allowed is {ALLOWED[key].words}.")
    sites = tuple(dataclasses.replace(site, **new) for site in fleet.sites)
    return dataclasses.replace(
        fleet, sites=sites, demand=demand or fleet.demand, points=points or fleet.points
    )


def _series(fleet: Fleet, demand: Demand) -> Series:
    """Values of every site by slot."""
    slots = len(demand.values)
    read: dict[tuple[str, str], np.ndarray] = {}

    def one(value: float | str | None, key: str) -> Float[np.ndarray, " slot"] | None:
        if not isinstance(value, str):
            return None if value is None else np.full(slots, float(value))
        if (value, key) not in read:
            read[value, key] = read_series(value, key, demand)
        return read[value, key]

    def all_(key: str) -> Float[np.ndarray, "slot site"] | None:
        columns = [one(getattr(site, key), key) for site in fleet.sites]
        known = [column for column in columns if column is not None]
        return np.stack(known, axis=1) if len(known) == len(columns) else None

    budgets = [one(site.power_budget_w, "power_budget_w") for site in fleet.sites]
    none = np.full(slots, np.inf)
    budget = np.stack([none if x is None else x for x in budgets], axis=1)
    return Series(demand.values, demand.times, budget, all_("carbon"), all_("price"))


def _rows(fleet: Fleet, told: Told) -> tuple[Rows, list[str], list[Any]]:
    """All rows; remarks; where the product prices them the same over the clock."""
    if fleet.points is None:
        from ._priced.rows import priced_rows

        return priced_rows(fleet, told)
    rows, notes = read_points(
        fleet.points,
        [(x.name, *([x.model] if x.model else [])) for x in fleet.models],
        [(x.gpu,) for x in fleet.pools],
    )
    return rows, notes, []


def _between(
    fleet: Fleet, found: Solved, curves: Sequence[Any], told: Told
) -> list[Rows]:
    """Rows at clocks between those that were priced, of what the plan uses."""
    problem, rows = found.problem, found.problem.rows
    slot, used = np.nonzero(found.counts)
    each = rows.rate * found.counts
    carried = np.stack([np.bincount(rows.model, x, len(fleet.models)) for x in each])
    model = rows.model[used]
    # what a replica has to carry of what it could
    need = rows.rate[used] * problem.demand[slot, model] / carried[slot, model]
    parts: list[Rows] = []
    for done, curve in enumerate(curves):
        told("moving clocks", done, len(curves))
        mine = (model == curve.model) & (rows.gpus[used] == curve.tp)
        mine &= np.isin(rows.pool[used], curve.pools)
        if mine.any():
            asked = fleet.models[curve.model]
            limits = asked.slo_ttft_p95_s, asked.slo_tpot_p95_s
            parts += curve.between(np.unique(need[mine]), *limits)
    return parts


def _problem(
    fleet: Fleet, demand: Demand, series: Series, objective: str, rows: Rows
) -> Problem:
    """What is planned, with all rows."""
    site_names = [site.name for site in fleet.sites]
    problem = Problem(
        rows,
        demand.values * (1 + fleet.headroom),
        np.array([pool.count for pool in fleet.pools], float),
        np.array([_parked(pool.name, pool.gpu, pool.parked_w) for pool in fleet.pools]),
        np.array([site_names.index(pool.site) for pool in fleet.pools]),
        np.array([site.pue for site in fleet.sites]),
        series.budget,
        _weights(series, objective),
        _starts(fleet, rows),
        fleet.slot_s,
        tuple(model.name for model in fleet.models),
        tuple(pool.name for pool in fleet.pools),
        tuple(site_names),
    )
    low = np.flatnonzero(problem.extra < 0)
    if len(low):
        pool, power = int(rows.pool[low[0]]), rows.power[low[0]]
        raise ValueError(
            f"{fleet.points}, row {rows.source[low[0]]}: `power_w` is {power:g}, less "
            f"than its GPUs of pool `{problem.pools[pool]}` draw parked (parked_w "
            f"{problem.parked[pool]:g} each); correct one of them."
        )
    return problem


def _weights(series: Series, objective: str) -> Float[np.ndarray, "slot site"]:
    """Objective per joule at the meter that decides: never below 0, or power would be
    burnt for money."""
    if objective == "energy":
        return np.ones(series.budget.shape)
    values = getattr(series, _NEEDS[objective])
    weight = np.maximum(values, 0.0) * _PER_JOULE[objective]
    top = float(weight.max(initial=0.0)) or 1.0
    return np.maximum(weight, _FLOOR * top)


def _parked(name: str, gpu: str, parked: float | None) -> float:
    """W of a GPU that serves nobody: as given, else idle at its least clock."""
    if parked is not None:
        return parked
    import jax.numpy as jnp

    from ..hardware import idle_power, read_gpu

    try:
        card = read_gpu(gpu)
    except ValueError:
        raise ValueError(
            f"pool `{name}` has no `parked_w`, and its `gpu` '{gpu}' is no GPU that is "
            "known; give parked_w (0: switched off)."
        ) from None
    clock = jnp.asarray(card.values["sm_clock_min"])
    return float(idle_power(card.spec, clock))


def _starts(fleet: Fleet, rows: Rows) -> Float[np.ndarray, " row"]:
    """J of boards to load a replica of every row: `start_j`, else `start_s` at the
    least power of a row of the same (model, pool, n)."""
    found = np.zeros(len(rows))
    group = groups(rows)
    power = np.full(group.max(initial=-1) + 1, np.inf)
    np.minimum.at(power, group, rows.power)
    for number, model in enumerate(fleet.models):
        mine = rows.model == number
        if model.start_j is not None:
            found[mine] = model.start_j
        elif model.start_s is not None:
            found[mine] = model.start_s * power[group[mine]]
    return found


def _objectives(fleet: Fleet) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([model.slo_ttft_p95_s for model in fleet.models]),
        np.array([model.slo_tpot_p95_s for model in fleet.models]),
    )


def _quick(fleet: Fleet, rows: Rows) -> np.ndarray:
    """Rows within the latencies of their model."""
    ttft, tpot = _objectives(fleet)
    return (rows.ttft <= ttft[rows.model]) & (rows.tpot <= tpot[rows.model])


def _check_latencies(fleet: Fleet, problem: Problem) -> None:
    """Raises `NoPlan` for a model that is asked for and cannot be served in time."""
    asked = np.any(problem.demand > 0, axis=0)
    good = _quick(fleet, problem.rows)
    refused = slow(problem.rows, good, asked, problem.models, *_objectives(fleet))
    if refused is not None:
        raise refused


def _refused(problem: Problem, found: Unsolved, time_limit: float) -> Infeasible:
    """Why there is no plan."""
    refused = short(_all_sizes(problem), found.slots)
    if refused is not None:
        return refused
    one = found.slots[0] if len(found.slots) == 1 else None
    where = "every slot" if one is None else f"slot {one}"
    remedy = (
        f"no plan of whole replicas was found in {time_limit:g} s for {where}, though "
        "shares of replicas would do; raise `time_limit`, or add GPUs or power."
    )
    return NoPlan({"limit": "time", "slot": one, "remedy": remedy})


def _all_sizes(problem: Problem) -> Problem:
    """Rows that can be needed once pools are larger."""
    many = dataclasses.replace(problem, count=np.full(len(problem.count), np.inf))
    kept = useful(many)
    return dataclasses.replace(kept, count=problem.count)


def _said(fleet: Fleet, found: Any, objective: str) -> list[str]:
    """What a person should know beside the numbers."""
    notes = []
    if len(fleet.sites) == 1 and not found.problem.start.any():
        notes.append(
            "with one site and free starts, energy, cost and carbon have the same plan."
        )
    if (
        len(fleet.sites) == 1
        and objective == "energy"
        and np.isfinite(found.problem.budget).any()
    ):
        notes.append(
            "the power budget of one site has no price under `energy`: it is slack or "
            "cannot be kept; `headroom` says what a watt buys."
        )
    return notes


def _nobody(what: str, done: int, total: int) -> None:
    """Tells nobody."""
