"""Frontiers and baselines against single plans."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Rules, frontier, solve
from diffenergy.dvfs._frontier import _steps
from diffenergy.dvfs._problem import Total, default_total
from diffenergy.results import Infeasible

from .builders import KINDS, RICHEST_KIND, exhaustive, random_problem

SLOWDOWNS = np.arange(-30.0, 60.0, 2.5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_limit(kind: str):
    """Monotone, above its bound, within its limit; optimal for small problems."""
    problem = random_problem(3, kind)
    default = default_total(problem)
    found = frontier(problem, SLOWDOWNS)
    reached = np.isfinite(found.energy)
    assert np.all(np.diff(reached.astype(int)) >= 0)
    assert np.all(np.diff(found.energy[reached]) <= 0)
    assert np.all(found.bound[reached] <= found.energy[reached])
    limit = default.time * (1 + SLOWDOWNS / 100)
    assert np.all(found.time[reached] <= limit[reached] * (1 + 1e-8))
    for slowdown, energy in zip(SLOWDOWNS, found.energy, strict=True):
        optimum = exhaustive(problem, Objective(max_slowdown=float(slowdown)))
        if np.isinf(optimum):
            assert np.isnan(energy)
        else:
            assert energy == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("kind", RICHEST_KIND)
@pytest.mark.parametrize(
    "rules",
    [
        Rules("local"),
        Rules(granularity="phase"),
        Rules(granularity="iteration"),
        Rules("local", granularity="iteration"),
        Rules(per_launch=True),
    ],
)
def test_rules(rules: Rules, kind: str):
    """The same as one plan after the other."""
    problem = random_problem(8, kind)
    found = frontier(problem, SLOWDOWNS, rules)
    for slowdown, energy in zip(SLOWDOWNS, found.energy, strict=True):
        objective = Objective(max_slowdown=float(slowdown))
        try:
            plan = solve(problem, objective, rules)
        except Infeasible:
            assert np.isnan(energy)
            continue
        assert energy == pytest.approx(plan.energy, rel=1e-3)


@pytest.mark.parametrize("kind", ["table", "host"])
def test_the_bound_of_kernels_that_the_default_clocks_beat(kind: str):
    """No setting takes as little as the default clocks: they are the answer from their
    own time on, and the bound of the other plans, far above, is none of it."""
    problem = random_problem(3, kind)
    lean = dataclasses.replace(problem, default_energy=0.5 * problem.energy.min(1))
    default = default_total(lean)
    found = frontier(lean, SLOWDOWNS, Rules("local"))
    own = SLOWDOWNS >= 0
    assert found.energy[own] == pytest.approx(np.full(own.sum(), default.energy))
    reached = np.isfinite(found.energy)
    assert np.all(found.bound[reached] <= found.energy[reached])


def test_default_steps():
    """0.1 % steps from the fastest plan to the leanest."""
    problem = random_problem(3)
    found = frontier(problem)
    assert np.allclose(np.diff(found.slowdown), 0.1)
    lean = solve(problem, Objective())
    assert found.energy[-1] == pytest.approx(lean.energy)
    with pytest.raises(Infeasible):
        solve(problem, Objective(max_slowdown=float(found.slowdown[0]) - 0.1))
    points = found.points(default_total(problem))
    assert np.all(np.diff(points[:, 0]) > 0)
    assert np.all(np.diff(points[:, 1]) < 0)


@pytest.mark.parametrize(
    ("fastest", "leanest", "first", "last"),
    [(0.95, 1.0296, -5.0, 3.0), (0.9504, 1.0304, -4.9, 3.1), (1.02, 1.0396, 0.0, 4.0)],
)
def test_steps_reach_the_leanest_plan(
    fastest: float, leanest: float, first: float, last: float
):
    """From the first limit that is reachable, the default being a plan too."""
    plans = Total(np.array([fastest, leanest, 1.5]), np.array([9.0, 5.0, 6.0]))
    found = _steps(plans, Total(np.asarray(1.0), np.asarray(7.0)))
    assert found == pytest.approx(
        np.arange(round(10 * first), round(10 * last) + 1) / 10
    )
    lean = _steps(plans, Total(np.asarray(1.0), np.asarray(4.0)))
    assert lean[-1] == pytest.approx(0) and lean[0] == pytest.approx(min(first, 0.0))
