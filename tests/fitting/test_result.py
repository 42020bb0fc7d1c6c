"""What a fit says: errors by hand, groups and rows that count; what corrections rest
on; remarks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from diffenergy.corrections import prior_file
from diffenergy.fitting import FitResult, Identifiability, _ask
from diffenergy.fitting._result import Rows, _groups, fit_summary
from diffenergy.measurements import MeasurementTable, Predictions

from .builders import (
    Calibration,
    Fit,
    Flag,
    Parameter,
    Parameters,
    read_rows,
)

FREE = (Parameter("global", "energy_dram"), Parameter("gpu:a10", "energy_l2"))
HEAD = "gpu,op,fn,elements,m,n,k,dtype,time_s,avg_power_w"
MODELLED = (1.1, 1.2, 0.7, 1.0, 2.0, 1.5)
"""Predicted over measured times; powers are right."""


@pytest.fixture
def table(tmp_path: Path) -> MeasurementTable:
    """Products on two GPUs in turn, copies on two at the end; all in 1 s at 100 W."""
    products = [f"{gpu},gemm,,,64,64,64,bf16,1,100" for gpu in ("t4", "a10")] * 2
    copies = [f"{x},elementwise,copy,4096,,,,bf16,1,100" for x in ("t4", "h100-sxm")]
    return read_rows(tmp_path, HEAD, *products, *copies)


def rows(table: MeasurementTable, excluded=(), flagged=(), skipped=()) -> Rows:
    """Predictions of `MODELLED`, some rows left out."""
    time, power = np.array(MODELLED), np.full(6, 100.0)
    every = np.arange(6)
    why = np.where(np.isin(every, skipped), "no shape", "").astype(object)
    predictions = Predictions(time, time * power, power, np.full(6, "", object), why)
    flags = [Flag("runs.csv", i, i + 2, "time_s", 1.0, "odd", i) for i in flagged]
    return Rows(table, predictions, np.isin(every, excluded), flags)


def test_groups_follow_the_file_fitted_before_held_out(table: MeasurementTable):
    """By GPU and op in the order of their first rows; empty parts are left out."""
    some = rows(table, excluded=(0,), flagged=(1, 4), skipped=(2,))
    assert some.live.tolist() == [True, False, False, True, False, True]
    assert some.predictions.skipped[1] == ""
    result = list(_groups(rows(table, excluded=(2, 4), flagged=(5,))))
    keys = [(x["gpu"], x["op"], x["held_out"], x["rows"]) for x in result]
    assert keys == [
        ("t4", "gemm", False, 1), ("t4", "gemm", True, 1),
        ("a10", "gemm", False, 2), ("t4", "elementwise", True, 1),
    ]  # fmt: skip
    errors = [x["time_mape_pct"] for x in result]
    assert errors == pytest.approx([10, 30, 10, 100])
    assert [x["energy_mape_pct"] for x in result] == pytest.approx([10, 30, 10, 100])
    assert [x["power_mape_pct"] for x in result] == pytest.approx([0] * 4)
    assert {Path(x["file"]).name for x in result} == {"rows.csv"}


def posterior(covariance: Sequence[Sequence[float]]) -> Calibration:
    """A fit of two numbers in 7 evaluations that came to this covariance."""
    parameters = Parameters(FREE, {"global": {"energy_dram": 1e-11}})
    fit = Fit(parameters, np.zeros(2), np.array(covariance), 2.5, 7, False)
    return Calibration(fit, prior_file(), ())


def test_a_summary_of_two_tables(table: MeasurementTable):
    """Errors of rows that were not held out, drawn or not; those held out apart."""
    parts = [rows(table, excluded=(0,), flagged=(4,)), rows(table, flagged=(5,))]
    fitted, learnt = posterior(np.eye(2).tolist()), Identifiability((), ())
    result = fit_summary(parts, fitted, learnt)
    assert (result["rows"], result["parameters"], result["steps"]) == (12, 2, 7)
    assert result["cost"] == 2.5 and result["fitted_rows"] == 0
    one, two = [20, 30, 0, 50], [10, 20, 30, 0, 100]
    assert result["time_mape_pct"] == pytest.approx(np.mean(one + two))
    assert result["held_out"]["rows"] == 1
    assert result["held_out"]["time_mape_pct"] == pytest.approx(10)
    odd = [(x["row"], x["reason"]) for x in result["flagged"]]
    assert odd == [(4, "odd"), (5, "odd")]
    assert [x["line"] for x in result["flagged"]] == [6, 7]
    keys = {"file", "row", "line", "column", "value", "reason"}
    assert set(result["flagged"][0]) == keys
    assert len(result["groups"]) == 4 + 3
    none = fit_summary([rows(table)], fitted, learnt)
    assert none["held_out"] is None
    assert FitResult({}, prior_file()).interrupted  # has learnt nothing
    assert not FitResult({}, prior_file(), learnt).interrupted
    assert none["time_mape_pct"] == pytest.approx(np.mean([10, 20, 30, 0, 100, 50]))


@pytest.fixture
def runs(tmp_path: Path) -> MeasurementTable:
    """A product with a column that nothing reads."""
    row = "a10,gemm,64,64,64,bf16,10,red"
    return read_rows(tmp_path, "gpu,op,m,n,k,dtype,time_us,colour", row)


def test_the_posterior_of_a_file():
    """Four digits of each sd, two decimals of the lower triangle of correlations."""
    result = _ask._posterior(posterior([[4e-6, -1e-6], [-1e-6, 1.5239e-6]]))
    correlation = -1e-6 / (4e-6 * 1.5239e-6) ** 0.5
    assert result == {
        "parameters": ["global/energy_dram", "gpu:a10/energy_l2"],
        "sd": [0.002, 0.001234],
        "correlation": [1.0, round(correlation, 2), 1.0],
    }
    none = _ask._posterior(posterior([[1.0, -0.004], [-0.004, 1.0]]))["correlation"]
    assert str(none) == "[1.0, 0.0, 1.0]"


def test_what_corrections_rest_on(runs: MeasurementTable):
    groups = [{"file": "/a/b.csv", "rows": 3, "time_mape_pct": 1.23456, "x": None}]
    fitted, summary = posterior(np.eye(2).tolist()), {"groups": groups}
    done = _ask._with_sources(fitted, [runs, runs], {"seed": 5}, summary)
    on = done.fitted_on
    assert (on["sources"], on["seed"]) == (["rows.csv"], 5)
    short = {"file": "b.csv", "rows": 3, "time_mape_pct": 1.23, "x": None}
    assert on["errors"] == [short]
    assert done.posterior and done.posterior["sd"] == [1.0, 1.0]


def test_rows_that_were_left_out_and_an_early_end_are_told(runs: MeasurementTable):
    """Three rows, and how many more."""
    fitted = posterior(np.eye(2).tolist())
    for number in (0, 3, 4):
        flags = [
            Flag("a.csv", i, i + 2, "time_us", 3.0, "too fast", i)
            for i in range(number)
        ]
        ignored, *rest = _ask._notes([runs], flags, fitted, 8)
        assert ignored == "ignored columns: colour"
        first = [f"rows that cannot be true and were left out: {number}"]
        words = "a.csv, line {}, `time_us` is 3.0: too fast"
        shown = [words.format(i + 2) for i in range(min(number, 3))]
        more = [f"and {number - 3} more; `--json` lists all"] if number > 3 else []
        assert rest == [*first * bool(number), *shown, *more]
    for steps, early in ((7, True), (8, False)):
        *_, last = _ask._notes([runs], [], fitted, steps)
        reported = "stopped at 7 evaluations; `--max-steps` allows more"
        assert (last == reported) is early
