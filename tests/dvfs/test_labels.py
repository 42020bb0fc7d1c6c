"""Exact schedules with stalls of small problems, against all there are."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.dvfs import Switching, plan

from .builders import all_choices

CLOCKS = ("auto", "1500", "1200", "900")
STALL = 0.04
"""s; a launch takes 1 to 3 s at full clocks, in which a change saves some joules."""


def written(folder: Path, time: np.ndarray, energy: np.ndarray) -> Path:
    """A table of launches at `CLOCKS`."""
    rows = ["stage,instruction,frequency,count,time,energy"]
    for (i, j), t in np.ndenumerate(time):
        cells = f"{float(t)!r},{float(energy[i, j])!r}"
        rows.append(f"forward,k{i},{CLOCKS[j]},1,{cells}")
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


@pytest.mark.parametrize("seed", range(8))
def test_tables_of_six_launches_are_planned_exactly(seed: int, tmp_path: Path):
    """Within 0.05 % of the least of all 4,096 schedules, and the gap says so."""
    rng, clock = np.random.default_rng(seed), np.array([1.0, 0.85, 0.7, 0.5])
    bound = rng.uniform(0.05, 1.0, (6, 1))
    time = rng.uniform(1.0, 3.0, (6, 1)) * (bound / clock + 1 - bound)
    energy = time * (100 + 200 * bound * clock**2 * rng.uniform(0.8, 1.2, (6, 4)))
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
