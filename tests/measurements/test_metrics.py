"""Error figures against hand arithmetic."""

import dataclasses
import json

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.measurements import (
    Errors,
    Predictions,
    error_figures,
    errors_by_group,
    summary_json,
)

NAN = float("nan")
ROWS = (
    "gpu,op,m,n,k,dtype,time_us,avg_power_w,series\n"
    "A10,gemm,8,8,8,bf16,10,100,b\n"
    "a10,gemm,8,8,8,bf16,20,,a\n"
    "l4,gemm,8,8,8,bf16,40,,b\n"
    "l4,gemm,8,8,8,bf16,50,,b\n"
)
PREDICTIONS = Predictions(
    time_s=np.array([11e-6, 16e-6, 60e-6, NAN]),
    energy_j=np.array([11e-6 * 95, NAN, NAN, NAN]),
    avg_power_w=np.array([95.0, 50.0, 50.0, NAN]),
    grade=np.array(["calibrated", "calibrated", "forecast", ""], dtype=object),
    skipped=np.array(["", "", "", "no tensor cores"], dtype=object),
)
"""Time 10 % high, 20 % low, 50 % high, not predicted; power 5 % low."""


@pytest.fixture
def table(write):
    return measurements.read([str(write(ROWS))])


def test_figures_of_one_quantity():
    errors = error_figures(
        np.array([10.0, 20.0, 40.0, NAN, 1.0]), np.array([11.0, 16.0, 60.0, 3.0, NAN])
    )
    assert errors.n == 3
    assert errors.mape == pytest.approx(80 / 3)  # 10, 20, 50
    assert errors.median == pytest.approx(20)
    assert errors.bias == pytest.approx(40 / 3)  # +10, -20, +50
    assert errors.p90 == pytest.approx(20 + 0.8 * 30)
    assert error_figures(np.array([NAN]), np.array([1.0])) == Errors(0)
    assert error_figures(np.array([]), np.array([])).mape is None


def test_groups_in_input_order_with_cells_as_read(table):
    first, second = errors_by_group(table, PREDICTIONS, ["series"])
    assert (first["series"], second["series"]) == ("b", "a")
    assert (first["rows"], first["skipped"], first["time_rows"]) == (3, 1, 2)
    assert first["time_mape_pct"] == first["time_bias_pct"] == pytest.approx(30)
    assert (first["power_mape_pct"], first["power_rows"]) == (pytest.approx(5), 1)
    assert second["time_bias_pct"] == pytest.approx(-20)
    assert second["power_mape_pct"] is None and second["energy_p90_pct"] is None
    groups = errors_by_group(table, PREDICTIONS, ["gpu", "series", "kind"])
    assert [(g["gpu"], g["series"], g["kind"], g["rows"]) for g in groups] == [
        ("A10", "b", "kernel", 1), ("a10", "a", "kernel", 1), ("l4", "b", "kernel", 2),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="`by` is 'color'; allowed .*`series`"):
        errors_by_group(table, PREDICTIONS, ["color"])


def test_summary_is_json_with_null_for_the_unknown(table):
    summary = summary_json(table, PREDICTIONS, by=["series"])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["rows"] == 4 and summary["skipped"] == 1
    assert summary["time_mape_pct"] == pytest.approx(80 / 3)
    assert summary["energy_mape_pct"] == pytest.approx(4.5)  # 1.1 x 0.95 = 1.045
    assert len(summary["groups"]) == 2
    assert summary_json(table, PREDICTIONS)["groups"] == []
    unmeasured = dataclasses.replace(table, avg_power_w=np.full(4, NAN))
    assert summary_json(unmeasured, PREDICTIONS)["power_mape_pct"] is None
