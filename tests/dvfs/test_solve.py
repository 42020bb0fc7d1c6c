"""Schedules without switching costs, against exhaustive search."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from diffenergy.dvfs import Objective, Plan, Problem, Rules, launches, solve
from diffenergy.dvfs._groups import by_stage
from diffenergy.dvfs._problem import TIE
from diffenergy.physics import stage_time
from diffenergy.results import Infeasible
from diffenergy.workload import Loop

from .builders import (
    KINDS,
    Total,
    between,
    chosen,
    default_total,
    exhaustive,
    random_problem,
    total,
    within_caps,
)

OBJECTIVES = (
    *(Objective(max_slowdown=x) for x in (0.0, 4.0, -3.0, 25.0)),
    *(Objective(x) for x in ("energy", "edp", "ed2p", "time")),
    Objective("edp", max_slowdown=5.0),
)
SEEDS = range(3)


def cooler(problem: Problem, objective: Objective, share: float) -> Objective:
    """The objective under a cap at a share of the default's power."""
    default = default_total(problem)
    return objective._replace(power_cap=float(share * default.energy / default.time))


def check_totals(problem: Problem, plan: Plan) -> None:
    """The plan's rows are all launches, take what it says and keep the caps."""
    launches = np.bincount(plan.kernel, plan.count, len(problem.kernels))
    np.testing.assert_allclose(launches, problem.count)
    spent = plan.spent(problem)
    assert plan.solver == "default" or within_caps(problem, spent)
    totals = total(problem, spent)
    np.testing.assert_allclose([plan.time, plan.energy], totals, rtol=1e-12)


def check(problem: Problem, objective: Objective, rules: Rules, optimum: float) -> Plan:
    """Between bound and value lies the optimum; nothing is promised in vain."""
    plan = solve(problem, objective, rules)
    check_totals(problem, plan)
    assert objective.keeps(plan.total, default_total(problem))
    assert plan.value == pytest.approx(float(objective.value(plan.total)))
    assert between(plan.bound, optimum, plan.value)
    assert 0 <= plan.gap < 1
    assert plan.bound_energy <= plan.energy
    if objective.goal == "energy" and plan.solver != "default":
        assert plan.bound_energy == plan.bound  # proven by whatever proves more
    return plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_objective(seed: int, kind: str):
    problem = random_problem(seed, kind)
    for request in OBJECTIVES:
        for objective in (request, cooler(problem, request, 0.9)):
            optimum = exhaustive(problem, objective)
            if np.isinf(optimum):
                with pytest.raises(Infeasible):
                    solve(problem, objective)
                continue
            plan = check(problem, objective, Rules(), optimum)
            assert plan.value == pytest.approx(optimum, rel=1e-6), objective
            assert plan.bound >= 0.9 * optimum
            if kind == "table" and objective is request and request.goal == "energy":
                assert plan.gap < 1e-6  # a limit of time alone: to the optimum


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_per_launch(seed: int, kind: str):
    """Launches as kernels of their own have the same optimum."""
    problem = random_problem(seed, kind, num_kernels=2, num_settings=3)
    count = problem.count.astype(int)
    single = np.repeat(np.arange(len(count)), count)
    unrolled = problem.take(single, count=np.ones(len(single)))
    for request in OBJECTIVES:
        for objective in (request, cooler(problem, request, 0.93)):
            optimum = exhaustive(unrolled, objective)
            if np.isinf(optimum):
                with pytest.raises(Infeasible):
                    solve(problem, objective, Rules(per_launch=True))
                continue
            plan = check(problem, objective, Rules(per_launch=True), optimum)
            assert plan.value == pytest.approx(optimum, rel=1e-9), objective


@pytest.mark.parametrize("seed", [0, 9, 19])
def test_three_settings_share_the_launches_of_a_kernel(seed: int):
    """All ways to share 5 and 10 launches; a single one may be of use (9, 19)."""
    problem = random_problem(seed, num_kernels=3, num_settings=3, turns=5)
    time, energy = np.zeros(1), np.zeros(1)
    for usable, count, t, e in zip(
        problem.usable, problem.count, problem.time, problem.energy, strict=True
    ):
        shares = itertools.product(range(int(count) + 1), repeat=usable.sum())
        each = np.array([x for x in shares if sum(x) == count])
        time = np.add.outer(time, each @ t[usable]).ravel()
        energy = np.add.outer(energy, each @ e[usable]).ravel()
    objective = Objective(max_slowdown=9.0)
    remaining = objective.keeps(Total(time, energy), default_total(problem))
    best = float(energy[remaining].min())
    assert check(problem, objective, Rules(per_launch=True), best).gap < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_medium_problems_are_proven(seed: int, kind: str):
    """24 kernels at 20 settings, where the hull alone leaves a gap: HiGHS agrees."""
    problem = random_problem(seed, kind, 24, 20, turns=3)
    objective = Objective(max_slowdown=2.0)
    plan = solve(problem, objective)
    check_totals(problem, plan)
    assert objective.keeps(plan.total, default_total(problem))
    assert plan.gap < 2e-7
    assert plan.gap == pytest.approx(1 - plan.bound_energy / plan.energy, abs=1e-12)
    if kind == "table":
        assert plan.energy == pytest.approx(knapsack(problem, objective), rel=2e-7)


