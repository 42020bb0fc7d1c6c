"""Random fleets against a list of all their plans."""

import numpy as np
import pytest

from diffenergy.fleet import _solve
from diffenergy.fleet._bound.knapsack import by_whole_replicas
from diffenergy.fleet._bound.linear import proven, relaxed
from diffenergy.fleet._problem.problem import Problem, kept, value_of
from diffenergy.fleet._solve import Solved, Unsolved, solve, useful
from diffenergy.fleet._whole import exact
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
    found = solve(problem, 1e-3, 20.0, quiet)
    if not isinstance(found, Solved):
        assert not np.isfinite(best) or not found.proven
        return
    assert kept(found.problem, found.counts).all()
    assert best * (1 - 1e-9) <= found.value <= 1.1 * best
    assert found.price_bound * (1 - 1e-9) <= found.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("few", (0.0, 6.0))
@pytest.mark.parametrize("seed", range(6))
def test_a_slot_is_proven_with_plans_or_rows(
    seed: int, few: float, monkeypatch: pytest.MonkeyPatch
):
    """The least of all plans of one slot is found among what reduced costs leave,
    whether models are listed as whole plans or kept as rows."""
    monkeypatch.setattr(exact, "_FEW", few)
    problem = useful(small_fleet(seed, clocks=3).at(slice(1, 2)))
    best = best_value(problem)
    prices = relaxed(problem, 0)
    if prices is None or not np.isfinite(best):
        pytest.skip("no plan keeps the limits")
    bound, wasted, _ = by_whole_replicas(problem, 0, prices, np.inf)
    assert prices.bound <= bound <= best * (1 + 1e-9)
    slot = exact.Slot(problem, 0, prices, wasted)
    assert slot.bound == pytest.approx(bound, rel=1e-12)
    found = exact.best_below(slot, best * 1.2, seconds=20.0, gap=0.0)
    assert found.counts is not None and kept(problem, found.counts).all()
    assert value_of(problem, found.counts) == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-6)
    about = exact.by_numbers(slot, seconds=20.0, gap=0.0)
    assert prices.bound * (1 - 1e-9) <= about.bound <= best * (1 + 1e-7)
    if about.counts is not None:  # rows of one model may carry these numbers too well
        assert kept(problem, about.counts).all()
        assert value_of(problem, about.counts) >= best * (1 - 1e-7)
    # any prices will do, and any waste that is not too much
    at = 1.3 * np.r_[prices.gpu, prices.watt]
    loose = exact.Slot(problem, 0, proven(problem, 0, at), 0 * wasted)
    again = exact.best_below(loose, best * 1.2, seconds=20.0, gap=0.0)
    assert again.counts is not None
    assert value_of(problem, again.counts) == pytest.approx(best, rel=1e-7)
    low = exact.best_below(slot, best * (1 - 1e-5), seconds=20.0, gap=0.0)
    assert low.bound <= best * (1 + 1e-9)  # what is left out costs more than asked
