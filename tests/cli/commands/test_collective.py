"""`diffenergy collective`: schedules, files, verification, wrong input."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Outcome

Run = Callable[..., Outcome]
SMALL = ("collective", "ring-4", "--collective", "all_gather", "--size", "8MB")
BOARD = ("collective", "dgx1", "--collective", "all_gather", "--size", "200KB")


def test_json(run: Run):
    result = run(*BOARD, "--epoch", "slowest", "--json").json
    assert (result["epochs"], result["epoch_s"]) == (4, pytest.approx(1e-6))
    assert result["epoch_finish_s"] == pytest.approx(4e-6)
    assert result["certified"] and result["verified"]
    assert result["algo_bw_bytes_per_s"] == pytest.approx(2e5 / result["finish_s"])
    assert result["bus_bw_bytes_per_s"] == pytest.approx(
        7 / 8 * result["algo_bw_bytes_per_s"]
    )
    assert all(row["finish_s"] > 0 for row in result["baselines"].values())
    send = result["sends"][0]
    assert set(send) == {"chunk", "source", "link", "start_s", "end_s"}
    # 56 blocks of 25 KB arrive: 7.5 pJ/bit of NVLink at least once each
    assert result["energy"]["links_j"]["nvlink2"]["typical"] >= 56 * 2e5 * 7.5e-12
    assert result["energy_j"] > result["energy"]["idle_j"] > 0
    assert result["wait_clock"]["saved_w"] > 0


def test_keys_that_few_answers_have(run: Run):
    ring = ("ring-4", "--collective", "all_gather", "--gpu", "a100-sxm-40gb")
    flags = (*ring, "--size", "1MB", "--objective", "energy", "--json")
    front = run("collective", *flags).json["front"]
    assert all(x["moved_j"] < x["energy_j"] for x in front)
    groups = ("dgx1", "--collective", "reduce_scatter", "--tenants", "0-3;4-7")
    demand = run("collective", *groups, "--size", "1MB", "--json").json["demand"]
    assert demand[0]["parts"] == ["gpu0", "gpu1", "gpu2", "gpu3"]  # of its own group


def test_files_are_verified_again(run: Run, tmp_path: Path):
    path, table, program = (tmp_path / f"a.{end}" for end in ("json", "csv", "xml"))
    whole = run(*BOARD, "--out", path, "--json").json
    assert json.loads(path.read_text()) == whole
    checked = run("collective", "verify", path, "--json").json
    assert checked["verified"] and checked["format"] == "diffenergy"
    assert checked["finish_s"] == pytest.approx(whole["finish_s"])
    assert run(*BOARD, "--out", table).code == 0
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == whole["send_count"]
    assert run(*BOARD, "--out", program).code == 0
    written_only = run("collective", "verify", program)
    assert written_only.code == 2 and "give the JSON" in written_only.err
    whole["sends"][-1]["start_s"] = 0.0
    path.write_text(json.dumps(whole))
    broken = run("collective", "verify", path)
    assert broken.code == 2 and "diffenergy: send" in broken.err


@pytest.mark.parametrize(
    "line",
    [
        "all_gather --disable 0-1 --scale gpu0-gpu2=0.5 --latency 1e-6",
        "all_gather --tenants 0-3;4-7",
        "reduce --root gpu3",
        "AllReduce",
        "--matrix m.csv",
        "--demand d.csv",
    ],
)
def test_a_file_says_all_that_its_verification_needs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
):
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text("0,1e6,0,0\n0,0,2e6,0\n0,0,0,0\n5e5,0,0,0\n")
    rows = "source,chunk,bytes,wanted\ngpu0,0,1e6,all\n1,0,2e6,gpu3\n"
    Path("d.csv").write_text(rows)
    named = ("dgx1", "--size", "200KB", "--collective")
    words = (("ring-4",) if line.startswith("-") else named) + (*line.split(),)
    done = run("collective", *words, "--out", "a.json")
    assert done.code == 0, done.err
    assert run("collective", "verify", "a.json").code == 0


def test_one_finish_is_printed(run: Run):
    """2 MB blocks at 50 GB/s two hops: 80 us of epochs, with latencies 81.4 us."""
    shown = run(*SMALL).out
    assert shown.count("finish 81.40 us") == 1 and "80.00 us" not in shown
    assert "planned in 2 epochs, time slots of 40.00 us without latencies" in shown


def test_the_horizon_has_its_own_exit_status(run: Run):
    short = run(*BOARD, "--epoch", "slowest", "--horizon", "3")
    assert short.code == 3 and "at least 4 are needed (proven)" in short.err
    assert run(*BOARD, "--epoch", "slowest", "--horizon", "4").code == 0


@pytest.mark.shared_data
def test_published_schedules_are_right(run: Run, shared: Path):
    folder = shared / "data" / "teccl" / "schedules"
    path = folder / "ndv2-2-published_all_gather_slow_1GB.json.gz"
    machine = ("--topology", "ndv2-2-published")
    result = run("collective", "verify", path, *machine, "--json").json
    assert (result["format"], result["epochs"]) == ("te-ccl", 10)
    assert run("collective", "verify", path, "--topology", "ndv2-2").code == 2
