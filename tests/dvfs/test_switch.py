"""Schedules with switching costs, against exhaustive search."""

import dataclasses
from typing import Literal

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Plan, Problem, Rules, Switching, frontier, solve
from diffenergy.workload import Loop

from .builders import (
    KINDS,
    Positions,
    all_choices,
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
    Objective(max_slowdown=0.0),
    Objective(max_slowdown=8.0),
    Objective(max_slowdown=20.0),
    Objective(),
    Objective("edp"),
    Objective("ed2p"),
    Objective("time"),
)
STALL = Switching("stall", 0.05, 2.0)
DWELL = Switching("lookahead", 5.0, 2.0)


def small(seed: int, kind: str = "table") -> Problem:
    """Few kernels and settings, so that all schedules can be tried."""
    return random_problem(seed, kind, num_kernels=3, num_settings=3)


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


def changes_by_hand(problem: Problem, settings: np.ndarray) -> int:
    """Walks through all launches of the loops."""
    ends = np.cumsum([len(loop.kernels) for loop in problem.loops])
    walk: list[int] = []
    for loop, end in zip(problem.loops, ends, strict=True):
        walk += list(settings[end - len(loop.kernels) : end]) * loop.turns
    return int(np.count_nonzero(np.diff(walk)))


def test_changes_are_counted_along_the_launches():
    problem = random_problem(0, turns=3)
    places = positions(problem, 0.0, 0.0, False)
    choice = all_choices(5, 3)
    counted = places.changes(choice).sum(1)
    np.testing.assert_array_equal(
        counted, [changes_by_hand(problem, settings) for settings in choice]
    )
    unrolled = positions(problem, 0.0, 0.0, True)
    assert len(unrolled.kernel) == problem.count.sum()
    settings = np.arange(len(unrolled.kernel)) % 2
    assert unrolled.changes(settings).sum() == len(settings) - 1


@pytest.mark.parametrize(
    ("switching", "per_launch"), [(STALL, False), (STALL, True), (DWELL, True)]
)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("both", 1),
        ("table", 1),
        *(pytest.param(kind, 4, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_optimum_lies_between(
    kind: str, seeds: int, switching: Switching, per_launch: bool
):
    """Bound <= the least of all schedules <= value, with dwells, stalls and rooms for
    changes of any length."""
    gaps = []
    for seed in range(seeds):
        problem = small(seed, kind)
        for latency in {switching.latency, 1.0}:
            some = switching._replace(latency=latency)
            places = places_of(problem, some, per_launch)
            stays = latency if some.kind == "lookahead" else None
            spent = all_plans(places, stays)
            for objective in OBJECTIVES:
                optimum = best_value(problem, spent, objective)
                plan = solve(
                    problem,
                    objective,
                    Rules("global", per_launch=per_launch, switching=some),
                )
                check_totals(places, plan)
                assert objective.keeps(plan.total, default_total(problem))
                assert between(plan.bound, optimum, plan.value), objective
                gaps.append(plan.value / optimum - 1)
    assert np.mean(gaps) < 0.01
    assert np.max(gaps) < 0.1


def test_free_changes_are_the_free_choice():
    problem, objective = random_problem(4), Objective(max_slowdown=5.0)
    free = solve(problem, objective)
    for switching in (Switching("stall", 0.0), Switching("lookahead", 0.0)):
        plan = solve(problem, objective, Rules(switching=switching))
        assert plan.energy == free.energy
    tiny = solve(problem, objective, Rules(switching=Switching("stall", 1e-9)))
    assert tiny.bound <= free.energy
    assert tiny.energy == pytest.approx(free.energy, rel=5e-3)


@pytest.mark.parametrize("kind", ["stall", "lookahead"])
@pytest.mark.parametrize("latency", [1e4, np.inf])
def test_dear_changes_leave_one_setting(
    kind: Literal["stall", "lookahead"], latency: float
):
    problem, objective = random_problem(4), Objective(max_slowdown=5.0)
    single = solve(problem, objective, Rules(granularity="iteration"))
    plan = solve(problem, objective, Rules(switching=Switching(kind, latency)))
    assert plan.energy == pytest.approx(single.energy)
    assert len(set(plan.setting)) == 1


def test_energy_of_a_change_alone():
    """With no latency a change still costs its energy, of either kind."""
    problem, objective = random_problem(4), Objective(max_slowdown=20.0)
    stalls = Rules(switching=Switching("stall", 0.0, 3.0), per_launch=True)
    ahead = Rules(switching=Switching("lookahead", 0.0, 3.0))
    one, other = (solve(problem, objective, rules) for rules in (stalls, ahead))
    assert one.bound == pytest.approx(other.bound, rel=1e-6)
    assert one.switches > 0


def test_phases_switch_where_stages_meet():
    problem = random_problem(6, turns=5)
    rules = Rules(granularity="phase", switching=Switching("stall", 0.01))
    plan = solve(problem, Objective(max_slowdown=15.0), rules)
    assert plan.switches <= 1
    assert set(np.bincount(plan.kernel, plan.count)) == set(problem.count)


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
