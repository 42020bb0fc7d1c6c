"""Pictures of predictions against measurements."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.measurements import MeasurementTable, Predictions
from diffenergy.report._views.accuracy.evaluate import accuracy_figure

from ..figures import drawn, heights, points, words


def table(tmp_path, ops: list[str], power: bool = True) -> MeasurementTable:
    file = tmp_path / "runs.csv"
    cells = [
        f"a10,{op},{1024 + i},1024,fp16,{10 + i}" + (",100" if power else "")
        for i, op in enumerate(ops)
    ]
    named = "gpu,op,rows,cols,dtype,time_us" + (",avg_power_w" if power else "")
    file.write_text("\n".join([named, *cells]) + "\n")
    return measurements.read([str(file)])


def predictions(table: MeasurementTable, factor: float, **given: Any) -> Predictions:
    time, power = factor * table.time_s, table.avg_power_w
    grade = np.full(table.num_rows, "calibrated", dtype=object)
    return Predictions(time, time * power, power, grade, table.skipped, **given)


def test_every_quantity_has_a_row(tmp_path):
    runs = table(tmp_path, ["softmax", "softmax", "layernorm"])
    found = predictions(runs, 1.25)
    ends = {"time_s_p5": 0.5 * found.time_s, "time_s_p95": 2.0 * found.time_s}
    figure = drawn(accuracy_figure(runs, predictions(runs, 1.25, **ends)))
    said = words(figure)
    for text in (
        "MAPE 25.0 %, median 25.0 %",
        "MAPE 0.0 %, median 0.0 %",
        "measured time",
        "predicted energy",
        "error of power, %",
        "softmax",
        "layernorm",
        "line: 5 to 95 %",
        "rows of 3",
    ):
        assert text in said, text
    assert len(figure.axes) == 6
    parity, errors = figure.axes[:2]
    dots = [line for line in parity.lines if line.get_linestyle() == "None"]
    read, made = np.concatenate([points(line) for line in dots], axis=1)
    np.testing.assert_allclose(sorted(read), [10e-6, 11e-6, 12e-6])
    np.testing.assert_allclose(made, 1.25 * read)
    assert sum(heights(errors)) == 3
    low, high = parity.get_ylim()
    assert low < 0.5 * 12.5e-6 and high > 2.0 * 15e-6  # intervals are inside


def test_time_alone_by_gpu(tmp_path):
    runs = table(tmp_path, ["softmax"] * 2, power=False)
    figure = drawn(accuracy_figure(runs, predictions(runs, 0.9)))
    assert len(figure.axes) == 2
    said = words(figure)
    assert "a10" in said and "softmax" not in said and "5 to 95" not in said


def test_rare_groups_share_a_colour(tmp_path):
    """Nine ops, the first two twice: six have a colour of their own."""
    runs = table(tmp_path, ["softmax"] * 11)
    ops = np.array([f"op{i % 9}" for i in range(11)], dtype=object)
    runs = dataclasses.replace(runs, op=ops)
    said = words(drawn(accuracy_figure(runs, predictions(runs, 1.1))))
    assert "3 others" in said and "op0 | " in said and "op8" not in said


def test_rows_far_off_stay_in_sight(tmp_path):
    runs = table(tmp_path, ["softmax", "layernorm"])
    figure = drawn(accuracy_figure(runs, predictions(runs, 9.0)))
    errors = figure.axes[1]
    assert "(ends: and beyond)" in errors.get_xlabel()
    assert heights(errors)[-1] == 2


def test_nothing_to_compare(tmp_path):
    runs = table(tmp_path, ["softmax"], power=False)
    with pytest.raises(ValueError, match="nothing to show"):
        accuracy_figure(runs, predictions(runs, np.nan))
