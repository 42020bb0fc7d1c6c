"""`diffenergy import LOG`: logs made by hand become tables of measured runs."""

import csv
import io
import json
from pathlib import Path

import pytest
from json_keys import check

from diffenergy import measurements
from diffenergy.cli import main
from diffenergy.measurements import log_format

from .builders import MONITOR, SMI, carbon, run, sample, scrape

BUSY = SMI + "".join(sample(second, 100 + 50 * second) for second in range(5))
"""From 100 to 300 W in 4 s: 800 J."""
LOGS = {
    "nvidia_smi": BUSY, "zeus": MONITOR, "codecarbon": carbon(run()), "dcgm": scrape(),
}  # fmt: skip


def run_command(capsys, *words: str) -> str:
    assert main([*words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("tool", LOGS)
def test_who_wrote_a_log_is_known_by_its_content(tmp_path: Path, tool: str):
    path = tmp_path / "anything.txt"
    path.write_text(LOGS[tool])
    assert log_format(str(path)) == tool
    assert measurements.read_log(str(path), gpu=None if tool != "zeus" else "a10")


@pytest.mark.parametrize(
    "text", ["", "gpu,op,m,n,k,dtype,time_us\n", '{"traceEvents": []}', "a,b\n1,2\n"]
)
def test_other_files_are_no_logs(tmp_path: Path, text: str):
    (tmp_path / "x.csv").write_text(text)
    assert log_format(str(tmp_path / "x.csv")) is None
    assert log_format(str(tmp_path)) is None and log_format("nowhere.csv") is None


def test_a_log_of_nvidia_smi_by_hand(tmp_path: Path, capsys):
    """Trapezoids of 100, 150, .. 300 W in 4 s are 800 J, shared by 40 passes."""
    log, out = tmp_path / "log.csv", tmp_path / "runs.csv"
    log.write_text(BUSY)
    words = ("import", str(log), "--workload", "mine", "--passes", "40")
    shown = run_command(capsys, *words, "--out", str(out))
    assert "log.csv (nvidia_smi) on a10: 1 row" in shown and "mine" in shown
    (row,) = csv.DictReader(io.StringIO(out.read_text()))
    assert (row["gpu"], row["workload"], row["iterations"]) == ("a10", "mine", "40")
    assert float(row["time_s"]) == pytest.approx(4 / 40)
    assert float(row["energy_j"]) == pytest.approx(800 / 40)
    assert float(row["avg_power_w"]) == pytest.approx(200)
    assert float(row["window_s"]) == 4
    text = run_command(capsys, *words, "--json")
    check("import", text)
    summary = json.loads(text)
    assert (summary["format"], summary["gpus"], summary["rows"]) == (
        "nvidia_smi",
        ["a10"],
        1,
    )


def test_a_table_and_its_log_are_read_alike(tmp_path: Path):
    log = tmp_path / "log.csv"
    log.write_text(BUSY)
    (tmp_path / "runs.csv").write_text(measurements.read_log(str(log)).to_csv())
    direct, table = (
        measurements.read([str(tmp_path / name)], workloads={"log": []})
        for name in ("log.csv", "runs.csv")
    )
    assert direct.workload.tolist() == table.workload.tolist() == ["log"]
    for name in ("time_s", "energy_j", "avg_power_w", "window_s"):
        assert getattr(direct, name) == pytest.approx(getattr(table, name)), name
    assert direct.energy_j.tolist() == [800.0]


def test_a_log_without_a_gpu_takes_the_one_that_is_given(tmp_path: Path):
    """ZeusMonitor's: a row for each window and GPU."""
    (tmp_path / "zeus.csv").write_text(MONITOR)
    table = measurements.read_log(str(tmp_path / "zeus.csv"), gpu="a10").table
    assert table["gpu"].tolist() == ["a10"] * 3
    assert table["energy_j"].tolist() == [3000, 300, 1000]


def test_the_same_gpu_may_be_given(tmp_path: Path):
    (tmp_path / "log.csv").write_text(BUSY)
    log = measurements.read_log(str(tmp_path / "log.csv"), gpu="NVIDIA A10")
    assert log.summary["gpus"] == ["a10"]


@pytest.mark.parametrize(
    ("text", "flags", "sentence"),
    [
        (BUSY, ("--window", "0:1"), "`--window` is given, but"),
        (BUSY, ("--out", "x.jsonl"), "allowed is a .csv file"),
        (BUSY, ("--gpu", "t4"), "was logged on a10"),
        ('{"traceEvents": []}', ("--passes", "3"), "`--passes` is given, but"),
    ],
)
def test_one_line_refuses(tmp_path: Path, capsys, text, flags, sentence):
    (tmp_path / "log.csv").write_text(text)
    assert main(["import", str(tmp_path / "log.csv"), *flags]) == 2
    printed = capsys.readouterr()
    assert (
        printed.out == "" and printed.err.count("\n") == 1 and sentence in printed.err
    )
