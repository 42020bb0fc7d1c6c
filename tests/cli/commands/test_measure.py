"""`measure` from end to end on a simulated board; plans without one."""

import csv
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import diffenergy as de
from diffenergy import measurements
from diffenergy.cli import main, progress
from diffenergy.measure import _bench, _plan, _reading, _sensor
from diffenergy.measure._shapes import CLASSES

SCRIPT = Path(__file__).parents[3] / "calibration" / "measure.py"
simulated = importlib.import_module("measure.simulated")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "mine.csv"


@pytest.fixture
def world(monkeypatch):
    """A board of this machine that only pretends."""
    world = simulated.World()

    def opened(index: int) -> Any:
        return world

    monkeypatch.setattr(_sensor, "Sensor", opened)
    monkeypatch.setattr(_bench, "find_runner", lambda uuid: world)
    monkeypatch.setattr(_reading, "Clock", lambda: world)
    return world


def rows(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def refused(outcome, *words):
    assert (outcome.code, outcome.out) == (2, ""), outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("diffenergy: ") and "fault of diffenergy" not in line
    for word in words:
        assert word in line


@pytest.mark.slow
def test_a_run_writes_what_is_read(run, world, out):
    reported = run("measure", "--out", out, "--points", 30, "--json").json
    assert (reported["gpu"], reported["measured"], reported["rows"]) == (
        "h100-sxm",
        30,
        30,
    )
    assert (reported["remaining"], reported["failed"], reported["stopped"]) == (
        0,
        [],
        None,
    )
    assert set(reported["classes"]) == set(CLASSES)
    table = measurements.read([str(out)])
    assert table.num_rows == 30 and set(table.gpu) == {"h100-sxm"}
    assert (table.avg_power_w > 80).all() and world.sets == []
    names = ["mine.csv", "mine.series.jsonl"]
    assert sorted(os.listdir(out.parent)) == names
    outcome = run("evaluate", out, "--json")
    assert outcome.json["rows"] == 30 and "ignored columns" in outcome.err


def test_the_same_command_goes_on(run, world, out):
    first = run("measure", "--out", out, "--points", 20, "--minutes", 1)
    assert first.code == 0 and "the time is up" in first.out
    before = out.read_text()
    out.write_text(before + before.splitlines()[-1][:20])  # a row that was cut off
    second = run("measure", "--out", out, "--points", 20, "--resume")
    assert "cut off" in second.err and "0 remain" in second.out
    assert out.read_text().startswith(before) and len(rows(out)) == 20
    assert len(world.ran) == 20
    third = run("measure", "--out", out, "--points", 20, "--json").json
    assert (third["measured"], third["rows"], third["remaining"]) == (0, 20, 0)
    before = out.read_bytes()
    dry = run("measure", "--out", out, "--dry-run", "--gpu", "h100-sxm", "--json").json
    assert (dry["done"], len(dry["points"])) == (20, 180)
    assert out.read_bytes() == before


def test_clocks_and_limits_are_swept_and_put_back(run, world, out):
    flags = ("--set-clocks", "--clocks", "990,1500", "--only", "dram,l2")
    flags = (*flags, "--set-power-limit", "--power-limits", "300", "--points", 14)
    assert run("measure", "--out", out, *flags).code == 0
    assert (world.locked, world.limit) == (None, 700)
    assert set(world.sets) == {9.9e8, 1.5e9}
    states = {(r["sm_clock_mhz_set"], r["power_limit_w_set"]) for r in rows(out)}
    assert states == {("990", ""), ("1500", ""), ("", "300"), ("", "")}


@pytest.mark.parametrize("error", [KeyboardInterrupt, _sensor.SensorError])
def test_an_ending_keeps_rows_and_says_how_to_go_on(run, world, out, error):
    world.fail_at, world.error = 3000, error
    outcome = run("measure", "--out", out, "--set-clocks", "--points", 20)
    saved = rows(out)
    assert outcome.out == "" and 0 < len(saved) < 20 and world.locked is None
    assert all(float(row["time_us"]) > 0 < float(row["avg_power_w"]) for row in saved)
    line = outcome.err.splitlines()[-1]
    if error is KeyboardInterrupt:
        assert outcome.code == 130 and line.startswith("diffenergy: interrupted; ")
        assert f"{len(saved)} rows" in line and "same command" in line
    else:
        refused(outcome, "no longer answers")
    again = run("measure", "--out", out, "--set-clocks", "--points", 20, "--json").json
    assert (again["rows"], again["measured"]) == (20, 20 - len(saved))
    assert rows(out)[: len(saved)] == saved


def test_remarks(run, world, out):
    world.about = simulated.World(name="NVIDIA X1 Super").about
    world.others = {99}
    world.silent = {"energy", "power"}
    world.unsupported = lambda kernel: kernel["dtype"] == "fp16"
    flags = ("--only", "tensor,launch", "--points", 12)
    outcome = run("measure", "--out", out, *flags)
    assert outcome.code == 0
    for word in ("x1-super", "--gpu FILE.toml", "other processes", "no power"):
        assert word in outcome.err
    assert "left out: gemm" in outcome.err and "out of memory" in outcome.err
    assert {row["gpu"] for row in rows(out)} == {"x1-super"}


def test_a_name_is_taken_from_the_user_and_progress_is_shown(
    run, world, out, monkeypatch
):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    outcome = run("measure", "--out", out, "--gpu", "NVIDIA H200", "--points", 3)
    assert {row["gpu"] for row in rows(out)} == {"h200-sxm"}
    assert "calls itself 'NVIDIA H100 80GB HBM3'" in outcome.err
    assert "0 of 3 points, now gemm" in outcome.err
    assert "2 of 3 points, now elementwise" in outcome.err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)  # a bar
    assert main(["measure", "--out", str(out), "--points", "2"]) == 0
    assert len(rows(out)) == 5


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--clocks", "900"), ("--set-clocks",)),
        (("--set-clocks", "--clocks", "901"), ("901", "nearest 900")),
        (("--set-clocks", "--clocks", "2100"), ("345 to 1980 MHz",)),
        (("--set-power-limit",), ("go together",)),
        (("--power-limits", "300"), ("go together",)),
        (("--set-power-limit", "--power-limits", "100"), ("200 to 700 W",)),
        (("--resume",), ("no file",)),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_bad_flags(run, world, out, flags, words, dry):
    refused(run("measure", "--out", out, *flags, *dry), *words)
    assert world.ran == [] and not out.exists() and world.sets == []


