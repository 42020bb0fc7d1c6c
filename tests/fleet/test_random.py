"""Random fleets against a list of all their plans."""

import numpy as np
import pytest

from diffenergy.fleet._problem.problem import Problem, kept, value_of
from diffenergy.fleet._solve import Solved, Unsolved, solve
from diffenergy.fleet._whole.horizon import Search, slot_by_slot

from .enumerated import best_value, small_fleet
from .random_fleets import quiet


def check(problem: Problem) -> None:
    best = best_value(problem)
    found = solve(problem, 0.001, 20.0, quiet)
    if not np.isfinite(best):
        assert isinstance(found, Unsolved)
        return
    assert isinstance(found, Solved)
    assert found.value == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-7)
    assert kept(found.problem, found.counts).all()
    assert found.price_bound <= best * (1 + 1e-9)
    apart = slot_by_slot(Search(found.problem, found.prices, 0.0), quiet)
    if not isinstance(apart, int):  # never better than all plans, never over a limit
        assert kept(found.problem, apart).all()
        assert value_of(found.problem, apart) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_few_fleets_are_planned_best(seed: int):
    check(small_fleet(seed, clocks=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_fleets_are_planned_best(seed: int):
    check(small_fleet(seed, clocks=5 if seed % 5 == 0 else 3))
