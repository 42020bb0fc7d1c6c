"""Charts of predictions against measurements."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from chart_checks import check, only

from diffenergy import measurements
from diffenergy.charts import Boxes, Line, Panel, Points
from diffenergy.measurements import MeasurementTable, Predictions
from diffenergy.report._charts.accuracy import accuracy_charts


def table(tmp_path, ops: list[str], power: bool = True) -> MeasurementTable:
    file = tmp_path / "runs.csv"
    cells = [
        f"a10,{op},{1024 + i},1024,fp16,{10 + i}" + (",100" if power else "")
        for i, op in enumerate(ops)
    ]
    named = "gpu,op,rows,cols,dtype,time_us" + (",avg_power_w" if power else "")
    file.write_text("\n".join([named, *cells]) + "\n")
    return measurements.read([str(file)])


def predictions(table: MeasurementTable, factor: float, **runs_: Any) -> Predictions:
    time, power = factor * table.time_s, table.avg_power_w
    grade = np.full(table.num_rows, "calibrated", dtype=object)
    return Predictions(time, time * power, power, grade, table.skipped, **runs_)


def panels(table: MeasurementTable, predictions: Predictions) -> Sequence[Panel]:
    result = accuracy_charts(table, predictions)
    check(result)
    return result["accuracy"].panels


def heights(panel: Panel) -> list[float]:
    return [x for mark in panel.marks if isinstance(mark, Boxes) for x in mark.high]


def test_every_quantity_has_a_row(tmp_path):
    runs = table(tmp_path, ["softmax", "softmax", "layernorm"])
    modelled = predictions(runs, 1.25)
    ends = {"time_s_p5": 0.5 * modelled.time_s, "time_s_p95": 2.0 * modelled.time_s}
    result = panels(runs, predictions(runs, 1.25, **ends))
    parity, errors, _, power, energy, _ = result
    titles = [(panel.x.title, panel.y.title) for panel in (parity, energy)]
    assert titles == [
        ("measured time", "predicted time"), ("measured energy", "predicted energy"),
    ]  # fmt: skip
    assert errors.title == "MAPE 25.0 %, median 25.0 %"
    assert power.title == "MAPE 0.0 %, median 0.0 %" and power.y.title == "rows of 3"
    for name, measured in (("softmax", [10e-6, 11e-6]), ("layernorm", [12e-6])):
        dots = only(parity, name)
        assert isinstance(dots, Points)
        assert dots.x == pytest.approx(measured)
        assert dots.y == pytest.approx([1.25 * x for x in measured])
    spans = only(parity, "line: 5 to 95 %")
    assert isinstance(spans, Line) and spans.y[:2] == pytest.approx([6.25e-6, 25e-6])
    assert (parity.y.low or 1) < 6.25e-6 and (parity.y.high or 0) > 30e-6
    assert sum(heights(errors)) == 3
    assert "softmax: measured 10.00 µs, predicted 12.50 µs (+25.0 %)" in [
        reading.text for reading in parity.readings
    ]


def test_time_alone_by_gpu(tmp_path):
    runs = table(tmp_path, ["softmax"] * 2, power=False)
    parity, _ = panels(runs, predictions(runs, 0.9))
    names = {getattr(mark, "name", "") for mark in parity.marks}
    assert names == {"equal", "0.8 and 1.25 times", "", "a10"}
    with pytest.raises(ValueError, match="nothing to show"):
        accuracy_charts(runs, predictions(runs, np.nan))


def test_rare_groups_share_a_colour_and_rows_far_off_stay_in_sight(tmp_path):
    """Nine ops, the first two twice: six have a colour of their own."""
    runs = table(tmp_path, ["softmax"] * 11)
    ops = np.array([f"op{i % 9}" for i in range(11)], dtype=object)
    runs = dataclasses.replace(runs, op=ops)
    parity, errors, *_ = panels(runs, predictions(runs, 9.0))
    rest = only(parity, "3 others")
    assert isinstance(rest, Points) and len(rest.x) == 3 and rest.colour == 7
    assert "(ends: and beyond)" in errors.x.title and heights(errors)[-1] == 11
