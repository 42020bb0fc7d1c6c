"""Hulls, their sums, the bound line and the knapsack."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffenergy.dvfs import _free as free
from diffenergy.dvfs._hulls import Line, hull_sum, stage_bound
from diffenergy.dvfs._problem import chosen, total, within_caps
from diffenergy.physics import stage_time
from diffenergy.search import lower_hull, pareto_front

from .builders import KINDS, all_choices, finite, random_problem

SEEDS = st.integers(0, 10_000)


@given(SEEDS)
def test_sum_of_hulls(seed: int):
    """Every vertex is a choice; every choice lies above."""
    rng = np.random.default_rng(seed)
    points = [tuple(rng.uniform(0, 5, (2, 4))) for _ in range(3)]
    found = hull_sum(points)
    choice = found.choice(np.arange(len(found.line.x)))
    for axis, values in enumerate(found.line):
        summed = sum(points[k][axis][choice[:, k]] for k in range(3))
        np.testing.assert_allclose(values, summed)
    every = all_choices(3, 4)
    x, y = (sum(points[k][axis][every[:, k]] for k in range(3)) for axis in range(2))
    assert np.all(np.interp(x, *found.line) <= y + 1e-9)


@pytest.mark.parametrize(
    ("most", "price"),
    [(0.5, 6), (1.5, 6), (2.0, 6), (2.5, 1), (4.0, 1), (4.5, 0), (9.0, 0), (np.inf, 0)],
)
def test_what_a_second_is_worth(most: float, price: float):
    """The slope of the line at the limit, nothing where it rises."""
    line = Line(np.array([1.0, 2.0, 4.0, 5.0]), np.array([10.0, 4.0, 2.0, 3.0]))
    assert line.price(most) == price
    assert Line(line.x[:1], line.y[:1]).price(most) == 0


def test_line_is_flat_behind_its_least():
    line = Line(np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 2.0]))
    at = line.at(np.array([0.5, 1.0, 1.5, 2.5, 9.0]))
    np.testing.assert_allclose(at, [np.inf, 4.0, 2.5, 1.0, 1.0])
    assert np.isinf(Line(np.empty(0), np.empty(0)).at(np.ones(2))).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_bound_lies_below_every_plan(kind: str, seed: int):
    problem = random_problem(seed, kind)
    line = free.bound(problem)
    spent = finite(chosen(problem, all_choices(*problem.time.shape)))
    kept = within_caps(problem, spent)
    time, energy = (x[kept] for x in total(problem, spent))
    assert np.all(line.at(time) <= energy * (1 + 1e-9))
    assert np.all(np.diff(line.x) > 0)
    assert np.all(
        np.diff(np.diff(line.y) / np.diff(line.x)) > -1e-6 * abs(line.y).max()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_bound_lies_below_every_plan_that_pays_for_being_slow(kind: str, seed: int):
    """Right of its least the line rises, and slow plans still lie above it: where the
    host's time bends it too."""
    problem = random_problem(seed, kind, turns=1)
    slower = problem.time / problem.time.min(1, keepdims=True)
    energy = problem.energy * np.where(problem.usable, slower, 1.0) ** 3
    caps = 1.2 * problem.power_cap
    problem = dataclasses.replace(problem, energy=energy, power_cap=caps)
    line = free.bound(problem)
    assert line.y[-1] > 1.02 * line.y.min()
    spent = finite(chosen(problem, all_choices(*problem.time.shape)))
    kept = within_caps(problem, spent)
    time, energy = (x[kept] for x in total(problem, spent))
    assert np.any(time > line.x[line.y.argmin()])
    assert np.all((line.x[0] <= time * (1 + 1e-9)) & (time <= line.x[-1] * (1 + 1e-9)))
    assert np.all(np.interp(time, *line) <= energy * (1 + 1e-9))


@pytest.mark.parametrize("host", [0.5, 2.0, 4.0, 6.5])
@pytest.mark.parametrize("slope", [-20.0, -200.0, 30.0])
def test_a_bent_line_keeps_close_below_its_curve(host: float, slope: float):
    """From a hull of 2, 3 and 6 s of GPU time: ends as they are, never above, and
    within a thousandth of the curve between."""
    problem = random_problem(0, "host")
    problem = dataclasses.replace(problem, host_time=np.array([host, 1.0]))
    line = Line(np.array([2.0, 3.0, 6.0]), np.array([900.0, 600.0, 600.0 + slope]))
    gpu = np.linspace(2.0, 6.0, 1001)
    time = stage_time(gpu, host)
    energy = np.interp(gpu, *line) + 60 * time
    found = stage_bound(problem, 0, line)
    assert found.x[[0, -1]] == pytest.approx(time[[0, -1]])
    least = np.interp(time, *found)
    hull = lower_hull(time, energy)
    curve = np.interp(time, time[hull], energy[hull])
    assert np.all(least <= energy * (1 + 1e-9))
    assert least == pytest.approx(curve, rel=2e-3)
    capped = dataclasses.replace(problem, power_cap=np.array([200.0, np.inf]))
    cool = time[energy <= 200 * time * (1 + 1e-9)]
    start = stage_bound(capped, 0, line).x
    if not len(cool):
        assert len(start) == 0
    else:
        assert start[0] == pytest.approx(cool[0], rel=2e-3)


