"""Random fleets against a list of all their plans."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from diffenergy.fleet import _solve
from diffenergy.fleet._bound import proven, relaxed
from diffenergy.fleet._knapsack import by_whole_replicas
from diffenergy.fleet._problem import Problem, kept, value_of
from diffenergy.fleet._solve import Solved, Unsolved, solve, useful
from diffenergy.fleet._whole import branches, settled
from diffenergy.fleet._whole import branches as exact
from diffenergy.fleet._whole.horizon import Search, slot_by_slot
from diffenergy.fleet._whole.integer import whole
from diffenergy.fleet._whole.settled import Choice, Setting
from diffenergy.fleet._whole.work import Work
from diffenergy.search import LinearModel

from .enumerated import best_value, small_fleet
from .random_fleets import quiet, random_fleet


def check(problem: Problem) -> None:
    best = best_value(problem)
    found = solve(problem, 0.001, Work(20.0), quiet)
    if not np.isfinite(best):
        assert isinstance(found, Unsolved)
        return
    assert isinstance(found, Solved)
    assert found.value == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-7)
    assert kept(found.problem, found.counts).all()
    assert found.price_bound <= best * (1 + 1e-9)
    apart = slot_by_slot(Search(found.problem, found.prices, Work(0.0)), quiet)
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
    found = solve(problem, 1e-3, Work(20.0), quiet)
    if not isinstance(found, Solved):
        assert not np.isfinite(best) or not found.proven
        return
    assert kept(found.problem, found.counts).all()
    assert best * (1 - 1e-9) <= found.value <= 1.1 * best
    assert found.price_bound * (1 - 1e-9) <= found.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_slot_is_proven(seed: int):
    """The least of all plans of one slot is found among what reduced costs leave."""
    problem = useful(small_fleet(seed, clocks=3).at(slice(1, 2)))
    best = best_value(problem)
    prices = relaxed(problem, 0)
    if prices is None or not np.isfinite(best):
        pytest.skip("no plan keeps the limits")
    bound, wasted, _ = by_whole_replicas(problem, 0, prices, Work(np.inf))
    assert prices.bound <= bound <= best * (1 + 1e-9)
    slot = exact.Slot(problem, 0, prices, wasted)
    assert slot.bound == pytest.approx(bound, rel=1e-12)
    found = exact.best_below(slot, best * 1.2, work=Work(20.0), gap=0.0)
    assert found.values is not None and kept(problem, found.values).all()
    assert value_of(problem, found.values) == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-6)
    # without a known plan
    first = exact.best_below(slot, np.inf, work=Work(20.0), gap=0.0)
    assert first.values is not None and first.proven
    assert value_of(problem, first.values) == pytest.approx(best, rel=1e-7)
    # any prices will do, and any waste that is not too much
    at = 1.3 * np.r_[prices.gpu, prices.watt]
    loose = exact.Slot(problem, 0, proven(problem, 0, at), 0 * wasted)
    again = exact.best_below(loose, best * 1.2, work=Work(20.0), gap=0.0)
    assert again.values is not None
    assert value_of(problem, again.values) == pytest.approx(best, rel=1e-7)
    low = exact.best_below(slot, best * (1 - 1e-5), work=Work(20.0), gap=0.0)
    assert low.bound <= best * (1 + 1e-9)  # what is left out costs more than asked


@pytest.mark.parametrize("seed", [0, *(
    pytest.param(x, marks=pytest.mark.slow) for x in range(1, 8)
)])  # fmt: skip
def test_branches_find_what_the_integer_program_finds(seed: int):
    """Three models on four pools of five GPUs at two sites, 500 rows, budget binding:
    the same least plan as HiGHS's over all whole rows, to its gap."""
    fleet = dict(models=3, pools=4, gpus=20, clocks=8, batches=6)
    problem = useful(random_fleet(seed, used=0.6, tight=0.9, **fleet))
    prices = relaxed(problem, 0)
    if prices is None:
        pytest.skip("no plan keeps the limits")
    known = whole(problem, work=Work(60.0), gap=1e-5)
    if known.values is None:
        assert known.bound == np.inf
        return
    assert known.proven
    best = value_of(problem, known.values)
    slot = exact.Slot(problem, 0, prices, np.zeros(3))
    found = exact.best_below(slot, 1.05 * best, work=Work(60.0), gap=1e-5)
    assert found.proven and found.values is not None
    assert kept(problem, found.values).all()
    assert value_of(problem, found.values) == pytest.approx(best, rel=3e-5)
    assert best * (1 - 3e-5) <= found.bound <= best * (1 + 1e-9)
    assert found.bound > prices.bound


def test_what_time_has_left_open_is_not_proven(monkeypatch: pytest.MonkeyPatch):
    """Where rows of a setting are neither found nor excluded, no plan is no proof that
    there is none, and the bound stays below the best."""
    problem = useful(small_fleet(0, clocks=3).at(slice(1, 2)))
    prices = relaxed(problem, 0)
    assert prices is not None
    nothing = branches.Found(None, -np.inf, False)
    monkeypatch.setattr(Setting, "solved", lambda x, *_: (x, nothing))
    monkeypatch.setattr(Setting, "at_other_prices", lambda x, *_: (x, -np.inf, None))
    slot = exact.Slot(problem, 0, prices, np.zeros(len(problem.models)))
    found = exact.best_below(slot, np.inf, work=Work(20.0), gap=0.0)
    assert found.values is None and not found.proven
    assert found.bound <= best_value(problem) * (1 + 1e-9)


