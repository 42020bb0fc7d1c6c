"""`diffenergy sweep`: the file, its line and its progress."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from diffenergy.cli import progress

from .conftest import Outcome

pytest.importorskip("pyarrow")
Run = Callable[..., Outcome]
SPEC = """
[axes]
batch = [1, 100000]
[fixed]
model = "gpt2"
gpu = "l4"
phase = "decode"
input_len = 64
"""


@pytest.mark.slow
def test_a_sweep_is_a_file_and_a_line(run: Run, tmp_path: Path):
    """What does not fit the memory is a row with a text; the run ends well, and resumed
    has nothing to do."""
    spec, out = tmp_path / "spec.toml", tmp_path / "out.csv"
    spec.write_text(SPEC)
    printed = run("sweep", spec, "--out", out)
    assert printed.code == 0
    assert "2 rows, 1 of them without an answer; 1 of 1 blocks" in printed.out
    with out.open() as lines:
        good, large = csv.DictReader(lines)
    assert float(good["time_s"]) > 0 and good["error"] == ""
    assert large["time_s"] == "" and "does not fit l4" in large["error"]
    again = run("sweep", spec, "--out", out, "--resume", "--json")
    assert json.loads(again.out)["computed"] == 0


def test_progress_tells_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Since the first call: what was there before does not count."""
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.at)
    with progress.rows() as show:
        for now.at, done in ((20.0, 1_000), (40.0, 21_000), (60.0, 1_002_000)):
            show(done, 2_003_000)
    assert capsys.readouterr().err.splitlines() == [
        "diffenergy: 1,000 of 2,003,000 rows",
        "diffenergy: 21,000 of 2,003,000 rows, 1,000 a second, 1,982 s left",
        "diffenergy: 1,002,000 of 2,003,000 rows, 25,025 a second, 40 s left",
    ]
    with progress.rows() as show:
        for now.at, done in ((80.0, 0), (100.0, 8)):
            show(done, 16)
    assert "8 of 16 rows, 0.4 a second, 20 s left" in capsys.readouterr().err
