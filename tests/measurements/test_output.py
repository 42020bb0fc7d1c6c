"""The table that `evaluate --out` writes, and safe writing of files."""

import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diffenergy import measurements
from diffenergy.files import write_bytes_atomic, write_text_atomic
from diffenergy.measurements import Predictions, prediction_frame

PREDICTED = [
    f"{name}_pred{end}"
    for name in ("time_s", "energy_j", "avg_power_w")
    for end in ("", "_p5", "_p95")
]
ADDED = ["row", "time_s", "energy_j", "avg_power_w", *PREDICTED, "grade", "skipped"]
HEAD = "gpu,op,m,n,k,dtype,time_us"


def predict(num_rows: int, **intervals) -> Predictions:
    values = np.arange(1.0, num_rows + 1)
    return Predictions(
        time_s=values,
        energy_j=100 * values,
        avg_power_w=np.full(num_rows, 100.0),
        grade=np.full(num_rows, "forecast", dtype=object),
        skipped=np.full(num_rows, "", dtype=object),
        **intervals,
    )


def test_every_input_column_then_what_was_predicted(write):
    """Also where the table is evaluated again."""
    path = write(f"{HEAD},mark\nA10,gemm,8,8,08,bf16,1.50,x\nA10,gemm,9,8,8,bf16,2,\n")
    table = measurements.read([str(path)])
    frame = prediction_frame(table, predict(2, time_s_p5=np.array([0.5, 1.5])))
    assert list(frame.columns) == [*HEAD.split(","), "mark", *ADDED]
    assert list(frame["k"]) == ["08", "8"] and list(frame["time_us"]) == ["1.50", "2"]
    text = frame.to_csv(index=False)
    cells = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert [float(cell) for cell in cells["time_s"]] == [1.5e-6, 2e-6]
    for name, values in (
        ("row", ["0", "1"]), ("energy_j", ["", ""]),  # not measured: empty, not 0
        ("time_s_pred", ["1.0", "2.0"]), ("time_s_pred_p5", ["0.5", "1.5"]),
        ("time_s_pred_p95", ["", ""]),
    ):  # fmt: skip
        assert list(cells[name]) == values
    path.write_text(text)
    again = prediction_frame(measurements.read([str(path)]), predict(2))
    assert list(again.columns) == list(frame.columns)


def test_several_files_one_after_the_other(write):
    files = [
        str(write(f"{HEAD}\n{row},1,1,fp32,1\n", name))
        for name, row in (("b.csv", "l4,gemm,1"), ("a.csv", "t4,gemm,2"))
    ]
    frame = prediction_frame(measurements.read(files), predict(2))
    assert list(frame["file"]) == files
    assert list(frame["row"]) == [0, 0] and list(frame["m"]) == ["1", "2"]


def test_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path):
    path, link = tmp_path / "out.csv", tmp_path / "link.csv"
    path.write_text("old")
    path.chmod(0o640)
    write_text_atomic(path, "né\n")
    assert path.read_bytes() == "né\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    write_bytes_atomic(tmp_path / "new.bin", b"\x00")
    link.symlink_to(path)
    write_text_atomic(link, "new")
    assert link.is_symlink() and path.read_text() == "new"
    names = ["link.csv", "new.bin", "out.csv"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    write_text_atomic(os.devnull, "gone")
    assert not Path(os.devnull).is_file()


def test_refused_targets_are_left_as_they_were(tmp_path: Path, monkeypatch):
    runs = tmp_path / "runs.csv"
    runs.write_text("data")
    hard, soft = tmp_path / "hard.csv", tmp_path / "soft.csv"
    hard.hardlink_to(runs)
    soft.symlink_to(runs)
    for path, words in (
        (tmp_path / "none" / "out.csv", "there is no folder"),
        (tmp_path, "is a folder"),
        (runs, "is an input of this run"),
        (hard, "is an input of this run"),
        (soft, "is an input of this run"),
        (tmp_path / ("x" * 300), "cannot be written"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            write_text_atomic(path, "new", inputs=[runs])
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="write-protected"):
        write_text_atomic(runs, "new")
    monkeypatch.undo()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match="No space left on device"):
        write_text_atomic(runs, "new")
    assert runs.read_text() == "data"
    names = ["hard.csv", "runs.csv", "soft.csv"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