@pytest.mark.parametrize(
    "demand, least",
    ((5.0, 6.0), (6.5, 7.0), (7.0, 7.0), (8.0, 8.0), (9.0, 10.0), (11.0, np.inf)),
)
def test_what_two_replicas_cost(demand: float, least: float):
    """Of rows that carry 3, 4 and 5 for 3, 4 and 6: two of the first carry 6, with the
    second 7, two of that 8, with the third 9; two carry no more than 10."""
    cost, rate = np.array([3.0, 4.0, 6.0]), np.array([[3.0, 4.0, 5.0]])
    model = LinearModel(
        sparse.csr_array(rate), np.array([demand]), np.array([np.inf]),
        np.zeros(3), np.full(3, np.inf), cost,
    )  # fmt: skip
    one = sparse.csr_array(np.ones((1, 3)))
    every = np.ones(3, bool)
    choice = Choice(model, one, 1, every, lambda counts: True)
    two = Setting(choice, np.array([2.0]), np.zeros(3), np.zeros(0))
    found, counts = two.alone(np.zeros(0), every)
    assert found == least
    if np.isfinite(least):
        assert counts.sum() == 2 and cost @ counts == least
    # surely enough is carried, at another cost where thirds are rounded down
    found, counts = two.alone(np.zeros(0), every, enough=True)
    assert found >= least
    if np.isfinite(found):
        assert cost @ counts == found and rate[0] @ counts >= demand


def test_a_price_shares_what_two_models_want():
    """Both carry 2 on a row of 1 and 2 W or of 2 and 1 W, within 3 W: the plans cost
    1 + 2; at a price of 1 a W each costs 3, less 3 W: no plan costs less than 3."""
    model = LinearModel(
        sparse.csr_array([[2.0, 2, 0, 0], [0, 0, 2, 2], [2, 1, 2, 1]]),
        np.array([2.0, 2.0, -np.inf]), np.array([np.inf, np.inf, 3.0]),
        np.zeros(4), np.full(4, np.inf), np.array([1.0, 2, 1, 2]),
    )  # fmt: skip
    sums = sparse.csr_array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    every = np.ones(4, bool)
    choice = Choice(
        model, sums, 2, every, lambda counts: bool(model.matrix[[2]] @ counts <= 3)
    )
    begun = Setting(choice, np.ones(2), np.full(4, 2.5), np.full(1, 0.1))
    assert begun.alone(np.zeros(1), every)[0] == 2.0
    assert begun.alone(np.ones(1), every)[0] == 3.0
    assert begun.alone(np.full(1, 2.0), every)[0] == 2.0
    better, bound, best = begun.at_other_prices(10.0, Work(9.0), settled._FINE)
    assert 2.5 < bound <= 3.0 and better.least.max() <= 3.0 + 1e-9
    if best is not None:
        assert model.cost @ best >= 3.0 and choice.fits(best)
    # HiGHS finds the plan itself, where it costs less than is asked for
    for below, found_one in ((3.5, True), (2.9, False)):
        _, found = begun.solved(below, Work(5.0))
        assert found.proven and (found.values is not None) == found_one
        if found.values is None:
            assert found.bound > below
        else:
            assert model.cost @ found.values == 3.0


@pytest.mark.parametrize("seed", range(5))
def test_what_a_replica_of_each_row_costs_at_least(seed: int):
    """Two models, three groups, two limits with prices: with each row, no more than the
    least of all plans with it that carry the demand (enumerated), and in whole numbers
    of parts the same."""
    random = np.random.default_rng(seed)
    group, cover = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array([0] * 5 + [1] * 3)
    rate = random.uniform(1, 3, 8).round(2)
    used, cost = random.uniform(0, 2, (2, 8)), random.uniform(1, 3, 8)
    covers = np.where(cover == np.arange(2)[:, None], rate, 0.0)
    model = LinearModel(
        sparse.csr_array(np.vstack([covers, used])),
        np.array([5.0, 3.5, -np.inf, -np.inf]), np.array([np.inf, np.inf, 5.0, 6.0]),
        np.zeros(8), np.full(8, np.inf), cost,
    )  # fmt: skip
    sums = sparse.csr_array((group == np.arange(3)[:, None]).astype(float))
    choice = Choice(model, sums, 3, np.ones(8, bool), lambda counts: True)
    numbers, price = np.array([2.0, 1.0, 2.0]), random.uniform(0, 1, 2)
    each, least = cost + price @ used, np.full(8, np.inf)
    pairs = itertools.combinations_with_replacement
    for first, one, last in itertools.product(
        pairs([0, 1, 2], 2), [3, 4], pairs([5, 6, 7], 2)
    ):
        rows = [*first, one, *last]
        counts = np.bincount(rows, minlength=8)
        if (covers @ counts >= model.row_low[:2]).all():
            total = float(each @ counts) - float(price @ [5.0, 6.0])
            least[rows] = np.minimum(least[rows], total)
    setting = Setting(choice, numbers, np.zeros(8), price)
    found = setting.with_each(price, np.ones(8, bool), 100_000)
    assert (found <= least + 1e-9).all()
    assert found[np.isfinite(least)] == pytest.approx(least[np.isfinite(least)])
    alone, _ = setting.alone(price, np.ones(8, bool))
    assert alone == pytest.approx(found.min(), abs=0.05) or not np.isfinite(alone)