@pytest.mark.parametrize("path", ["mine.txt", "no/such/folder/mine.csv", "."])
def test_bad_files(run, world, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    refused(run("measure", "--out", path), path)
    refused(run("measure"), "`--out` is missing")
    (tmp_path / "other.csv").write_text("gpu,op\nl4,gemm\n")
    refused(run("measure", "--out", "other.csv"), "give another name")
    assert (tmp_path / "other.csv").read_text() == "gpu,op\nl4,gemm\n"
    assert world.calls == 0


def test_boards_that_are_not_measured(run, world, out, monkeypatch):
    world.allowed = False
    refused(run("measure", "--out", out, "--set-clocks"), "may not set")
    world.about = simulated.World(mig=True).about
    refused(run("measure", "--out", out), "MIG", "-mig 0")
    assert world.ran == [] and list(out.parent.iterdir()) == []
    state, calls = out.with_name("mine.restore.json"), world.calls
    saved = {"gpu": 0, "pid": 0, "changed": ["clock"], "power_limit_w": None}
    state.write_text(json.dumps(saved))
    refused(run("measure", "--out", out), "nvidia-smi -i 0 -rgc", str(state))
    assert world.calls == calls and not out.exists()


def test_without_a_package_it_says_so(run, out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    refused(run("measure", "--out", out), "pip install nvidia-ml-py")
    assert not out.exists()


def test_a_dry_run_shows_the_plan(run, out):
    reported = run("measure", "--dry-run", "--gpu", "a100-sxm-80gb", "--json").json
    assert len(reported["points"]) == 200 and reported["seconds"] <= 1200
    assert set(reported["classes"]) == set(CLASSES) and reported["assumed"] == []
    outcome = run("measure", "--out", out, "--dry-run", "--set-clocks", "--minutes", 2)
    assert outcome.code == 0 and not out.exists()
    assert "on h100-sxm, about" in outcome.out and "left for another" in outcome.out
    assert "no `--gpu`" in outcome.err
    assert [line for line in outcome.out.splitlines() if len(line) > 80] == []


def test_the_script_is_the_same():
    command = [sys.executable, str(SCRIPT), "--dry-run", "--points", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    points = json.loads(done.stdout)["points"]
    assert [point["class"] for point in points] == ["tensor", "tensor", "dram"]
    assert _plan.GAP > 1


def test_from_python_it_is_the_same(run, world, out):
    wanted = {"points": 6, "only": ("dram", "l2"), "clocks": (9.9e8,)}
    flags = ("--points", 6, "--only", "dram,l2", "--set-clocks", "--clocks", "990")
    printed: list[tuple[int, int, str]] = []
    result = de.measure.measure(out, progress=lambda *x: printed.append(x), **wanted)
    assert (result.summary["measured"], result.interrupted) == (6, False)
    assert [x[:2] for x in printed] == [(i, 6) for i in range(6)]
    assert world.locked is None and set(world.sets) == {9.9e8}
    again = run("measure", "--out", out, *flags, "--json").json
    assert again == {"schema": 1} | result.summary | {"measured": 0}
    assert "6 points measured, 0 left out" in repr(result)
    assert "dram" in result._repr_html_()
    planned = de.measure.plan("h100-sxm", **wanted)
    dry = run("measure", "--dry-run", "--gpu", "h100-sxm", *flags, "--json").json
    assert {"schema": 1} | planned.summary == dry and "6 points on h100-sxm" in repr(
        planned
    )
    assert de.measure.plan("h100-sxm", file=out, **wanted).summary["done"] == 6
