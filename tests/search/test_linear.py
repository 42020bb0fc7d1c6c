"""Linear programs: answers by hand arithmetic and enumeration, limits, Ctrl-C."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from diffenergy.search import Answer, LinearModel, Solving, highs, solve

INF = np.inf


def model(cost, rows, low, high, most, whole: Any = False) -> LinearModel:
    """Minimise cost @ x with low <= rows @ x <= high and 0 <= x <= most."""
    return LinearModel(
        sparse.csr_array(np.array(rows, float)),
        np.array(low, float),
        np.array(high, float),
        np.zeros(len(cost)),
        np.array(most, float),
        np.array(cost, float),
        np.array(whole) if isinstance(whole, list) else whole,
    )


def close(result: np.ndarray | None, wanted: Any) -> None:
    """Checks numbers that an answer has to have."""
    assert result is not None
    np.testing.assert_allclose(result, wanted, 1e-7, atol=1e-6)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises; jobs in the background of a shell begin with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


REAL = model([1, 2], [[1, 1]], [3], [INF], [2, INF])
"""x + 2 y with x + y >= 3 and x <= 2: x = 2, y = 1, in all 4."""
KNAPSACK = model([-5, -4, -3], [[2, 3, 1]], [-INF], [5], [1, 1, 1], True)
"""Weights 2, 3, 1 in 5: the first two weigh 5 and are worth 9; first and third 8."""
MIXED = model([-1, -1], [[2, 2]], [-INF], [5], [INF, 0.75], [True, False])
"""x whole: 2 (x + y) <= 5, y <= 0.75. x = 2, y = 0.5: 2.5."""


@pytest.fixture(params=[highs, solve], ids=["highs", "solve"])
def door(request: pytest.FixtureRequest) -> Callable[[LinearModel], Answer]:
    """One call of HiGHS, or all that `solve` tries with it."""
    return request.param


@pytest.mark.parametrize(
    ("program", "least", "values"),
    [(REAL, 4.0, [2, 1]), (KNAPSACK, -9.0, [1, 1, 0]), (MIXED, -2.5, [2, 0.5])],
    ids=["real", "knapsack", "mixed"],
)
def test_the_least_by_hand(door, program, least, values):
    answer = door(program)
    assert answer.status == "optimal"
    assert answer.incumbent == pytest.approx(least)
    assert answer.bound is None or answer.bound == pytest.approx(least)
    close(answer.values, values)


@pytest.mark.parametrize("cost", [True, False], ids=["least", "any"])
def test_small_programs_against_enumeration(door, cost):
    """Every x of 0 to 2 in four places, forty draws: the least cost, or whether any x
    will do."""
    draw, none = np.random.default_rng(3), 0
    every = np.stack(np.meshgrid(*[np.arange(3.0)] * 4), -1).reshape(-1, 4)
    for _ in range(40):
        rows = draw.integers(-3, 4, (2, 4)).astype(float)
        low = draw.integers(-6, 7, 2).astype(float)
        costs = draw.integers(-5, 6, 4) * float(cost)
        high = low + draw.integers(0, 2, 2)
        sums = every @ rows.T
        fits = every[((sums >= low) & (sums <= high)).all(1)]
        answer = door(model(costs, rows, low, high, [2] * 4, True))
        if not len(fits):
            assert answer.status == "infeasible" and answer.values is None
            none += 1
            continue
        assert answer.status == "optimal" and answer.values is not None
        assert (np.round(answer.values) == fits).all(1).any()
        assert answer.incumbent == pytest.approx((fits @ costs).min())
    assert 0 < none < 40


@pytest.mark.parametrize("method", ["highs", "highs-ds", "highs-ipm"])
def test_duals_are_what_a_unit_more_costs(method):
    """Least x + 3 y + z with x + y >= 4, x <= 3, y + z = 2, z <= 5: x = 3, y = z = 1,
    in all 7. A unit more of the first right side: y + 1, z - 1, so 2; of the second:
    x + 1, y - 1, z + 1, so -1; of the third: z + 1, so 1; the last does not bind."""
    rows = [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]]
    low, high = [4, -INF, 2, -INF], [INF, 3, 2, 5]
    program = model([1, 3, 1], rows, low, high, [INF, INF, INF])
    answer = highs(program, method=method)
    assert answer.incumbent == pytest.approx(7.0)
    close(answer.values, [3, 1, 1])
    close(answer.duals, [2, -1, 1, 0])


def test_no_end_is_unknown():
    answer = highs(model([-1], [[1]], [0], [INF], [INF]))
    assert answer.status == "unknown" and "Unbounded" in answer.message


# --- limits


def market_split(columns: int, rows: int = 5) -> LinearModel:
    """Equal halves of random numbers, the slack to be least (Cornuejols, Dawande 1998):
    hours of branches at 30 columns and more."""
    draw = np.random.default_rng(1)
    weights = draw.integers(0, 100, (rows, columns)).astype(float)
    both = np.hstack([weights, np.eye(rows), -np.eye(rows)])
    half = weights.sum(axis=1) // 2
    slack = np.r_[np.zeros(columns), np.ones(2 * rows)]
    high = np.r_[np.ones(columns), np.full(2 * rows, np.inf)]
    whole = slack == 0
    return LinearModel(
        sparse.csr_array(both), half, half, 0 * slack, high, slack, whole
    )


def test_checks_end_a_search_at_the_same_place():
    first, again = (highs(market_split(40), checks=60) for _ in range(2))
    assert first.status == "feasible" and 60 <= first.checks < 80
    assert first.values is not None and again.values is not None
    assert (first.values == again.values).all() and first.bound == again.bound
    assert again.checks == first.checks > highs(market_split(40), checks=20).checks


@pytest.mark.slow
def test_ctrl_c_ends_a_search():
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    with interruptible(), pytest.raises(KeyboardInterrupt):
        timer.start()
        highs(market_split(50), time_limit=60.0)
    assert time.monotonic() - begun < 30.0


def hard(items: int = 60, knapsacks: int = 30) -> LinearModel:
    """A knapsack of many limits, which no solver proves in a second."""
    chance = np.random.default_rng(0)
    weight = chance.integers(1, 1000, (knapsacks, items))
    none = np.full(knapsacks, -INF)
    most, cost = weight.sum(axis=1) // 2, -weight.mean(axis=0).round()
    return model(cost, weight, none, most, np.ones(items), True)


def test_a_time_limit_ends_a_search():
    limit = Solving(time_limit=0.5)
    for answer in (highs(hard(), time_limit=0.5), solve(hard(), limit)):
        assert answer.status == "feasible" and answer.seconds < 5
        assert answer.gap is not None and answer.gap > 0


def test_work_ends_a_search_at_the_same_place():
    """Integer programs by looks at the limits; real ones by iterations."""
    few, more = (Solving(time_limit=60.0, work=work) for work in (0.2, 0.4))
    first, again, longer = (solve(hard(), how) for how in (few, few, more))
    assert first.status == "feasible" and 0 < first.work < 0.4
    np.testing.assert_array_equal(again.values, first.values)
    assert (again.bound, again.work) == (first.bound, first.work)
    assert longer.work > first.work and first.bound is not None
    assert longer.bound is not None and longer.bound >= first.bound
    real = dataclasses.replace(hard(200, 100), whole=False)
    whole, half = solve(real), solve(real, Solving(work=0.7 * solve(real).work))
    assert whole.status == "optimal" and half.status == "unknown"
    assert 0 < half.work < whole.work and half.iterations < whole.iterations


def test_progress_gets_better():
    seen: list[Answer] = []
    answer = solve(hard(), Solving(work=0.3, watch=seen.append))
    costs = [one.incumbent for one in seen if one.incumbent is not None]
    assert len(costs) == len(seen) > 1 and costs == sorted(costs, reverse=True)
    assert answer.incumbent == pytest.approx(costs[-1])
    for one in seen:
        assert one.values is not None and one.bound is not None
        assert hard().cost @ one.values == pytest.approx(one.incumbent)
        assert one.bound <= costs[-1]


def test_an_error_of_the_watcher_ends_a_search():
    def watch(progress: Answer) -> None:
        raise OSError("no screen")

    with pytest.raises(OSError, match="no screen"):
        solve(hard(), Solving(time_limit=60.0, watch=watch))


def test_ctrl_c_keeps_the_best():
    def press(progress: Answer) -> None:
        if progress.values is not None:
            os.kill(os.getpid(), signal.SIGINT)

    with interruptible():
        answer = solve(hard(), Solving(time_limit=60.0, watch=press))
    assert answer.interrupted and answer.values is not None


def test_highs_prints_nothing():
    """Not even what no option turns off, of two searches at once: stdout is the
    caller's."""
    code = (
        "import json, concurrent.futures as futures\n"
        "from tests.search.test_linear import hard\n"
        "from diffenergy.search import highs\n"
        "with futures.ThreadPoolExecutor(2) as threads:\n"
        "    seconds = threads.map(lambda s: highs(hard(), time_limit=s), (0.3, 0.1))\n"
        "print(json.dumps([x.status for x in seconds]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout) == ["feasible"] * 2, done.stderr
