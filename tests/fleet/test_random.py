"""Random fleets against a list of all their plans."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffenergy import fleet
from diffenergy.fleet import _candidates, _solve
from diffenergy.fleet._problem import keeps_limits
from diffenergy.fleet._work import Work

from .builders import (
    best_value,
    least_watts,
    random_fleet,
    small_fleet,
    whole_fleet,
    write_fleet,
    write_problem,
)


def seeds(count: int, quick: int) -> list[Any]:
    """Seeds from `quick` on are slow."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=[slow] if n >= quick else []) for n in range(count)]


@pytest.mark.parametrize("seed", seeds(60, quick=6))
def test_fleets_are_planned_best(tmp_path: Path, seed: int):
    """The plan of a small fleet is the best of all plans, and proven to be."""
    problem = small_fleet(seed, clocks=5 if seed % 5 == 0 and seed > 5 else 3)
    best = best_value(problem) / 3.6e6  # J times g/kWh
    path = write_problem(tmp_path, problem)
    if not np.isfinite(best):
        with pytest.raises(fleet.NoPlan):
            fleet.plan(path, objective="carbon")
        return
    result = fleet.plan(path, objective="carbon")
    assert result.value == pytest.approx(best, rel=1e-7)
    assert result.bound == pytest.approx(best, rel=1e-7)
    assert result.summary["bound_by_prices"] <= best * (1 + 1e-9)
    assert keeps_limits(result.solved.problem, result.solved.counts).all()


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_a_search_claims_no_more_than_is_true(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without the program of all slots: the plan is no better than the best of all
    plans, the bound no higher."""
    monkeypatch.setattr(_solve, "_TINY", 0)
    monkeypatch.setattr(_solve, "_SMALL", 0)
    problem = small_fleet(seed, clocks=3)
    best = best_value(problem) / 3.6e6
    path = write_problem(tmp_path, problem)
    try:
        result = fleet.plan(path, objective="carbon")
    except fleet.NoPlan as refusal:
        assert not np.isfinite(best) or refusal.reason["limit"] == "time"
        return
    assert keeps_limits(result.solved.problem, result.solved.counts).all()
    assert best * (1 - 1e-9) <= result.value <= 1.1 * best
    least = result.summary["bound_by_prices"] * (1 - 1e-9)
    assert least <= result.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    "seed, slots, program", [*((x, 1, False) for x in range(6)), (0, 10, True)]
)
def test_bounds_of_unproven_plans(
    seed: int, slots: int, program: bool, tmp_path: Path, monkeypatch
):
    """Six models whose best plan dynamic programming knows: one slot by the search
    alone, ten slots by the program of all that is cut short. Plan and bound are within
    0.3 % of each other, with the best plan between them."""
    if not program:
        monkeypatch.setattr(_solve, "_SMALL", 0)
        monkeypatch.setattr(_solve, "_TINY", 0)
    points, demand = whole_fleet(seed, models=6, slots=slots)
    best = sum(least_watts(points, wanted, gpus=25) for wanted in demand)
    pools = [
        {"name": gpu, "gpu": gpu, "count": 25, "site": "main", "parked_w": 0}
        for gpu in "xy"
    ]
    path = write_fleet(tmp_path, points, demand, pools)
    result = fleet.plan(path, max_gap=0.003, effort=0.1 if program else 20)
    assert best * (1 - 1e-9) <= result.value <= best * 1.003
    assert best * 0.997 <= result.bound <= best * (1 + 1e-9)
    assert result.summary["bound_by_prices"] < result.bound
    assert result.gap > 1e-6 or not program


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_cuts_bound_as_the_linear_program_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prices of many rows come from cuts, which end 2e-5 below the linear program."""
    path = write_problem(tmp_path, small_fleet(seed, clocks=5, starts=False))
    bounds = []
    for most in (_solve._LINEAR, 0):
        monkeypatch.setattr(_solve, "_LINEAR", most)
        result = fleet.plan(path, objective="carbon")
        bounds.append(result.summary["bound_by_prices"])
    assert bounds[1] == pytest.approx(bounds[0], rel=3e-5)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_rounded_choices_are_nearly_the_best(
    monkeypatch: pytest.MonkeyPatch, seed: int
):
    """Of some 200 plans of twelve models, at 100 W a GPU: within 1 % of the search."""
    fleet = random_fleet(seed, 12, 4, 80, used=0.5, tight=0.95)
    prices = np.r_[np.full(4, 100.0), np.zeros(2)]
    plans = _candidates.candidates(fleet, 0, prices, width=8, most=120)
    watts, choices, rounded = [], list[Any](), _candidates._rounded
    monkeypatch.setattr(
        _candidates, "_rounded", lambda *x: choices.append(rounded(*x)) or choices[-1]
    )
    for many in (len(plans), 0):
        monkeypatch.setattr(_candidates, "_MANY", many)
        counts = _candidates.choose(fleet, 0, plans, None, None, Work(5.0))
        assert counts is not None and keeps_limits(fleet, counts[None]).all()
        watts.append(float(fleet.cost(0) @ counts))
    assert watts[0] <= watts[1] <= 1.01 * watts[0]
    assert len(choices) == 1 and choices[0] is not None