def test_bound_touches_the_best_plans():
    """Without host time and caps the line is the hull of all plans."""
    problem = random_problem(7)
    line = free.bound(problem)
    spent = finite(chosen(problem, all_choices(*problem.time.shape)))
    time, energy = total(problem, spent)
    hull = lower_hull(time, energy)
    np.testing.assert_allclose(line.x, time[hull])
    np.testing.assert_allclose(line.y, energy[hull])


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_knapsack_finds_the_front(seed: int):
    """With fine steps, every undominated choice of a small problem."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 20, (3, 4)).astype(float)
    cost = rng.integers(1, 20, (3, 4)).astype(float)
    weight[1, 2] = np.inf
    rows = np.arange(3)
    every = all_choices(3, 4)

    def front(choice: np.ndarray) -> list[tuple[float, float]]:
        sums = weight[rows, choice].sum(1), cost[rows, choice].sum(1)
        best = pareto_front(*sums)
        return list(zip(*(x[best] for x in sums), strict=True))

    usable = every[every[:, 1] != 2]
    found = free.choices(weight, cost)
    lightest = [free.choices(weight, cost, most=0.0)[0]]
    assert front(np.concatenate([found, lightest])) == front(usable)


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_a_knapsack_are_fine(seed: int):
    """Weights of any size: the front of 1024 choices, to a step in 20,000."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(1, 2, (5, 4))
    cost = 3 - weight + rng.normal(0, 0.02, (5, 4))
    every, found = all_choices(5, 4), free.choices(weight, cost)
    rows = np.arange(5)
    wanted = pareto_front(*(x[rows, every].sum(1) for x in (weight, cost)))
    known = {tuple(x) for x in found.tolist()}
    missed = [x for x in every[wanted].tolist() if tuple(x) not in known]
    assert len(missed) <= 1 and len(wanted) > 30  # two within a step
    coarse = free.choices(weight, cost, steps=200)
    assert len(coarse) < len(found)
    most = float(np.median(weight[rows, every].sum(1)))
    some = free.choices(weight, cost, most)
    assert weight[rows, some].sum(1).max() <= most * (1 + 1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_better_plans_take_no_other_settings(kind: str, seed: int):
    """Of all choices: those with less energy within a limit, whatever the price; and
    some point lies below each of them, however coarse the steps."""
    problem = random_problem(seed, kind)
    choice = all_choices(*problem.time.shape)
    choice = choice[problem.usable[np.arange(4), choice].all(1)]
    spent = chosen(problem, choice)
    found, cool = total(problem, spent), within_caps(problem, spent)
    most = float(np.median(found.time))
    inside = np.flatnonzero(found.time <= most)
    order = inside[np.argsort(found.energy[inside])]
    value = float(found.energy[order[20]])
    for price in (0.0, 50.0, 300.0):
        window = free.Window(most, price, value + price * most)
        allowed = free.worthwhile(problem, window)
        assert allowed[np.arange(4), choice[order[:20]]].all()
        for steps in (200, 5000):
            low = free.least_totals(problem, window, steps)
            for better in order[:20][cool[order[:20]]]:
                below = low.time <= found.time[better] * (1 + 1e-9)
                assert np.any(below & (low.energy <= found.energy[better] * (1 + 1e-9)))
    assert not free.worthwhile(problem, window).all()


def test_stages_that_nothing_sets_apart_are_one():
    """A host or a cap of any stage keeps them."""
    plain = random_problem(0)
    one = free.flat(plain)
    assert one.stages == ("all",) and not one.stage.any()
    assert np.isinf(one.power_cap).all() and one.host_time.tolist() == [0]
    assert one.wait_power.tolist() == [0] and one.time is plain.time
    for name, first in (("host_time", 1.0), ("power_cap", 200.0)):
        for stage in range(2):
            values = getattr(plain, name).copy()
            values[stage] = first
            changed = dataclasses.replace(plain, **{name: values})
            assert free.flat(changed) is changed
    alone = free.only_stage(random_problem(0, "both"), 1)
    assert alone.kernels == plain.kernels[2:] and alone.stages == ("second",)
    assert alone.wait_power.tolist() == [80] and len(alone.host_time) == 1
