"""Frontiers and baselines against single plans."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Rules, frontier, solve
from diffenergy.results import Infeasible

from .builders import KINDS, default_total, exhaustive, random_problem

SLOWDOWNS = np.arange(-30.0, 60.0, 2.5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_limit(kind: str):
    """Monotone, above its bound, within its limit; optimal for small problems."""
    problem = random_problem(3, kind)
    default = default_total(problem)
    result = frontier(problem, SLOWDOWNS)
    reached = np.isfinite(result.energy)
    assert np.all(np.diff(reached.astype(int)) >= 0)
    assert np.all(np.diff(result.energy[reached]) <= 0)
    assert np.all(result.bound[reached] <= result.energy[reached])
    limit = default.time * (1 + SLOWDOWNS / 100)
    assert np.all(result.time[reached] <= limit[reached] * (1 + 1e-8))
    for slowdown, energy in zip(SLOWDOWNS, result.energy, strict=True):
        optimum = exhaustive(problem, Objective(max_slowdown=float(slowdown)))
        if np.isinf(optimum):
            assert np.isnan(energy)
        else:
            assert energy == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("kind", ["host", "both"])
@pytest.mark.parametrize(
    "rules",
    [
        Rules("local"),
        Rules(granularity="phase"),
        Rules("local", granularity="iteration"),
        Rules(per_launch=True),
    ],
)
def test_rules(rules: Rules, kind: str):
    """The same as one plan after the other."""
    problem = random_problem(8, kind)
    result = frontier(problem, SLOWDOWNS[::3], rules)
    for slowdown, energy in zip(SLOWDOWNS[::3], result.energy, strict=True):
        objective = Objective(max_slowdown=float(slowdown))
        try:
            plan = solve(problem, objective, rules)
        except Infeasible:
            assert np.isnan(energy)
            continue
        assert energy == pytest.approx(plan.energy, rel=1e-3)


@pytest.mark.parametrize("kind", ["table", "host"])
def test_the_bound_of_kernels_that_the_default_clocks_beat(kind: str):
    """They are the answer from their own time on, not the bound of other plans."""
    problem = random_problem(3, kind)
    lean = dataclasses.replace(problem, default_energy=0.5 * problem.energy.min(1))
    default = default_total(lean)
    result = frontier(lean, SLOWDOWNS, Rules("local"))
    own = SLOWDOWNS >= 0
    assert result.energy[own] == pytest.approx(np.full(own.sum(), default.energy))
    reached = np.isfinite(result.energy)
    assert np.all(result.bound[reached] <= result.energy[reached])


def test_default_steps():
    """0.1 % steps from the fastest plan to the leanest."""
    problem = random_problem(3)
    result = frontier(problem)
    assert np.allclose(np.diff(result.slowdown), 0.1)
    lean = solve(problem, Objective())
    assert result.energy[-1] == pytest.approx(lean.energy)
    with pytest.raises(Infeasible):
        solve(problem, Objective(max_slowdown=float(result.slowdown[0]) - 0.1))
    points = result.points(default_total(problem))
    assert np.all(np.diff(points[:, 0]) > 0)
    assert np.all(np.diff(points[:, 1]) < 0)
