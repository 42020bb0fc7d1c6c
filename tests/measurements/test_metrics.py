"""Error figures against hand arithmetic."""

import dataclasses
import json
from pathlib import Path

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


@pytest.fixture
def table(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(ROWS)
    return measurements.read([str(path)])


@pytest.fixture
def predictions():
    """Time 10 % high, 20 % low, 50 % high, not predicted; power 5 % low."""
    return Predictions(
        time_s=np.array([11e-6, 16e-6, 60e-6, NAN]),
        energy_j=np.array([11e-6 * 95, NAN, NAN, NAN]),
        avg_power_w=np.array([95.0, 50.0, 50.0, NAN]),
        grade=np.array(["calibrated", "calibrated", "forecast", ""], dtype=object),
        skipped=np.array(["", "", "", "no tensor cores"], dtype=object),
    )


def test_figures_of_one_quantity():
    errors = error_figures(
        np.array([10.0, 20.0, 40.0, NAN, 1.0]), np.array([11.0, 16.0, 60.0, 3.0, NAN])
    )
    assert errors.n == 3
    assert errors.mape == pytest.approx(80 / 3)  # 10, 20, 50
    assert errors.median == pytest.approx(20)
    assert errors.bias == pytest.approx(40 / 3)  # +10, -20, +50
    assert errors.p90 == pytest.approx(20 + 0.8 * 30)


def test_nothing_measured_is_none_and_not_zero():
    assert error_figures(np.array([NAN]), np.array([1.0])) == Errors(0)
    assert error_figures(np.array([]), np.array([])).mape is None


def test_groups_in_input_order_with_cells_as_read(table, predictions):
    groups = errors_by_group(table, predictions, ["series"])
    assert [group["series"] for group in groups] == ["b", "a"]
    first, second = groups
    assert (first["rows"], first["skipped"], first["time_rows"]) == (3, 1, 2)
    assert first["time_mape_pct"] == pytest.approx(30)
    assert first["time_bias_pct"] == pytest.approx(30)
    assert first["power_mape_pct"] == pytest.approx(5)
    assert first["power_rows"] == 1
    assert second["time_bias_pct"] == pytest.approx(-20)
    assert second["power_mape_pct"] is None and second["energy_p90_pct"] is None


def test_several_columns_and_arrays_of_the_table(table, predictions):
    groups = errors_by_group(table, predictions, ["gpu", "series"])
    assert [(g["gpu"], g["series"], g["rows"]) for g in groups] == [
        ("A10", "b", 1),
        ("a10", "a", 1),
        ("l4", "b", 2),
    ]
    assert [g["kind"] for g in errors_by_group(table, predictions, ["kind"])] == [
        "kernel"
    ]


def test_unknown_group_column_lists_the_columns(table, predictions):
    with pytest.raises(ValueError, match="`by` is 'color'; allowed .*`series`"):
        errors_by_group(table, predictions, ["color"])


def test_summary_is_json_with_null_for_the_unknown(table, predictions):
    summary = summary_json(table, predictions, by=["series"])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["rows"] == 4 and summary["skipped"] == 1
    assert summary["time_mape_pct"] == pytest.approx(80 / 3)
    assert summary["energy_mape_pct"] == pytest.approx(4.5)  # 1.1 x 0.95 = 1.045
    assert len(summary["groups"]) == 2
    assert summary_json(table, predictions)["groups"] == []

    unmeasured = dataclasses.replace(table, avg_power_w=np.full(4, NAN))
    assert summary_json(unmeasured, predictions)["power_mape_pct"] is None
