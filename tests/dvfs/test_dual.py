"""Lines of a search by prices and what caps do to them, by hand."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Problem
from diffenergy.dvfs._dual import Search, _chord, _weights, search
from diffenergy.dvfs._positions import Positions, positions
from diffenergy.dvfs._problem import Loop
from diffenergy.physics import stage_time

from .builders import random_problem

STALL = 0.25


@pytest.fixture
def problem() -> Problem:
    """Two kernels three times in a loop, then a third one in a stage of its own."""
    inf = np.inf
    return dataclasses.replace(
        random_problem(0, num_kernels=3, num_settings=3),
        stage=np.array([0, 0, 1]), count=np.array([3.0, 3.0, 1.0]),
        time=np.array([[1.0, 2.0, inf], [3.0, 5.0, 4.0], [7.0, 6.0, 9.0]]),
        energy=np.array([[90.0, 80.0, inf], [300.0, 200.0, 250.0], [1.0, 2.0, 3.0]]),
        loops=(Loop((0, 1), 3), Loop((2,), 1)),
        host_time=np.array([14.0, 0.0]), wait_power=np.array([40.0, 50.0]),
        power_cap=np.array([100.0, np.inf]),
    )  # fmt: skip


@pytest.fixture
def places(problem: Problem) -> Positions:
    return positions(problem, STALL, 0.0, False)


def test_a_chord_lies_above_the_stage_times(places: Positions):
    """From 3 x (1 + 3) s to 3 x (2 + 5) s and stalls: before each launch but the first,
    and (of any loop) where a turn meets its start; the other stage has no host."""
    slope, rest = _chord(places)
    stalls = STALL * np.array([2 + 3 + 2, 1 + 2])
    low, high = np.array([12.0, 6.0]), np.array([21.0, 9.0]) + stalls
    for x in (low, high):
        assert rest + slope * x == pytest.approx(stage_time(x, np.array([14.0, 0.0])))
    middle = np.linspace(low, high, 50)
    above = rest + slope * middle - stage_time(middle, np.array([14.0, 0.0]))
    assert (above >= -1e-9).all() and above[20, 0] > 0.1
    assert slope[1] == pytest.approx(1) and rest[1] == pytest.approx(0)


def test_time_costs_no_more_than_the_ceiling(places: Positions):
    """(price - credit) / weight is the ceiling and the waiting power; the constant is
    what the cap takes of the chord. Below the ceiling, and without one, nothing."""
    slope, rest = _chord(places)
    ceiling = np.array([30.0, np.inf])
    price = np.array([200.0, 200.0])
    weight, credit, constant = _weights(places, ceiling, price)
    assert (price - credit)[0] / weight[0] == pytest.approx(30 + 40)
    multiplier = (200 - 70) / (70 + (100 - 40) * slope[0])
    assert weight[0] == pytest.approx(1 + multiplier)
    assert constant[0] == pytest.approx(-multiplier * 60 * rest[0])
    assert (weight[1], credit[1], constant[1]) == (1, 0, 0)
    for free in (np.array([160.0, np.inf]), np.full(2, np.inf)):
        found = np.stack(_weights(places, free, price))
        assert found == pytest.approx(np.array([[1, 1], [0, 0], [0, 0]]))
    low = dataclasses.replace(
        places,
        problem=dataclasses.replace(places.problem, power_cap=np.array([39.0, np.inf])),
    )  # a cap below the waiting power prices nothing
    assert _weights(low, ceiling, price)[0].tolist() == [1, 1]


def lined(places: Positions, *planes: tuple[float, float]) -> Search:
    """A search that knows energy + price x time >= least."""
    found = search(places, None)
    for price, least in planes:
        found.price.append(price)
        found.least.append(least)
    return found


def test_the_line_of_half_planes(places: Positions):
    """E >= 20 - 10 T, 11 - T and 6: corners at 1 s, 10 J and 5 s, 6 J. A weaker plane
    of a price, and one that touches nothing, change nothing."""
    planes = [(1.0, 11.0), (10.0, 20.0), (0.0, 6.0)]
    for more in ([], [(10.0, 19.0)], [(0.5, 8.0)], [(1.0, 10.0), (2.0, 11.5)]):
        line = lined(places, *planes, *more).line()
        assert line.x == pytest.approx(np.array([1.0, 5.0]))
        assert line.y == pytest.approx(np.array([10.0, 6.0]))
    assert line.x[0] < 1.0  # by 1e-9: the fastest plan lies on it
    again = lined(places, *planes, (10.0, 25.0)).line()  # 25 - 10 T meets 11 - T
    assert again.x == pytest.approx(np.array([14 / 9, 5.0]))


def test_the_best_plan_at_a_price(problem: Problem):
    """Without stalls and caps every kernel takes its own best: energy + price x time of
    the plan is the sum of what each costs at least."""
    problem = dataclasses.replace(
        problem, host_time=np.zeros(2), power_cap=np.full(2, np.inf)
    )
    found = search(positions(problem, 0.0, 0.0, False), None)
    for price in (0.0, 30.0, 1e4):
        plan = found.at(price)
        assert plan == len(found.time) - 1
        cost = problem.energy + price * np.where(problem.usable, problem.time, 0.0)
        least = float(problem.count @ cost.min(1))
        assert found.energy[plan] + price * found.time[plan] == pytest.approx(least)
        assert found.least[-1] == pytest.approx(least) and found.price[-1] == price
        assert found.settings[plan].tolist() == cost.argmin(1).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_the_plans_at_a_price(seed: int):
    """Tangents of a stage time find several; a host that waits makes them differ."""
    found = search(positions(random_problem(seed, "host"), 0.0, 0.0, False), None)
    several = 0
    for price in np.geomspace(1.0, 3e3, 30):
        first = len(found.time)
        plan = found.at(float(price))
        time, energy = (x[first:] for x in found.total)
        cost = energy + price * time
        assert plan >= first and cost[plan - first] == cost.min()
        assert max(found.least[first:]) <= cost.min() * (1 + 1e-9)
        several += len(np.unique(cost)) > 1 and energy.argmin() != cost.argmin()
    assert several
