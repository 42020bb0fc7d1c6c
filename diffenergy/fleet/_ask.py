"""`plan`: from files and flags to a planned fleet."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from msgspec import structs

from ..prices import read_price
from ..requests import accepts
from ..results import Infeasible
from ._build_problem import NEEDS, problem_of, rows_between, rows_of, series_of
from ._horizon import Progress
from ._hosts import Hosts, hosts_of
from ._problem import Problem, Rows, joined
from ._refusal import NoPlan, quick_enough, short
from ._request import FleetRequest
from ._result import FleetResult, fleet_summary
from ._solve import Solved, Unsolved, solve, useful
from ._spec import Fleet, is_file, read_fleet
from ._tables import ALLOWED, Demand, Series, read_demand
from ._work import Work

_PRICING: Final = 0.5
"""Share of the wall time that pricing may take."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """Relative `max_gap` that will do, `work` of the search (s on an idle core), and
    `wall` time of all (s)."""

    max_gap: float
    work: float
    wall: float

    @property
    def pricing(self) -> float:
        """s of wall time for pricing rows."""
        return _PRICING * self.wall

    def begin(self) -> Work:
        """The work, whose wall time runs from now on."""
        return Work(self.work, self.wall)

    def pricing_ends(self) -> Callable[[], bool]:
        """Says whether the time for pricing, from now on, is over."""
        work = Work(math.inf, self.pricing)
        return lambda: not work.left


@accepts(FleetRequest)
def plan(request: FleetRequest) -> FleetResult:
    """Which model runs on which GPUs, how many replicas, at which clock, in each slot.

    Returns:
        The plan with its bound, prices and headroom; `summary` is the JSON of the
        command.

    Raises:
        ValueError: for input that cannot be, in one sentence.
        Infeasible: no plan keeps the limits; `reason` says which binds, and the least
            change that helps.

    Example:

        >>> import diffenergy as de
        >>> result = de.fleet.plan("docs/examples/fleet/fleet.toml")
        >>> result.summary["status"]
        'optimal'
    """
    begun = time.monotonic()
    budget = Effort(request.max_gap, request.effort, request.time_limit)
    objective, progress = request.objective, request.progress or (lambda *_: None)
    fleet = request.fleet
    spec = _replaced(
        fleet if isinstance(fleet, Fleet) else read_fleet(str(fleet)), request
    )
    if spec.demand is None:
        raise ValueError("`demand` is missing; name a .csv file.")
    read = read_demand(spec.demand, [x.name for x in spec.models], spec.slot_s)
    series = series_of(spec, read)
    need = NEEDS.get(objective)
    if need and getattr(series, need) is None:
        raise ValueError(
            f"`objective` is {objective}, but not every site has a `{need}`; give "
            f"`{need}` at each of the [[sites]], or for all."
        )
    hosts = hosts_of(spec)
    solved, notes, took = _solved(
        spec, hosts, read, series, objective, budget, progress
    )
    summary = fleet_summary(spec, hosts, solved, series, objective) | took
    summary["seconds"] = time.monotonic() - begun
    return FleetResult(
        summary, solved, series, [*notes, *_fleet_notes(spec, solved, objective)]
    )


def _solved(
    fleet: Fleet,
    hosts: Hosts,
    demand: Demand,
    series: Series,
    objective: str,
    effort: Effort,
    progress: Progress,
) -> tuple[Solved, list[str], dict[str, Any]]:
    """The best plan, remarks, and what pricing and search took: first with the rows
    that are known, then with clocks between those that the product priced. Raises
    `Infeasible`."""

    def problem_with(rows: Rows) -> Problem:
        problem = problem_of(fleet, demand, series, objective, rows, hosts)
        return problem.take(quick_enough(fleet, problem))

    whole, late = effort.begin(), effort.pricing_ends()
    rows, notes, priced = rows_of(fleet, hosts, progress, late)
    curves, left_out = (priced.curves, priced.left_out) if priced else ([], [])
    _check_priced(fleet, demand, rows, left_out)
    problem = problem_with(rows)
    # half of the work for clocks between those priced first
    part = whole.part(whole.limit / (2 if curves else 1))
    solved = solve(problem, effort.max_gap, part, progress)
    first = solved
    if isinstance(solved, Unsolved) and curves:  # may be for want of a clock
        free = np.full(problem.budget.shape, np.inf)
        free = dataclasses.replace(problem, budget=free)
        first = solve(free, effort.max_gap, whole.part(whole.limit / 4), progress)
    more = []
    if isinstance(first, Solved) and not first.interrupted:
        more = rows_between(fleet, first, curves, progress)
    if more:
        problem = problem_with(joined([rows, *more]))
        better = solve(problem, effort.max_gap, whole.part(whole.limit / 2), progress)
        if isinstance(solved, Unsolved):
            solved = better
        elif isinstance(better, Solved) and better.value < solved.value:
            saved = 100 * (1 - better.value / solved.value)
            notes = [*notes, f"clocks between those priced first save {saved:.3g} %."]
            solved = better
    if isinstance(solved, Unsolved):
        raise _refused(problem, solved, effort, left_out)
    took = {
        "pricing": priced and {"plans": len(curves), "left_out": left_out},
        "search": {
            "work_s": whole.spent,
            "effort_s": effort.work,
            "ended_by_time": solved.late,
            "interrupted": solved.interrupted,
        },
    }
    return solved, [*notes, *_cut(left_out, solved, effort)], took


def _check_priced(
    fleet: Fleet, demand: Demand, rows: Rows, left_out: Sequence[str]
) -> None:
    """Raises `NoPlan` for a model that is asked for and was not priced in time."""
    for number, model in enumerate(fleet.models):
        active = demand.values[:, number].any()
        if left_out and active and not (rows.model == number).any():
            remedy = (
                f"pricing ended before model `{model.name}` had a serving point "
                f"({len(left_out)} plans were left out, the first of them "
                f"{left_out[0]}); raise `time_limit`."
            )
            raise NoPlan({"limit": "time", "slot": None, "remedy": remedy})


def _cut(left_out: Sequence[str], solved: Solved, effort: Effort) -> list[str]:
    """Notes on what the limit of wall time left out."""
    notes = []
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        notes.append(
            f"pricing ended after {effort.pricing:g} s without "
            f"{', '.join(left_out[:3])}{more}: the plan is the best without them; "
            "raise `time_limit` for all."
        )
    if solved.late:
        notes.append(
            f"the search was ended by `time_limit` ({effort.wall:g} s) before its "
            "`effort` was done: another run may answer otherwise."
        )
    return notes


def _replaced(fleet: Fleet, request: FleetRequest) -> Fleet:
    """The fleet with what a request says instead."""
    replaced = {
        "power_budget_w": request.power_budget,
        "carbon": request.carbon,
        "price": request.price,
    }
    new: dict[str, Any] = {x: y for x, y in replaced.items() if y is not None}
    for key, value in new.items():
        name = key.removesuffix("_w")
        if key == "price" and not is_file(value):
            read_price(name, value)
        if not isinstance(value, str) and not ALLOWED[key].holds(np.array([value]))[0]:
            raise ValueError(f"`{name}` is {value:g}; allowed is {ALLOWED[key].words}.")
    sites = tuple(structs.replace(site, **new) for site in fleet.sites)
    demand, points = request.demand or fleet.demand, request.points or fleet.points
    return structs.replace(fleet, sites=sites, demand=demand, points=points)


def _refused(
    problem: Problem, unsolved: Unsolved, effort: Effort, left_out: Sequence[str]
) -> Infeasible:
    """Why there is no plan."""
    # rows that can be needed once pools are larger
    many = dataclasses.replace(problem, count=np.full(len(problem.count), np.inf))
    rows = dataclasses.replace(useful(many), count=problem.count)
    if refused := short(rows, unsolved.slots):
        if not left_out:
            return refused
        refused.reason["remedy"] += (
            f" ({len(left_out)} plans were not priced in time, such as {left_out[0]}; "
            "raise `time_limit` first.)"
        )
        return NoPlan(refused.reason, **refused.least)
    one = unsolved.slots[0] if len(unsolved.slots) == 1 else None
    where = "every slot" if one is None else f"slot {one}"
    remedy = (
        f"no plan of whole replicas was found for {where} with an `effort` of "
        f"{effort.work:g} s within {effort.wall:g} s, though shares of replicas would "
        "do; raise `effort` or `time_limit`, or add GPUs or power."
    )
    return NoPlan({"limit": "time", "slot": one, "remedy": remedy})


def _fleet_notes(fleet: Fleet, solved: Solved, objective: str) -> list[str]:
    """Notes on starts and budgets that the numbers do not show."""
    notes: list[str] = []
    if len(fleet.sites) > 1:
        return notes
    if not solved.problem.start.any():
        notes.append(
            "with one site and free starts, energy, cost and carbon have the same plan."
        )
    if objective == "energy" and np.isfinite(solved.problem.budget).any():
        notes.append(
            "the power budget of one site has no price under `energy`: it is slack or "
            "cannot be kept; `headroom` says what a watt buys."
        )
    return notes
