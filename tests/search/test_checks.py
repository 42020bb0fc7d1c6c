"""Integer programs that end after so many checks of their limits."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from scipy import sparse

from diffenergy.search import LinearModel, highs


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


def test_an_ended_search_is_proven():
    model = LinearModel(
        sparse.csr_array([[3.0, 5.0]]), np.array([7.0]), np.array([np.inf]),
        np.zeros(2), np.full(2, 9.0), np.array([2.0, 3.0]), True,
    )  # fmt: skip
    found = highs(model, checks=1000)
    assert found.status == "optimal" and found.values is not None
    assert found.incumbent == 5.0  # 1 x 3 + 1 x 5 >= 7 for 2 + 3


def test_nothing_that_fits_is_infeasible():
    model = LinearModel(
        sparse.csr_array([[2.0]]), np.array([1.0]), np.array([1.0]), np.zeros(1),
        np.full(1, 9.0), np.ones(1), True,
    )  # fmt: skip
    found = highs(model)
    assert found.status == "infeasible" and found.values is None


@pytest.mark.slow
def test_ctrl_c_ends_a_search():
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        highs(market_split(50), time_limit=60.0)
    assert time.monotonic() - begun < 30.0
