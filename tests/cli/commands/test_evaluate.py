import csv

import numpy as np
import pytest

import diffenergy as de
from diffenergy.fitting import _predict as predict_module
from diffenergy.measurements import Predictions

TABLE = """gpu,op,rows,cols,dtype,time_us,avg_power_w,colour
a10,softmax,1024,1024,fp16,10,100,red
a10,softmax,2048,1024,fp16,20,100,blue
A100-SXM-80GB,softmax,2048,1024,fp16,10,200,blue
"""


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text(TABLE)
    return file


@pytest.fixture
def predicted(monkeypatch):
    """Predictions that are 10 % too slow at the measured power."""

    def predict(table, corrections, cards=None):
        time = 1.1 * table.time_s
        grade = np.full(table.num_rows, "calibrated", dtype=object)
        power = table.avg_power_w
        return Predictions(time, time * power, power, grade, table.skipped)

    monkeypatch.setattr(predict_module, "predict", predict)


def test_errors_by_hand(run, predicted, table):
    outcome = run("evaluate", table, "--by", "gpu,colour", "--json")
    result = outcome.json
    assert result["rows"] == 3
    assert result["time_mape_pct"] == pytest.approx(10)
    assert result["time_bias_pct"] == pytest.approx(10)
    assert result["power_mape_pct"] == pytest.approx(0)
    assert result["energy_mape_pct"] == pytest.approx(10)
    groups = [(x["gpu"], x["colour"], x["rows"]) for x in result["groups"]]
    assert groups == [("a10", "red", 1), ("a10", "blue", 1), (groups[2][0], "blue", 1)]
    assert "ignored columns: colour" in outcome.err
    shown = run("evaluate", table, "--by", "gpu,colour").out
    assert "a10, red" in shown and "10.0 (+10.0)" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_every_row_is_written(run, predicted, table, tmp_path):
    both = de.measurements.read([table, f"softmax={table}"])
    assert both.num_rows == 6 and de.fitting.evaluate(both).summary["rows"] == 6
    out = tmp_path / "rows.csv"
    assert run("evaluate", table, "--out", out).code == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["row"] for row in rows] == ["0", "1", "2"]
    assert float(rows[1]["time_s_pred"]) == pytest.approx(22e-6)
    assert rows[0]["colour"] == "red" and rows[0]["grade"] == "calibrated"


@pytest.mark.slow
def test_rows_are_really_predicted(run, table):
    table.write_text("".join(TABLE.splitlines(keepends=True)[:3]))  # one GPU
    out = table.parent / "rows.csv"
    result = run("evaluate", table, "--json", "--out", out).json
    assert result["skipped"] == 0 and result["time_rows"] == 2
    assert result["time_mape_pct"] < 100
    rows = list(csv.DictReader(out.read_text().splitlines()))
    for row in rows:
        for name in ("time_s_pred", "energy_j_pred", "avg_power_w_pred"):
            keys = (f"{name}_p5", name, f"{name}_p95")
            low, middle, high = (float(row[key]) for key in keys)
            assert 0 < low < middle < high, name
            assert low * high == pytest.approx(middle**2)


def test_what_is_no_table_is_said_in_one_sentence(table):
    with pytest.raises(TypeError, match="table"):
        de.fitting.evaluate(str(table))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="corrections"):
        read = de.measurements.read(table)
        de.fitting.evaluate(read, 3.0)  # pyright: ignore[reportArgumentType]
