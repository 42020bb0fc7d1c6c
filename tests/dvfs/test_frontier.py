"""Frontiers and baselines against single plans."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Rules, frontier, solve
from diffenergy.results import Infeasible

from .builders import (
    KINDS,
    RICHEST_KIND,
    default_total,
    exhaustive,
    random_problem,
)

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
