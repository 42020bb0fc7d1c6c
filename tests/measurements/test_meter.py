"""`--meter FILE.py`: how the rows of a table were read, said by a user."""

import json
from pathlib import Path

import pytest

from diffenergy import fitting, measurements
from diffenergy.cli import main

ROWS = "gpu,op,rows,cols,dtype,campaign,time_us,avg_power_w\n" + "".join(
    f"a10,softmax,{m},512,bf16,{campaign},9,100\n"
    for campaign in ("slow", "plain")
    for m in (512, 1024)
)
METER = """
import numpy as np
from diffenergy.measurements import Meter, Reading
from diffenergy.physics import TimeEnergy


class Late(Reading):
    \"\"\"A call of 1 ms at 50 W beside each run.\"\"\"

    def read(self, constants, free, held):
        return TimeEnergy(held.time + 1e-3, held.energy + 0.05)


class Calls(Meter):
    def reading(self, table, op, rows, gpu, corrections):
        return Late() if table.campaign[rows[0]] == "slow" else Reading()


meter = Calls()
"""


@pytest.fixture
def rows(tmp_path: Path) -> str:
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "meter.py").write_text(METER)
    return str(tmp_path / "rows.csv")


def test_a_meter_acts_on_the_readings_of_its_campaign(rows: str, tmp_path, capsys):
    """1 ms and 50 mJ more in the rows of one campaign, nothing in the others'."""
    plain = fitting.evaluate(measurements.read([rows])).rows()
    out = tmp_path / "out.csv"
    words = ["evaluate", rows, "--meter", str(tmp_path / "meter.py")]
    assert main([*words, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 4
    lines = [line.split(",") for line in out.read_text().splitlines()]
    for name, more in (("time_s_pred", 1e-3), ("energy_j_pred", 0.05)):
        readings = [float(line[lines[0].index(name)]) for line in lines[1:]]
        expected = plain[name] + [more, more, 0, 0]
        assert readings == pytest.approx(expected.tolist(), rel=1e-9), name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "which is no file"),
        ("meter = 1 +", "which does not run"),
        ("other = 3", "defines no `meter`"),
        ("meter = 3", "is a int; allowed is a `measurements.Meter`"),
    ],
)
def test_what_is_no_meter(rows: str, tmp_path: Path, capsys, text, sentence: str):
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text)
    assert main(["evaluate", rows, "--meter", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err
