"""`plan`: from files and flags to a planned fleet."""

import dataclasses
import os
import time
from typing import Any, Final

import numpy as np
from msgspec import structs

from ..results import Infeasible
from ._answer.refusal import NoPlan, quick_enough, short
from ._answer.result import FleetResult, fleet_summary
from ._problem.of_fleet import NEEDS, problem_of, rows_between, rows_of, series_of
from ._problem.problem import Problem, Rows, joined
from ._reading.series import ALLOWED, Demand, Series, read_demand
from ._reading.spec import Fleet, read_fleet
from ._solve import Solved, Unsolved, solve, useful
from ._whole.horizon import Told

OBJECTIVES: Final = ("energy", "cost", "carbon")


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
    if asked.demand is None:
        raise ValueError("`demand` is missing; name a .csv file.")
    read = read_demand(asked.demand, [x.name for x in asked.models], asked.slot_s)
    series = series_of(asked, read)
    need = NEEDS.get(objective)
    if need and getattr(series, need) is None:
        raise ValueError(
            f"`objective` is {objective}, but not every site has a `{need}`; give "
            f"`{need}` at each of the [[sites]], or for all."
        )
    told = told or (lambda *_: None)
    found, notes = _solved(asked, read, series, objective, max_gap, time_limit, told)
    summary = fleet_summary(asked, found, series, objective)
    summary["seconds"] = time.monotonic() - begun
    return FleetResult(
        summary, found, series, [*notes, *_said(asked, found, objective)]
    )


def _solved(
    fleet: Fleet,
    demand: Demand,
    series: Series,
    objective: str,
    max_gap: float,
    time_limit: float,
    told: Told,
) -> tuple[Solved, list[str]]:
    """The best plan, and remarks: first with the rows that are known, then with clocks
    between those that the product priced. Raises `Infeasible`."""

    def problem_with(rows: Rows) -> Problem:
        problem = problem_of(fleet, demand, series, objective, rows)
        return problem.take(quick_enough(fleet, problem))

    rows, notes, curves = rows_of(fleet, told)
    problem = problem_with(rows)
    # half of the time for clocks between those priced first
    found = solve(problem, max_gap, time_limit / (2 if curves else 1), told)
    known = found
    if isinstance(found, Unsolved) and curves:  # may be for want of a clock
        free = np.full(problem.budget.shape, np.inf)
        free = dataclasses.replace(problem, budget=free)
        known = solve(free, max_gap, time_limit / 4, told)
    solved = isinstance(known, Solved)
    more = rows_between(fleet, known, curves, told) if solved else []
    if more:
        problem = problem_with(joined([rows, *more]))
        better = solve(problem, max_gap, time_limit / 2, told)
        if isinstance(found, Unsolved):
            found = better
        elif isinstance(better, Solved) and better.value < found.value:
            saved = 100 * (1 - better.value / found.value)
            notes = [*notes, f"clocks between those priced first save {saved:.3g} %."]
            found = better
    if isinstance(found, Unsolved):
        raise _refused(problem, found, time_limit)
    return found, notes


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
    sites = tuple(structs.replace(site, **new) for site in fleet.sites)
    return structs.replace(
        fleet, sites=sites, demand=demand or fleet.demand, points=points or fleet.points
    )


def _refused(problem: Problem, found: Unsolved, time_limit: float) -> Infeasible:
    """Why there is no plan."""
    # rows that can be needed once pools are larger
    many = dataclasses.replace(problem, count=np.full(len(problem.count), np.inf))
    rows = dataclasses.replace(useful(many), count=problem.count)
    if refused := short(rows, found.slots):
        return refused
    one = found.slots[0] if len(found.slots) == 1 else None
    where = "every slot" if one is None else f"slot {one}"
    remedy = (
        f"no plan of whole replicas was found in {time_limit:g} s for {where}, though "
        "shares of replicas would do; raise `time_limit`, or add GPUs or power."
    )
    return NoPlan({"limit": "time", "slot": one, "remedy": remedy})


def _said(fleet: Fleet, found: Solved, objective: str) -> list[str]:
    """What a person should know beside the numbers."""
    notes: list[str] = []
    if len(fleet.sites) > 1:
        return notes
    if not found.problem.start.any():
        notes.append(
            "with one site and free starts, energy, cost and carbon have the same plan."
        )
    if objective == "energy" and np.isfinite(found.problem.budget).any():
        notes.append(
            "the power budget of one site has no price under `energy`: it is slack or "
            "cannot be kept; `headroom` says what a watt buys."
        )
    return notes
