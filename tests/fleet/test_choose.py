"""One plan for each model, where the search for the cheapest choice has no time."""

import math
from typing import Any

import numpy as np
import pytest

from diffenergy.fleet import _candidates as choosing
from diffenergy.fleet._bound import solve_relaxation
from diffenergy.fleet._horizon import Search, _candidates
from diffenergy.fleet._integer import Solution
from diffenergy.fleet._problem import keeps_limits
from diffenergy.fleet._solve import useful
from diffenergy.fleet._work import Work

from .builders import random_fleet


@pytest.mark.parametrize("seed", (2, 3))
def test_a_choice_needs_no_search(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Rounded from the linear program of the choice it keeps GPUs and watts, and costs
    no less than, and at most 3 % more than, the one that a search finds."""
    problem = useful(random_fleet(seed, 20, 4, 200, clocks=6, batches=5))
    prices = solve_relaxation(problem, 0)
    assert prices is not None
    plans = _candidates(Search(problem, [prices], Work(0.0)), 0, None, 1)
    cost = problem.cost(0)
    best = choosing.choose(problem, 0, plans, None, None, Work(20.0))
    assert best is not None

    search, calls = choosing.minimize, []

    def no_time_at_first(*given: Any, **how: Any) -> Solution:
        calls.append(len(given[0]))
        return search(*given, **how) if calls[1:] else Solution(None, -math.inf, False)

    monkeypatch.setattr(choosing, "minimize", no_time_at_first)
    found = choosing.choose(problem, 0, plans, None, None, Work(20.0))
    assert found is not None and keeps_limits(problem, found[None])[0]
    assert len(calls) > 1 and calls[1] < calls[0]
    idle = problem.idle_cost(0)
    value, least = cost @ found + idle, cost @ best + idle
    assert least * (1 - 5e-4) <= value <= 1.03 * least
    carried = np.bincount(problem.rows.model, found * problem.rows.rate)
    assert (carried >= problem.demand[0] * (1 - 1e-9)).all()
