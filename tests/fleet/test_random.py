"""Random fleets against a list of all their plans."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffenergy import fleet
from diffenergy.fleet import _solve
from diffenergy.fleet._bound import near_rows, solve_relaxation
from diffenergy.fleet._horizon import Search, slot_by_slot
from diffenergy.fleet._integer import plan_all_slots, plan_slot
from diffenergy.fleet._knapsack import bound_by_knapsacks
from diffenergy.fleet._problem import keeps_limits, value_of
from diffenergy.fleet._solve import useful
from diffenergy.fleet._work import Work

from .builders import (
    best_value,
    least_watts,
    quiet,
    random_fleet,
    small_fleet,
    whole_fleet,
    write_fleet,
    write_problem,
)


def check(folder: Path, seed: int, **small: Any) -> None:
    """The plan of a small fleet is the best of all plans, and proven to be."""
    problem = small_fleet(seed, **small)
    best = best_value(problem) / 3.6e6  # J times g/kWh
    path = write_problem(folder, problem)
    if not np.isfinite(best):
        with pytest.raises(fleet.NoPlan):
            fleet.plan(path, objective="carbon")
        return
    result = fleet.plan(path, objective="carbon")
    assert result.value == pytest.approx(best, rel=1e-7)
    assert result.bound == pytest.approx(best, rel=1e-7)
    assert result.summary["bound_by_prices"] <= best * (1 + 1e-9)
    solved = result.solved
    assert keeps_limits(solved.problem, solved.counts).all()
    apart = slot_by_slot(Search(solved.problem, solved.prices, Work(0.0)), quiet)
    if not isinstance(apart, int):  # never better than all plans, never over a limit
        assert keeps_limits(solved.problem, apart).all()
        assert value_of(solved.problem, apart) >= solved.value * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_few_fleets_are_planned_best(tmp_path: Path, seed: int):
    check(tmp_path, seed, clocks=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 100))
def test_fleets_are_planned_best(tmp_path: Path, seed: int):
    check(tmp_path, seed, clocks=5 if seed % 5 == 0 else 3)


@pytest.mark.parametrize("seed", [*range(4), *(
    pytest.param(x, marks=pytest.mark.slow) for x in range(4, 40)
)])  # fmt: skip
def test_a_search_claims_no_more_than_is_true(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without the program of all slots: the plan is no better than the best of all
    plans, the bound no higher."""
    monkeypatch.setattr(_solve, "_TINY", 0)
    monkeypatch.setattr(_solve, "_SMALL", 0)
    problem = small_fleet(seed, clocks=3)
    best = best_value(problem) / 3.6e6
    path = write_problem(tmp_path, problem)
    try:
        result = fleet.plan(path, objective="carbon")
    except fleet.NoPlan as refusal:
        assert not np.isfinite(best) or refusal.reason["limit"] == "time"
        return
    assert keeps_limits(result.solved.problem, result.solved.counts).all()
    assert best * (1 - 1e-9) <= result.value <= 1.1 * best
    least = result.summary["bound_by_prices"] * (1 - 1e-9)
    assert least <= result.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    "seed, slots, program", [*((x, 1, False) for x in range(10)), (0, 10, True)]
)
def test_bounds_of_unproven_plans(
    seed: int,
    slots: int,
    program: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Six models whose best plan dynamic programming knows: one slot by the search
    alone, ten slots by the program of all that is cut short. Plan and bound are within
    0.3 % of each other, with the best plan between them."""
    if not program:
        monkeypatch.setattr(_solve, "_SMALL", 0)
        monkeypatch.setattr(_solve, "_TINY", 0)
    points, demand = whole_fleet(seed, models=6, slots=slots)
    best = sum(least_watts(points, wanted, gpus=25) for wanted in demand)
    pools = [
        {"name": gpu, "gpu": gpu, "count": 25, "site": "main", "parked_w": 0}
        for gpu in "xy"
    ]
    path = write_fleet(tmp_path, points, demand, pools)
    result = fleet.plan(path, max_gap=0.003, effort=0.1 if program else 20)
    assert best * (1 - 1e-9) <= result.value <= best * 1.003
    assert best * 0.997 <= result.bound <= best * (1 + 1e-9)
    assert result.summary["bound_by_prices"] < result.bound
    assert result.gap > 1e-6 or not program


@pytest.mark.parametrize("seed", range(12))
def test_a_slot_is_planned_and_bounded(seed: int):
    """Of all plans of one slot the best lies between bound and plan, both near it; of
    rows that waste more than that is away from the bound it has none."""
    problem = useful(small_fleet(seed, clocks=3).at(slice(1, 2)))
    best, prices = best_value(problem), solve_relaxation(problem, 0)
    found = plan_slot(problem, 0, work=Work(20.0), gap=0.0)
    if prices is None or not np.isfinite(best):
        assert found.values is None
        return
    assert found.bound <= best * (1 + 1e-7)
    assert found.values is not None and keeps_limits(problem, found.values[None]).all()
    assert best * (1 - 1e-7) <= value_of(problem, found.values[None]) <= 1.05 * best
    bound, wasted, _ = bound_by_knapsacks(problem, 0, prices, Work(np.inf))
    assert prices.bound <= bound <= best * (1 + 1e-9)
    near = near_rows(problem, 0, prices, wasted, best * (1 + 1e-7) - bound)
    again = plan_all_slots(problem, work=Work(20.0), near=near[None])
    assert again.values is not None and again.proven
    assert value_of(problem, again.values) == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("seed", [0, *(
    pytest.param(x, marks=pytest.mark.slow) for x in range(1, 8)
)])  # fmt: skip
def test_two_programs_come_near_the_integer_program(seed: int):
    """Three models on four pools of five GPUs at two sites, 500 rows, budget binding:
    the least plan of HiGHS's program of all whole rows, to its gap, lies between."""
    size = dict(models=3, pools=4, gpus=20, clocks=8, batches=6)
    problem = useful(random_fleet(seed, used=0.6, tight=0.9, **size))
    known = plan_all_slots(problem, work=Work(60.0), gap=1e-5)
    found = plan_slot(problem, 0, work=Work(60.0), gap=1e-4)
    if known.values is None:
        assert known.bound == np.inf and found.values is None
        return
    assert known.proven
    best = value_of(problem, known.values)
    assert found.values is not None and keeps_limits(problem, found.values[None]).all()
    assert value_of(problem, found.values[None]) >= best * (1 - 3e-5)
    assert value_of(problem, found.values[None]) <= best * 1.02
    assert 0.97 * best <= found.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    "demand, watts", [(30.0, 300.0), (31.0, 360.0), (35.0, 360.0), (35.5, 400.0)]
)
def test_the_bound_of_whole_replicas_by_hand(demand: float, watts: float):
    """Replicas of 10 requests/s for 100 W and of 5 for 60, GPUs enough and none parked:
    three of the first carry 30, with one of the second 35, four carry 40."""
    small = small_fleet(0, models=1, clocks=1, slots=1, starts=False)
    rows = dataclasses.replace(
        small.rows, rate=np.array([10.0, 5.0]), power=np.array([100.0, 60.0])
    )
    problem = dataclasses.replace(
        small, rows=rows, demand=np.array([[demand]]), count=np.full(2, 10.0),
        parked=np.zeros(2), pue=np.ones_like(small.pue),
        budget=np.full_like(small.budget, np.inf), weight=np.ones_like(small.weight),
    )  # fmt: skip
    prices = solve_relaxation(problem, 0)
    assert prices is not None
    assert prices.bound == pytest.approx(3600 * 10 * demand)
    bound, wasted, _ = bound_by_knapsacks(problem, 0, prices, Work(np.inf))
    assert bound == pytest.approx(3600 * watts, rel=1e-9)
    assert wasted == pytest.approx([3600 * (watts - 10 * demand)], abs=1e-6)
