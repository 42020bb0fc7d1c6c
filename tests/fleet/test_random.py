"""Random fleets against a list of all their plans."""

import numpy as np
import pytest

from diffenergy.fleet import _solve
from diffenergy.fleet._bound import near_rows, solve_relaxation
from diffenergy.fleet._horizon import Search, slot_by_slot
from diffenergy.fleet._integer import plan_all_slots, plan_slot
from diffenergy.fleet._knapsack import bound_by_knapsacks
from diffenergy.fleet._problem import Problem, keeps_limits, value_of
from diffenergy.fleet._solve import Solved, Unsolved, solve, useful
from diffenergy.fleet._work import Work

from .builders import best_value, quiet, random_fleet, small_fleet


def check(problem: Problem) -> None:
    best = best_value(problem)
    found = solve(problem, 0.001, Work(20.0), quiet)
    if not np.isfinite(best):
        assert isinstance(found, Unsolved)
        return
    assert isinstance(found, Solved)
    assert found.value == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-7)
    assert keeps_limits(found.problem, found.counts).all()
    assert found.price_bound <= best * (1 + 1e-9)
    apart = slot_by_slot(Search(found.problem, found.prices, Work(0.0)), quiet)
    if not isinstance(apart, int):  # never better than all plans, never over a limit
        assert keeps_limits(found.problem, apart).all()
        assert value_of(found.problem, apart) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_few_fleets_are_planned_best(seed: int):
    check(small_fleet(seed, clocks=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_fleets_are_planned_best(seed: int):
    check(small_fleet(seed, clocks=5 if seed % 5 == 0 else 3))


@pytest.mark.parametrize("seed", [*range(4), *(
    pytest.param(x, marks=pytest.mark.slow) for x in range(4, 40)
)])  # fmt: skip
def test_a_search_claims_no_more_than_is_true(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Without the program of all slots: the plan is no better than the best of all
    plans, the bound no higher."""
    monkeypatch.setattr(_solve, "_TINY", 0)
    monkeypatch.setattr(_solve, "_SMALL", 0)
    problem = small_fleet(seed, clocks=3)
    best = best_value(problem)
    found = solve(problem, 1e-3, Work(20.0), quiet)
    if not isinstance(found, Solved):
        assert not np.isfinite(best) or not found.proven
        return
    assert keeps_limits(found.problem, found.counts).all()
    assert best * (1 - 1e-9) <= found.value <= 1.1 * best
    assert found.price_bound * (1 - 1e-9) <= found.bound <= best * (1 + 1e-9)


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
    fleet = dict(models=3, pools=4, gpus=20, clocks=8, batches=6)
    problem = useful(random_fleet(seed, used=0.6, tight=0.9, **fleet))
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
