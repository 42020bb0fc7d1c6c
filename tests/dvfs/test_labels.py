"""Exact schedules with stalls of small problems, against all there are."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Rules, Switching, plan, solve

from .builders import all_choices, all_plans, best_value, positions, random_problem

CLOCKS = ("auto", "1500", "1200", "900")
STALL = 0.04
"""s; a launch takes 1 to 3 s at full clocks, in which a change saves some joules."""


def random_table(seed: int, launches: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Times (s) and energies (J) of launches at `CLOCKS`: slower mostly takes less."""
    rng = np.random.default_rng(seed)
    clock = np.array([1.0, 0.85, 0.7, 0.5])
    bound = rng.uniform(0.05, 1.0, (launches, 1))
    time = rng.uniform(1.0, 3.0, (launches, 1)) * (bound / clock + 1 - bound)
    power = 100 + 200 * bound * clock**2 * rng.uniform(0.8, 1.2, time.shape)
    return time, time * power


def written(folder: Path, time: np.ndarray, energy: np.ndarray) -> Path:
    rows = ["stage,instruction,frequency,count,time,energy"]
    for i, (times, energies) in enumerate(zip(time, energy, strict=True)):
        for clock, t, e in zip(CLOCKS, times, energies, strict=True):
            rows.append(f"forward,k{i},{clock},1,{float(t)!r},{float(e)!r}")
    path = folder / "table.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def enumerated(time: np.ndarray, energy: np.ndarray, slowdown: float) -> float:
    """Least J of all choices of a clock for every launch; a change stalls for `STALL`
    at the least power of the table."""
    choice = all_choices(*time.shape)
    launch, changes = np.arange(len(time)), (np.diff(choice, axis=1) != 0).sum(1)
    took = time[launch, choice].sum(1) + STALL * changes
    spent = energy[launch, choice].sum(1) + STALL * (energy / time).min() * changes
    return float(spent[took <= time[:, 0].sum() * (1 + slowdown / 100)].min())


@pytest.mark.parametrize("seed", range(20))
def test_tables_of_six_launches_are_planned_exactly(seed: int, tmp_path: Path):
    """Within 0.05 % of the least of all 4,096 schedules, and the gap says so."""
    time, energy = random_table(seed)
    table = written(tmp_path, time, energy)
    for slowdown in (2.0, 6.0):
        best = enumerated(time, energy, slowdown)
        result = plan(
            table=table, max_slowdown=slowdown, switching=Switching("stall", STALL)
        )
        assert best * (1 - 1e-9) <= result.energy <= best * 1.0005
        assert result.bound <= best * (1 + 1e-9)
        assert result.summary["gap_pct"] <= 0.1
        change = result.summary["bound_energy_change_pct"]
        assert change == pytest.approx(100 * (result.bound / result.default.energy - 1))


@pytest.mark.parametrize("per_launch", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_loops_and_products(seed: int, per_launch: bool):
    """Turns of loops come back to their first clock; E T^n falls along labels too."""
    problem = random_problem(seed, turns=1 if per_launch else 3)
    switching = Switching("stall", 0.05, 2.0)
    places = positions(problem, 0.05, 2.0 + 0.05 * problem.power.min(), per_launch)
    every = all_plans(places)
    for objective in (
        Objective(max_slowdown=3.0), Objective("edp"), Objective("ed2p", 5.0),
    ):  # fmt: skip
        best = best_value(problem, every, objective)
        rules = Rules(per_launch=per_launch, switching=switching)
        result = solve(problem, objective, rules)
        assert best * (1 - 1e-9) <= result.value <= best * 1.0005
        assert best * 0.999 <= result.bound <= best * (1 + 1e-9)
