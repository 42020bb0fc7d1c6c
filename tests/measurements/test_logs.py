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
TRACE = '{"traceEvents": []}'


@pytest.mark.parametrize("tool", LOGS)
def test_who_wrote_a_log_is_known_by_its_content(write, tool: str):
    """A log without a GPU takes the one that is given; the same one may be given."""
    path = str(write(LOGS[tool], "anything.txt"))
    assert log_format(path) == tool
    names = {"zeus": "a10", "nvidia_smi": "NVIDIA A10"}
    log = measurements.read_log(path, gpu=names.get(tool))
    assert log.summary["gpus"] == ["h100-sxm" if tool == "dcgm" else "a10"]


@pytest.mark.parametrize("text", ["", "gpu,op,m,n,k,dtype,time_us\n", TRACE])
def test_other_files_are_no_logs(write, text: str):
    path = write(text, "x.csv")
    assert log_format(str(path)) is log_format(str(path.parent)) is None
    assert log_format("nowhere.csv") is None


def test_a_log_of_nvidia_smi_by_hand(write, tmp_path: Path, capsys):
    """Trapezoids of 100, 150, .. 300 W in 4 s are 800 J, shared by 40 passes; a table
    and its log are read alike."""
    log, out = write(BUSY, "log.csv"), tmp_path / "runs.csv"
    words = ["import", str(log), "--workload", "mine", "--passes", "40"]
    assert main([*words, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "log.csv (nvidia_smi) on a10: 1 row" in shown and "mine" in shown
    (row,) = csv.DictReader(io.StringIO(out.read_text()))
    assert (row["gpu"], row["workload"], row["iterations"]) == ("a10", "mine", "40")
    assert float(row["time_s"]) == pytest.approx(4 / 40)
    assert float(row["energy_j"]) == pytest.approx(800 / 40)
    assert float(row["avg_power_w"]) == pytest.approx(200)
    assert float(row["window_s"]) == 4
    assert main([*words, "--json"]) == 0
    text = capsys.readouterr().out
    check("import", text)
    assert json.loads(text)["format"] == "nvidia_smi" and json.loads(text)["rows"] == 1
    out.write_text(measurements.read_log(str(log)).to_csv())
    direct, table = (
        measurements.read([str(path)], workloads={"log": []}) for path in (log, out)
    )
    assert direct.workload.tolist() == table.workload.tolist() == ["log"]
    assert direct.energy_j.tolist() == [800.0]
    for name in ("time_s", "energy_j", "avg_power_w", "window_s"):
        assert getattr(direct, name) == pytest.approx(getattr(table, name)), name


@pytest.mark.parametrize(
    ("text", "flags", "sentence"),
    [
        (BUSY, ("--window", "0:1"), "`--window` is given, but"),
        (BUSY, ("--out", "x.jsonl"), "allowed is a .csv file"),
        (BUSY, ("--gpu", "t4"), "was logged on a10"),
        (TRACE, ("--passes", "3"), "`--passes` is given, but"),
    ],
)
def test_one_line_refuses(write, capsys, text, flags, sentence):
    assert main(["import", str(write(text, "log.csv")), *flags]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err
