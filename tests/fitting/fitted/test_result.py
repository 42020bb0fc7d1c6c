"""Errors of a fit by hand: rows that count, groups, and those held out."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting._calibrate import Calibration
from diffenergy.fitting._fit import Fit
from diffenergy.fitting._flags import Flag
from diffenergy.fitting._identifiability import Identifiability
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._result import FitResult, Rows, _groups, fit_summary
from diffenergy.measurements import MeasurementTable, Predictions

HEAD = "gpu,op,fn,elements,m,n,k,dtype,time_s,avg_power_w"
MADE = (1.1, 1.2, 0.7, 1.0, 2.0, 1.5)
"""Predicted over measured times; powers are right."""


@pytest.fixture
def table(tmp_path: Path) -> MeasurementTable:
    """Products on two GPUs in turn, copies on two at the end; all in 1 s at 100 W."""
    products = [f"{gpu},gemm,,,64,64,64,bf16,1,100" for gpu in ("t4", "a10")] * 2
    copies = [f"{x},elementwise,copy,4096,,,,bf16,1,100" for x in ("t4", "h100-sxm")]
    (tmp_path / "runs.csv").write_text("\n".join([HEAD, *products, *copies]))
    return measurements.read([str(tmp_path / "runs.csv")])


def rows(
    table: MeasurementTable,
    held: tuple[int, ...] = (),
    flagged: tuple[int, ...] = (),
    skipped: tuple[int, ...] = (),
) -> Rows:
    """Predictions of `MADE`, some rows left out."""
    time, power = np.array(MADE), np.full(6, 100.0)
    every = np.arange(6)
    why = np.where(np.isin(every, skipped), "no shape", "").astype(object)
    made = Predictions(time, time * power, power, np.full(6, "", object), why)
    flags = [Flag("runs.csv", i, "time_s", 1.0, "odd", i) for i in flagged]
    return Rows(table, made, np.isin(every, held), flags)


def test_rows_that_count(table: MeasurementTable):
    found = rows(table, held=(0,), flagged=(1, 4), skipped=(2,))
    assert found.live.tolist() == [True, False, False, True, False, True]
    assert found.predictions.skipped[1] == ""


def test_groups_follow_the_file_fitted_before_held_out(table: MeasurementTable):
    """By GPU and op in the order of their first rows; empty parts are left out."""
    found = list(_groups(rows(table, held=(2, 4), flagged=(5,))))
    keys = [(x["gpu"], x["op"], x["held_out"], x["rows"]) for x in found]
    assert keys == [
        ("t4", "gemm", False, 1), ("t4", "gemm", True, 1),
        ("a10", "gemm", False, 2), ("t4", "elementwise", True, 1),
    ]  # fmt: skip
    errors = [x["time_mape_pct"] for x in found]
    assert errors == pytest.approx([10, 30, 10, 100])
    assert [x["energy_mape_pct"] for x in found] == pytest.approx([10, 30, 10, 100])
    assert [x["power_mape_pct"] for x in found] == pytest.approx([0] * 4)
    assert {Path(x["file"]).name for x in found} == {"runs.csv"}


@pytest.fixture
def fitted() -> Calibration:
    parameters = Parameters((Parameter("global", "energy_dram"),), {})
    fit = Fit(parameters, np.zeros(1), np.eye(1), 2.5, 9, False)
    return Calibration(fit, prior_file(), ())


def test_a_summary_of_two_tables(table: MeasurementTable, fitted: Calibration):
    """Errors of rows that were not held out, drawn or not; those held out apart."""
    parts = [rows(table, held=(0,), flagged=(4,)), rows(table, flagged=(5,))]
    learnt = Identifiability((), ())
    found = fit_summary(parts, fitted, learnt)
    assert (found["rows"], found["parameters"], found["steps"]) == (12, 1, 9)
    assert found["cost"] == 2.5 and found["fitted_rows"] == 0
    one, two = [20, 30, 0, 50], [10, 20, 30, 0, 100]
    assert found["time_mape_pct"] == pytest.approx(np.mean(one + two))
    assert found["held_out"]["rows"] == 1
    assert found["held_out"]["time_mape_pct"] == pytest.approx(10)
    assert [(x["row"], x["reason"]) for x in found["flagged"]] == [
        (4, "odd"),
        (5, "odd"),
    ]
    assert set(found["flagged"][0]) == {"file", "row", "column", "value", "reason"}
    assert len(found["groups"]) == 4 + 3
    none = fit_summary([rows(table)], fitted, learnt)
    assert none["held_out"] is None
    assert none["time_mape_pct"] == pytest.approx(np.mean([10, 20, 30, 0, 100, 50]))


def test_an_interrupted_fit_has_learnt_nothing():
    assert FitResult({}, prior_file()).interrupted
    assert not FitResult({}, prior_file(), Identifiability((), ())).interrupted