def knapsack(problem: Problem, objective: Objective) -> float:
    """Least energy within the limit of time, by SciPy's integer programme."""
    usable = problem.usable
    kernel = np.nonzero(usable)[0]
    time = (problem.count[:, None] * problem.time)[usable]
    energy = (problem.count[:, None] * problem.energy)[usable]
    most = objective.most_time(default_total(problem))
    one = np.equal.outer(np.arange(len(usable)), kernel).astype(float)
    rows = [LinearConstraint(one, 1, 1), LinearConstraint(time[None], -np.inf, most)]
    result = milp(energy, integrality=1, bounds=(0, 1), constraints=rows)
    return float(min(result.fun, default_total(problem).energy))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_local(seed: int, kind: str):
    """Every kernel keeps the limits by itself; of products each takes its own best."""
    problem = random_problem(seed, kind)
    default = default_total(problem)
    cap = 1.05 * float(default.energy / default.time)
    for objective in (*OBJECTIVES, *(x._replace(power_cap=cap) for x in OBJECTIVES)):
        most = problem.default_time * (1 + objective.max_slowdown / 100)
        keeps = problem.usable & (problem.time <= most[:, None])
        keeps &= problem.power <= objective.power_cap
        there = keeps.any(1).all()
        if objective.goal in ("edp", "ed2p"):
            value = problem.energy * problem.time ** (1 + (objective.goal == "ed2p"))
            value = np.where(keeps, value, np.inf)
            keeps = value == value.min(1, keepdims=True)
        time, energy = (
            np.where(keeps, x, np.inf) for x in (problem.time, problem.energy)
        )
        remaining = dataclasses.replace(problem, time=time, energy=energy)
        optimum = exhaustive(remaining, objective) if there else np.inf
        if np.isinf(optimum):
            with pytest.raises(Infeasible):
                solve(problem, objective, Rules("local"))
            continue
        plan = check(problem, objective, Rules("local"), optimum)
        assert plan.value == pytest.approx(optimum, rel=1e-6), objective


@pytest.mark.parametrize("kind", ["table", "host"])
@pytest.mark.parametrize("seed", SEEDS)
def test_phases(seed: int, kind: str):
    problem = random_problem(seed, kind)
    for objective in OBJECTIVES:
        optimum = exhaustive(by_stage(problem).problem, objective)
        if np.isinf(optimum):
            continue
        plan = check(problem, objective, Rules(granularity="phase"), optimum)
        assert plan.value == pytest.approx(optimum, rel=1e-6)
        assert len({*zip(problem.stage[plan.kernel], plan.setting, strict=True)}) == 2


def test_a_stage_that_comes_twice_a_turn():
    """Each stage stands six times, with half of its kernels' launches each time."""
    loops = (Loop((0, 2, 1, 3), 3),)
    problem = dataclasses.replace(random_problem(0), count=np.full(4, 3.0), loops=loops)
    stages = by_stage(problem).problem
    np.testing.assert_array_equal(stages.count, [6, 6])
    assert stages.loops == (Loop((0, 1, 0, 1), 3),)
    np.testing.assert_allclose(stages.time[1], problem.time[2:].sum(0) / 2)
    plan = solve(problem, Objective(max_slowdown=5.0), Rules(granularity="phase"))
    assert plan.solver != "default"
    check_totals(problem, plan)


@pytest.mark.parametrize("kind", KINDS)
def test_iteration(kind: str):
    problem = random_problem(1, kind)
    same = np.repeat(np.arange(3)[:, None], len(problem.kernels), axis=1)
    result, spent = default_total(problem), chosen(problem, same)
    remaining = within_caps(problem, spent)
    energy = total(problem, spent).energy[remaining].min(initial=float(result.energy))
    plan = solve(problem, Objective(), Rules(granularity="iteration"))
    assert plan.energy == pytest.approx(energy)
    assert plan.gap == 0
    assert len(set(plan.setting)) == 1


def test_launches_follow_one_another_at_the_pace_of_host_and_gpu():
    problem = random_problem(0, "host")
    plan = solve(problem, Objective(max_slowdown=5.0))
    result = launches(problem, plan)
    own = problem.time[result.kernel, result.setting]
    np.testing.assert_allclose(result.start, np.cumsum(result.time) - result.time)
    for stage in range(2):
        here = problem.stage[result.kernel] == stage
        took = stage_time(own[here].sum(), problem.host_time[stage])
        np.testing.assert_allclose(
            result.time[here], own[here] * took / own[here].sum(), rtol=1e-9
        )


def test_least_reachable_slowdown():
    """The number in the message can be asked for; one step less cannot."""
    problem = random_problem(2)
    with pytest.raises(Infeasible) as raised:
        solve(problem, Objective(max_slowdown=-40.0))
    least = raised.value.least["max_slowdown"]
    fastest = problem.count @ problem.time.min(1)
    default = problem.count @ problem.default_time
    assert least == pytest.approx(100 * (fastest / default - 1))
    shown = np.ceil(least * 100 - 1e-6) / 100 + 0.0  # never -0.00
    assert f"{shown:.2f} %" in str(raised.value)
    assert solve(problem, Objective(max_slowdown=float(shown))).time <= default
    with pytest.raises(Infeasible):
        solve(problem, Objective(max_slowdown=least - 0.01))
    with pytest.raises(Infeasible) as raised:
        solve(problem, Objective(max_slowdown=-40.0), Rules("local"))
    assert raised.value.least["max_slowdown"] >= least


def test_least_reachable_power():
    problem = random_problem(2)
    with pytest.raises(Infeasible) as raised:
        solve(problem, Objective("time", power_cap=1.0))
    least = raised.value.least["power_limit"]
    assert f"{least:.2f} W" in str(raised.value)
    plan = solve(problem, Objective("time", power_cap=least * (1 + TIE)))
    assert plan.energy / plan.time == pytest.approx(least)


def test_left_alone_is_a_plan():
    """Where no setting is as fast as the default, the default stays."""
    problem = random_problem(3)
    problem = dataclasses.replace(problem, default_time=0.5 * problem.default_time)
    plan = solve(problem)
    assert plan.solver == "default"
    assert plan.energy == pytest.approx(float(default_total(problem).energy))
    assert plan.gap == 0
