"""JSON, rows and CSV of schedules, against hand arithmetic."""

import csv
import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Plan, Problem, Rules, read_table
from diffenergy.dvfs._export import schedule_csv, schedule_rows
from diffenergy.dvfs._result import SCHEDULE_KEYS, outcome, schedule_summary
from diffenergy.dvfs._table import problem_from_columns

from .builders import Total

TABLE = """stage,instruction,frequency,memory_frequency,count,time,energy
forward,gemm,auto,auto,3,0.010,3.0
forward,gemm,1087.5,auto,3,0.011,2.4
forward,"a, b",auto,auto,1,0.020,5.0
forward,"a, b",auto,5001,1,0.018,4.0
backward,gemm,auto,auto,3,0.040,9.0
backward,gemm,1500,9501,3,0.042,7.0
"""
ALONE, MEMORY, LOW, BOTH = range(4)  # settings by rising SM clock, auto first


@pytest.fixture
def problem(tmp_path) -> Problem:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return read_table(str(path)).problem


def plan(*setting: int, **changes) -> Plan:
    """One setting a kernel; 3 x 0.011 + 0.018 + 3 x 0.040 s."""
    values: dict[str, Any] = dict(
        kernel=np.arange(3), setting=np.array(setting), count=np.array([3.0, 1.0, 3.0]),
        time=0.171, energy=38.2, value=38.2, bound=38.0, bound_energy=38.0,
        solver="by hand", switches=np.nan,
    )  # fmt: skip
    return Plan(**values | changes)


def test_json(problem):
    frontier = np.array([[0.0, -1.0], [6.0, -12.0]])
    default = Total(np.asarray(0.17), np.asarray(41.0))
    single = outcome(default, default, sm_clock_mhz=None)
    baselines = {"iteration": single, "power_limit": None}
    built = plan(LOW, MEMORY, ALONE)
    result = schedule_summary(
        problem, built, built, baselines, frontier, Objective(), Rules()
    )
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["free"]["energy_change_pct"] == result["energy_change_pct"]
    assert result["default"] == {
        "time_s": pytest.approx(3 * 0.010 + 0.020 + 3 * 0.040),
        "energy_j": pytest.approx(3 * 3.0 + 5.0 + 3 * 9.0),
    }
    assert result["time_change_pct"] == pytest.approx(100 * (0.171 / 0.17 - 1))
    assert result["energy_change_pct"] == pytest.approx(100 * (38.2 / 41 - 1))
    assert result["bound_energy_change_pct"] == pytest.approx(100 * (38 / 41 - 1))
    assert result["gap_pct"] == pytest.approx(100 * 0.2 / 38.2)
    assert result["baselines"]["power_limit"] is None
    assert result["baselines"]["iteration"]["energy_change_pct"] == 0
    assert result["frontier"] == [[0.0, -1.0], [6.0, -12.0]]
    assert [tuple(entry) for entry in result["schedule"]] == [SCHEDULE_KEYS] * 3
    assert [tuple(entry.values()) for entry in result["schedule"]] == [
        ("gemm", 3, 1087.5, None, 0.011, 2.4),
        ("a, b", 1, None, 5001.0, 0.018, 4.0),
        ("gemm", 3, None, None, 0.040, 9.0),
    ]


def test_rows(problem):
    """The default's too: in a model the limiter may hold it below the first setting."""
    rows = schedule_rows(problem, plan(LOW, MEMORY, BOTH))
    assert [row["stage"] for row in rows] == ["forward", "forward", "backward"]
    changes = [(row["time_change_pct"], row["energy_change_pct"]) for row in rows]
    np.testing.assert_allclose(changes, [(10, -20), (-10, -20), (5, -200 / 9)])
    fixed = dataclasses.replace(problem, default_time=1.1 * problem.default_time)
    rows = schedule_rows(fixed, plan(ALONE, ALONE, ALONE, solver="default"))
    assert [row["time_s"] for row in rows] == pytest.approx([0.011, 0.022, 0.044])
    assert {(x["time_change_pct"], x["sm_clock_mhz"]) for x in rows} == {(0.0, None)}


def test_csv_is_read_back(problem, tmp_path):
    """Beside the rows at default clocks, a schedule is a measured table."""
    text = schedule_csv(problem, plan(LOW, MEMORY, BOTH))
    cells = list(csv.DictReader(io.StringIO(text)))
    assert cells[1] == {
        "stage": "forward", "instruction": "a, b", "frequency": "auto",
        "memory_frequency": "5001", "count": "1", "time": "0.018", "energy": "4.0",
    }  # fmt: skip
    path = tmp_path / "schedule.csv"
    alone = [line for line in TABLE.splitlines() if "auto,auto" in line]
    path.write_text(text + "\n".join(alone))
    again = read_table(str(path)).problem
    assert again.kernels == problem.kernels and again.loops == problem.loops
    np.testing.assert_array_equal(again.settings, problem.settings)
    chosen = [0, 1, 2], [LOW, MEMORY, BOTH]
    np.testing.assert_array_equal(again.time[chosen], problem.time[chosen])
    np.testing.assert_array_equal(again.energy[chosen], problem.energy[chosen])


def test_csv_for_perseus():
    """Whole numbers only, where the default clock has a name."""
    words = np.array(["0", "0"], dtype=object)
    problem = problem_from_columns(
        words, np.array(["forward"] * 2, dtype=object),
        np.array([1.41e9, 1.395e9]), np.full(2, np.nan),
        np.array([0.1, 0.11]), np.array([20.0, 18.0]), np.ones(2),
        default=(1.41e9, np.nan),
    )  # fmt: skip
    one = {"kernel": np.array([0]), "count": np.ones(1)}
    for setting, line in enumerate(
        ["0,forward,1410,0.1,20.0", "0,forward,1395,0.11,18.0"]
    ):
        text = schedule_csv(problem, plan(setting, **one), (1.41e9, np.nan))
        assert text == f"stage,instruction,frequency,time,energy\n{line}\n"
