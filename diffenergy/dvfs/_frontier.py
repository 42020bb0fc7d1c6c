"""`frontier`: the least energy at every slowdown, at once."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..results import Infeasible
from ..search import best_within
from . import _free as free
from . import _groups as groups
from ._hulls import Line
from ._local import leanest
from ._plan import Objective, Rules
from ._positions import may_pay
from ._problem import TIE, Problem, Total, default_total
from ._solve import ANY, single_settings, solve

STEP: Final = 0.1
"""Steps of slowdown (%)."""


class Frontier(NamedTuple):
    """Leanest plan found at every slowdown limit; NaN where nothing keeps the limit."""

    slowdown: Float[np.ndarray, " limit"]  # %, the limit
    time: Float[np.ndarray, " limit"]  # s
    energy: Float[np.ndarray, " limit"]  # J
    bound: Float[np.ndarray, " limit"]  # J; no plan within the limit takes less

    def points(self, default: Total) -> Float[np.ndarray, "point 2"]:
        """(time change, energy change) of the different plans, %, by rising time."""
        reached = np.isfinite(self.time)
        pairs = np.stack(
            [
                100 * (self.time[reached] / default.time - 1),
                100 * (self.energy[reached] / default.energy - 1),
            ],
            axis=-1,
        )
        return np.unique(pairs, axis=0)


def frontier(
    problem: Problem,
    slowdowns: Float[np.ndarray, " limit"] | None = None,
    rules: Rules = ANY,
) -> Frontier:
    """Least energy within every slowdown limit, and its bound.

    Plans are those of the hull and of one pass of dynamic programming.

    Args:
        problem: what every kernel costs at every setting, s and J.
        slowdowns: limits, % of the default time [every 0.1 % from the least reachable
            to the leanest plan].
        rules: who chooses settings, and what changing them costs.
    """
    if rules.granularity == "phase":
        phases = groups.by_stage(problem).problem
        settable = bool(phases.usable.any(1).all())
        finer = "kernel" if settable else "iteration"
        rules = dataclasses.replace(rules, granularity=finer)
        return frontier(phases if settable else problem, slowdowns, rules)
    plans, line = _plans(problem, rules)
    default = default_total(problem)
    if slowdowns is None:
        slowdowns = _steps(plans, default)
    if rules.aggregation == "local" and rules.granularity == "kernel":
        return _local(problem, slowdowns, rules)
    # Default clocks are a plan, too: what the limiter makes of them no setting has.
    plans = Total(
        np.append(plans.time, default.time), np.append(plans.energy, default.energy)
    )
    most = default.time * (1 + slowdowns / 100)
    best = best_within(plans.time, plans.energy, most * (1 + TIE))
    reached = best >= 0
    time = np.where(reached, plans.time[best], np.nan)
    energy = np.where(reached, plans.energy[best], np.nan)
    bound = energy
    if line is not None:
        bound = np.where(reached, np.minimum(line.at(most * (1 + TIE)), energy), np.nan)
    return Frontier(slowdowns, time, energy, bound)


def _plans(problem: Problem, rules: Rules) -> tuple[Total, Line | None]:
    """Totals of many plans, and the line below all; `None`: they are all there are."""
    if rules.granularity == "iteration" or rules.changes.forbidden:
        return single_settings(problem).total, None
    if not rules.free:
        single = single_settings(problem).total
        if not may_pay(problem, rules, single):
            return single, None
        from ._switched import switched_front

        return switched_front(problem, rules)
    line = free.bound(problem)
    parts = groups.split(problem).problem if rules.per_launch else problem
    return free.front(parts).total, line


def _steps(plans: Total, default: Total) -> Float[np.ndarray, " limit"]:
    time = np.append(plans.time, default.time)
    leanest = time[np.argmin(np.append(plans.energy, default.energy))]
    first, last = 100 * (np.array([time.min(), leanest]) / default.time - 1)
    return STEP * np.arange(np.ceil(first / STEP - TIE), np.ceil(last / STEP) + 1)


def _local(
    problem: Problem, slowdowns: Float[np.ndarray, " limit"], rules: Rules
) -> Frontier:
    """Every kernel keeps the limit; where that is not all, plans one by one."""
    if not rules.free:
        return _one_by_one(problem, slowdowns, rules)
    time, energy, bound = leanest(problem, slowdowns)
    left = np.flatnonzero(np.isnan(time))
    rest = _one_by_one(problem, slowdowns[left], rules)
    time[left], energy[left], bound[left] = rest.time, rest.energy, rest.bound
    # From a limit of 0 % on default clocks are always to be had.
    default = default_total(problem)
    alone = (slowdowns >= 0) & (energy > default.energy)
    time = np.where(alone, default.time, time)
    energy = np.where(alone, default.energy, energy)
    return Frontier(slowdowns, time, energy, np.minimum(bound, energy))


def _one_by_one(
    problem: Problem, slowdowns: Float[np.ndarray, " limit"], rules: Rules
) -> Frontier:
    rows = []
    for slowdown in slowdowns:
        try:
            plan = solve(
                problem, Objective(max_slowdown=float(slowdown)), rules, exact=False
            )
            rows.append((plan.time, plan.energy, plan.bound))
        except Infeasible:
            rows.append((np.nan, np.nan, np.nan))
    return Frontier(slowdowns, *np.array(rows).reshape(-1, 3).T)
