"""Schedules with switching costs, against exhaustive search."""

import dataclasses
from typing import Literal

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Plan, Problem, Rules, Switching, frontier, solve
from diffenergy.dvfs._groups import by_stage
from diffenergy.dvfs._paths import Prices, cheapest, cheapest_ahead, dwell, lasting
from diffenergy.dvfs._positions import Positions, has_room, may_pay, positions
from diffenergy.dvfs._problem import Loop, default_total, total, within_caps
from diffenergy.dvfs._solve import single_settings

from .builders import (
    KINDS,
    RICHEST_KIND,
    all_choices,
    all_plans,
    best_value,
    between,
    random_problem,
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
        found = default_total(problem)
    elif len(plan.kernel) == len(places.kernel):
        np.testing.assert_array_equal(plan.kernel, places.kernel)
        spent = places.spent(plan.setting)
        assert within_caps(problem, spent)
        assert plan.switches == places.changes(plan.setting).sum()
        found = total(problem, spent)
    else:  # one setting for all launches of each kernel: no order to tell
        assert plan.switches == 0 and len(set(plan.setting)) == 1
        np.testing.assert_array_equal(plan.kernel, np.arange(len(problem.kernels)))
        np.testing.assert_array_equal(plan.count, problem.count)
        found = total(problem, plan.spent(problem))
    np.testing.assert_allclose([plan.time, plan.energy], found, rtol=1e-12)


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


@pytest.mark.parametrize("per_launch", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_stall_path_is_the_cheapest(seed: int, per_launch: bool):
    problem = small(seed)
    places = places_of(problem, STALL, per_launch)
    choice = all_choices(len(places.kernel), 3)
    choice = choice[problem.usable[places.kernel, choice].all(1)]
    spent = places.spent(choice)
    for price in (0.0, 50.0, 400.0):
        prices = Prices(np.array([price, 1.1 * price]), np.array([1.0, 1.3]))
        path = cheapest(places, prices)
        each = (spent.energy + prices.time * spent.time) @ prices.weight
        assert path.value == pytest.approx(each.min())
        best = places.spent(path.settings)
        value = (best.energy + prices.time * best.time) @ prices.weight
        assert value == pytest.approx(each.min())


@pytest.mark.parametrize("latency", [0.0, 3.0, 6.0, 1e3])
@pytest.mark.parametrize("seed", range(3))
def test_lookahead_path_is_the_cheapest(seed: int, latency: float):
    problem = small(seed)
    places = places_of(problem, Switching("lookahead", latency, 2.0), True)
    stay = dwell(places, latency)
    choice = all_choices(len(places.kernel), 3)
    choice = choice[problem.usable[places.kernel, choice].all(1)]
    choice = choice[[lasting(places, x, latency) for x in choice]]
    spent = places.spent(choice)
    for price in (0.0, 50.0, 400.0):
        prices = Prices(np.full(2, price), np.array([1.0, 1.3]))
        path = cheapest_ahead(places, stay, prices)
        assert lasting(places, path.settings, latency)
        # a change is paid at the weight of the stage that it leads to
        each = (spent.energy + price * spent.time) @ prices.weight
        assert path.value == pytest.approx(each.min())


@pytest.mark.slow
@pytest.mark.parametrize("kind", RICHEST_KIND)
@pytest.mark.parametrize(
    ("switching", "per_launch"), [(STALL, False), (STALL, True), (DWELL, True)]
)
def test_optimum_lies_between(kind: str, switching: Switching, per_launch: bool):
    gaps = []
    for seed in range(4):
        problem = small(seed, kind)
        places = places_of(problem, switching, per_launch)
        rules = Rules(per_launch=per_launch, switching=switching)
        latency = switching.latency if switching.kind == "lookahead" else None
        spent = all_plans(places, latency)
        for objective in OBJECTIVES:
            optimum = best_value(problem, spent, objective)
            plan = solve(problem, objective, rules)
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


def test_stall_power_counts():
    problem, objective = random_problem(4), Objective(max_slowdown=20.0)
    low, high = (
        solve(problem, objective, Rules(switching=STALL, stall_power=power))
        for power in (20.0, 2000.0)
    )
    assert low.energy <= high.energy


def test_phases_switch_where_stages_meet():
    problem = random_problem(6, turns=5)
    rules = Rules(granularity="phase", switching=Switching("stall", 0.01))
    plan = solve(problem, Objective(max_slowdown=15.0), rules)
    assert plan.switches <= 1
    assert set(np.bincount(plan.kernel, plan.count)) == set(problem.count)


def test_frontier_with_changes():
    problem, rules = random_problem(1), Rules(switching=STALL)
    slowdowns = np.arange(0.0, 30.0)
    found = frontier(problem, slowdowns, rules)
    assert np.all(np.diff(found.energy) <= 1e-9)
    assert np.all(found.bound <= found.energy)
    spent = all_plans(places_of(problem, STALL, False))
    for i in (0, 10, 25):
        objective = Objective(max_slowdown=float(slowdowns[i]))
        optimum = best_value(problem, spent, objective)
        assert between(found.bound[i], optimum, found.energy[i])


def test_kernel_outside_the_loops_is_an_error():
    problem = dataclasses.replace(random_problem(0), loops=(Loop((0, 1, 2), 2),))
    with pytest.raises(ValueError, match="never launches kernel `kernel 3`"):
        solve(problem, rules=Rules(switching=STALL))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("latency", [0.1, 1.0, 3.0, 8.0])
def test_changes_without_room(kind: str, latency: float):
    """Against all schedules: what is left out keeps no limit, and beats nothing."""
    problem = random_problem(2, kind, num_kernels=3, num_settings=3)
    switching = Switching("stall", latency, 0.5)
    places = places_of(problem, switching, False)
    choice = all_choices(len(places.kernel), len(problem.settings))
    choice = choice[problem.usable[places.kernel, choice].all(1)]
    choice = choice[places.changes(choice).sum(-1) > 0]
    spent = places.spent(choice)
    time, energy = (x[within_caps(problem, spent)] for x in total(problem, spent))
    default = float(default_total(problem).time)
    for slowdown in (0.0, 20.0, 200.0):
        most = default * (1 + slowdown / 100)
        if not has_room(problem, switching, most):
            assert time.min(initial=np.inf) > most
    single = single_settings(problem).total
    if not may_pay(problem, Rules(switching=switching), single):
        beaten = (single.time[:, None] <= time) & (single.energy[:, None] <= energy)
        assert beaten.any(0).all()
    assert has_room(problem, switching, np.inf)


def test_one_clock_where_changes_pay_at_no_time():
    """One stage at a time cannot change; 3 launches of 1 s and a stall of 2 s do not
    fit into 4 s."""
    problem = random_problem(2, num_kernels=2, turns=1)
    whole = by_stage(problem).problem
    one = dataclasses.replace(whole, loops=(Loop((0,), 1),))
    assert not may_pay(one, Rules(switching=STALL), single_settings(whole).total)
    fastest = (problem.count * problem.time.min(1)).sum()
    dear = Switching("stall", 2.0)
    assert has_room(problem, dear, fastest + 2.0)
    assert not has_room(problem, dear, fastest + 1.99)
    ahead = Switching("lookahead", 2.0)
    assert has_room(problem, ahead, 4.0) and not has_room(problem, ahead, 3.99)
