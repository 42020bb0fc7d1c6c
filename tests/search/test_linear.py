"""Both doors to linear solvers: the same models, answers by hand arithmetic."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from diffenergy.search import (
    Answer,
    LinearModel,
    Solving,
    Worker,
    highs,
    solve,
    worker,
)

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


def close(found: np.ndarray | None, wanted: Any, rtol: float = 1e-7) -> None:
    """Checks numbers that an answer has to have."""
    assert found is not None
    np.testing.assert_allclose(found, wanted, rtol, atol=1e-6)


REAL = model([1, 2], [[1, 1]], [3], [INF], [2, INF])
"""x + 2 y with x + y >= 3 and x <= 2: x = 2, y = 1, in all 4."""
KNAPSACK = model([-5, -4, -3], [[2, 3, 1]], [-INF], [5], [1, 1, 1], True)
"""Weights 2, 3, 1 in 5: the first two weigh 5 and are worth 9; first and third 8."""
MIXED = model([-1, -1], [[2, 2]], [-INF], [5], [INF, 0.75], [True, False])
"""x whole: 2 (x + y) <= 5, y <= 0.75. x = 2, y = 0.5: 2.5."""
NOTHING = model([1, 1], [[1, 1], [1, 1]], [3, -INF], [INF, 2], [INF, INF])
HALVES = model([1], [[2]], [1], [1], [1], True)
"""2 x = 1 has no whole x."""
EVERY = {"real": REAL, "knapsack": KNAPSACK, "mixed": MIXED}
LEAST = {"real": 4.0, "knapsack": -9.0, "mixed": -2.5}
VALUES = {"real": [2, 1], "knapsack": [1, 1, 0], "mixed": [2, 0.5]}


@pytest.fixture(scope="module")
def child() -> Iterator[Worker]:
    """One process for all: to start it takes most of a second."""
    with worker() as made:
        yield made


@pytest.fixture(params=["here", "child"])
def door(request: pytest.FixtureRequest) -> Callable[[LinearModel], Answer]:
    """HiGHS in this process, or OR-Tools in another."""
    if request.param == "here":
        return highs
    other = request.getfixturevalue("child")
    return lambda model: solve(model, Solving(time_limit=20.0), other)


@pytest.mark.parametrize("name", EVERY)
def test_the_least_by_hand(door, name):
    answer = door(EVERY[name])
    assert answer.status == "optimal"
    assert answer.incumbent == pytest.approx(LEAST[name])
    assert answer.bound is None or answer.bound == pytest.approx(LEAST[name])
    close(answer.values, VALUES[name])


@pytest.mark.parametrize("which", [NOTHING, HALVES], ids=["real", "whole"])
def test_what_cannot_be(door, which):
    answer = door(which)
    assert answer.status == "infeasible"
    assert answer.values is None and answer.incumbent is None


@pytest.mark.parametrize(
    ("solver", "name"),
    [
        ("glop", "real"), ("pdlp", "real"), ("highs", "real"), ("cp-sat", "knapsack"),
        ("highs", "knapsack"), ("scip", "knapsack"), ("highs", "mixed"),
        ("scip", "mixed"),
    ],
)  # fmt: skip
def test_every_solver_of_the_child(child, solver, name):
    answer = solve(EVERY[name], Solving(solver, 20.0), child)
    assert answer.status == "optimal"
    assert answer.incumbent == pytest.approx(LEAST[name], rel=1e-4)
    close(answer.values, VALUES[name], rtol=1e-3)


@pytest.mark.parametrize(
    ("solver", "name", "says"),
    [
        ("cp-sat", "real", "whole variables alone"),
        ("cp-sat", "mixed", "whole variables alone"),
        ("glop", "knapsack", "no whole variables"),
        ("nothing", "real", "allowed are cp-sat, glop, pdlp, highs, scip"),
    ],
)
def test_a_solver_that_does_not_fit(child, solver, name, says):
    with pytest.raises(ValueError, match=says):
        solve(EVERY[name], Solving(solver), child)


@pytest.mark.parametrize("method", ["highs", "highs-ds", "highs-ipm"])
def test_duals_are_what_a_unit_more_costs(method):
    """Least x + 3 y + z with x + y >= 4, x <= 3, y + z = 2, z <= 5: x = 3, y = z = 1,
    in all 7. A unit more of the first right side: y + 1, z - 1, so 2; of the second:
    x + 1, y - 1, z + 1, so -1; of the third: z + 1, so 1; the last does not bind."""
    given = model(
        [1, 3, 1],
        [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]],
        [4, -INF, 2, -INF],
        [INF, 3, 2, 5],
        [INF, INF, INF],
    )
    answer = highs(given, method=method)
    assert answer.incumbent == pytest.approx(7.0)
    close(answer.values, [3, 1, 1])
    close(answer.duals, [2, -1, 1, 0])


def test_rows_between_two_values():
    """1 <= x + y <= 3: least and largest sum."""
    rows = [[1.0, 1.0]]
    low = highs(model([1, 1], rows, [1], [3], [9, 9]))
    high = highs(model([-1, -1], rows, [1], [3], [9, 9]))
    assert (low.incumbent, high.incumbent) == (1.0, -3.0)
    close(low.duals, [1.0])
    close(high.duals, [-1.0])


def test_rows_at_most_in_short():
    """Most x + y with x + 2 y <= 4 and 0.5 <= x <= 2: x = 2, y = 1."""
    rows = sparse.coo_array(np.array([[1.0, 2.0]]))
    low, high = np.array([0.5, 0.0]), np.array([2.0, INF])
    given = LinearModel.at_most(-np.ones(2), rows, np.array([4.0]), low, high)
    close(highs(given).values, [2.0, 1.0])
    free = LinearModel.at_most(-np.ones(2), rows, np.array([4.0]))
    close(highs(free).values, [4.0, 0.0])


def test_no_end_is_unknown():
    answer = highs(model([-1], [[1]], [0], [INF], [INF]))
    assert answer.status == "unknown" and "unbounded" in answer.message


# --- limits


def hard(items: int = 60, knapsacks: int = 30) -> LinearModel:
    """A knapsack of many limits, which no solver proves in a second."""
    chance = np.random.default_rng(0)
    weight = chance.integers(1, 1000, (knapsacks, items))
    none = np.full(knapsacks, -INF)
    most, cost = weight.sum(axis=1) // 2, -weight.mean(axis=0).round()
    return model(cost, weight, none, most, np.ones(items), True)


def test_a_time_limit_ends_a_search(child):
    here = highs(hard(), time_limit=0.5)
    there = solve(hard(), Solving(time_limit=0.5), child)
    for answer in (here, there):
        assert answer.status == "feasible"
        assert answer.seconds < 5
        assert answer.gap is not None and answer.gap > 0


def test_branches_and_gaps_end_a_search():
    assert highs(hard(), nodes=1, time_limit=20.0).status == "feasible"
    near = highs(hard(), gap=0.5, time_limit=20.0)
    assert near.status == "optimal"
    assert near.gap is not None and near.gap <= 0.5


def test_the_same_seed_gives_the_same_answer(child):
    one, two = (solve(KNAPSACK, Solving(seed=5), child) for _ in range(2))
    assert one.values is not None and two.values is not None
    np.testing.assert_array_equal(one.values, two.values)


def test_ctrl_c_keeps_the_best():
    # a shell that starts jobs in the background has them ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(progress: Answer) -> None:
        if progress.values is not None:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        answer = solve(hard(), Solving(time_limit=60.0, watch=press))
    finally:
        signal.signal(signal.SIGINT, before)
    assert answer.interrupted and answer.values is not None


def test_a_child_that_dies_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match="ended with status 1"):
        solve(REAL)


def test_highs_prints_nothing():
    """Not even what no option turns off: stdout is the caller's."""
    code = (
        "import numpy as np, json\n"
        "from tests.search.test_linear import hard\n"
        "from diffenergy.search import highs\n"
        "print(json.dumps(highs(hard(), time_limit=0.3).status))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout) == "feasible", done.stderr
