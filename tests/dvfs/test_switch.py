"""Schedules with switching costs, against exhaustive search."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Plan, Problem, Rules, Switching, frontier, solve
from diffenergy.workload import Loop

from .builders import (
    KINDS,
    Positions,
    all_plans,
    best_value,
    between,
    default_total,
    positions,
    random_problem,
    total,
    within_caps,
)

OBJECTIVES = (
    *(Objective(max_slowdown=x) for x in (0.0, 8.0, 20.0)),
    *(Objective(x) for x in ("energy", "edp", "ed2p", "time")),
)
STALL = Switching("stall", 0.05, 2.0)
DWELL = Switching("lookahead", 5.0, 2.0)


def places_of(problem: Problem, switching: Switching, per_launch: bool) -> Positions:
    ahead = switching.kind == "lookahead"
    latency = 0.0 if ahead else switching.latency
    energy = switching.energy + latency * problem.power.min()
    return positions(problem, latency, energy, per_launch or ahead)


def check_totals(places: Positions, plan: Plan) -> None:
    """Rows that take what the plan says, in launch order if clocks change."""
    problem = places.problem
    if plan.solver == "default":
        result = default_total(problem)
    elif len(plan.kernel) == len(places.kernel):
        np.testing.assert_array_equal(plan.kernel, places.kernel)
        spent = places.spent(plan.setting)
        assert within_caps(problem, spent)
        assert plan.switches == places.changes(plan.setting).sum()
        result = total(problem, spent)
    else:  # one setting for all launches of each kernel: no order to tell
        assert plan.switches == 0 and len(set(plan.setting)) == 1
        np.testing.assert_array_equal(plan.kernel, np.arange(len(problem.kernels)))
        np.testing.assert_array_equal(plan.count, problem.count)
        result = total(problem, plan.spent(problem))
    np.testing.assert_allclose([plan.time, plan.energy], result, rtol=1e-12)


@pytest.mark.parametrize(
    ("switching", "per_launch"), [(STALL, False), (STALL, True), (DWELL, True)]
)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [("table", 1), *(pytest.param(x, 3, marks=pytest.mark.slow) for x in KINDS)],
)
def test_optimum_lies_between(
    kind: str, seeds: int, switching: Switching, per_launch: bool
):
    gaps = []
    for seed in range(seeds):
        problem = random_problem(seed, kind, num_kernels=3, num_settings=3)
        for latency in {switching.latency, 1.0}:
            some = switching._replace(latency=latency)
            places = places_of(problem, some, per_launch)
            stays = latency if some.kind == "lookahead" else None
            spent = all_plans(places, stays)
            for objective in OBJECTIVES:
                optimum = best_value(problem, spent, objective)
                rules = Rules("global", per_launch=per_launch, switching=some)
                plan = solve(problem, objective, rules)
                check_totals(places, plan)
                assert objective.keeps(plan.total, default_total(problem))
                assert between(plan.bound, optimum, plan.value), objective
                gaps.append(plan.value / optimum - 1)
    assert np.mean(gaps) < 0.01
    assert np.max(gaps) < (0.1 if switching.kind == "lookahead" else 5e-4)


def test_free_changes_are_the_free_choice():
    problem, objective = random_problem(4), Objective(max_slowdown=5.0)
    free = solve(problem, objective)
    for switching in (Switching("stall", 0.0), Switching("lookahead", 0.0)):
        plan = solve(problem, objective, Rules(switching=switching))
        assert plan.energy == free.energy
    tiny = solve(problem, objective, Rules(switching=Switching("stall", 1e-9)))
    assert tiny.bound <= free.energy
    assert tiny.energy == pytest.approx(free.energy, rel=5e-3)


def test_dear_changes_leave_one_setting():
    problem, objective = random_problem(4), Objective(max_slowdown=5.0)
    single = solve(problem, objective, Rules(granularity="iteration"))
    for kind, latency in (("stall", 1e4), ("lookahead", 1e4), ("lookahead", np.inf)):
        plan = solve(problem, objective, Rules(switching=Switching(kind, latency)))
        assert plan.energy == pytest.approx(single.energy)
        assert len(set(plan.setting)) == 1


def test_frontier_with_changes():
    problem, rules = random_problem(1), Rules(switching=STALL)
    slowdowns = np.arange(0.0, 30.0)
    result = frontier(problem, slowdowns, rules)
    assert np.all(np.diff(result.energy) <= 1e-9)
    assert np.all(result.bound <= result.energy)
    spent = all_plans(places_of(problem, STALL, False))
    for i in (0, 10, 25):
        objective = Objective(max_slowdown=float(slowdowns[i]))
        optimum = best_value(problem, spent, objective)
        assert between(result.bound[i], optimum, result.energy[i])


def test_kernel_outside_the_loops_is_an_error():
    problem = dataclasses.replace(random_problem(0), loops=(Loop((0, 1, 2), 2),))
    with pytest.raises(ValueError, match="never launches kernel `kernel 3`"):
        solve(problem, rules=Rules(switching=STALL))
