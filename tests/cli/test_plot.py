"""`--plot` of the commands."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diffenergy import dvfs
from diffenergy.cli.commands import codesign, estimate, evaluate
from diffenergy.codesign import SearchResult, TuneResult
from diffenergy.codesign._problem.problem import Found, Problem, Score
from diffenergy.codesign._tiles.tuning import Tuning
from diffenergy.estimator import EstimateResult, Task
from diffenergy.fitting import _predict as predict_module
from diffenergy.hardware._files import read_gpu
from diffenergy.measurements import Predictions

from .conftest import GPT2, Outcome

Run = Callable[..., Outcome]
BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml"}
ABOUT = {
    "model": "tiny", "gpu": "a10", "phase": "generate", "batch": 2, "input_len": 8,
    "output_len": 4, "dtype": "bf16", "grade": "calibrated", "assumed": {},
    "grades": dict.fromkeys(("time", "power", "energy"), "calibrated"),
}  # fmt: skip
RUNS = "gpu,op,rows,cols,dtype,time_us\na10,softmax,1024,1024,fp16,10\n"


@pytest.fixture
def perfect(monkeypatch: pytest.MonkeyPatch):
    """Predictions that are as measured."""

    def predict(table, corrections, cards=None):
        grade = np.full(table.num_rows, "calibrated", dtype=object)
        nan = np.full(table.num_rows, np.nan)
        return Predictions(table.time_s, nan, nan, grade, table.skipped)

    monkeypatch.setattr(predict_module, "predict", predict)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS)
    return path


def check(outcome: Outcome, path: Path):
    assert (outcome.code, outcome.err) == (0, ""), outcome.err
    assert path.read_bytes().startswith(BEGINS[path.suffix])


def test_estimate(run: Run, tmp_path: Path):
    path = tmp_path / "a.svg"
    check(run(*GPT2, "--plot", path, "--json"), path)
    assert b"gpt2 on a100-sxm-80gb: generate" in path.read_bytes()


def test_a_sweep(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lists give the picture of a sweep."""
    points = [
        {
            "sm_clock_set_mhz": clock, "mem_clock_mhz": 5000.0, "power_limit_w": 300.0,
            "sm_clock_mhz": clock, "feasible": True, "time_s": 1.0, "energy_j": 2.0,
            "avg_power_w": 2.0, "energy_j_per_token": None,
        }
        for clock in (600.0, 900.0, 1200.0)
    ]  # fmt: skip
    best = {"best_energy": 1, "best_edp": 0}
    found = {**ABOUT, "points": points, **best, "warnings": []}
    answer = EstimateResult(found, [], None)
    monkeypatch.setattr(Task, "run", lambda task: answer)
    path = tmp_path / "a.svg"
    outcome = run(
        "estimate", "gpt2", "--sm-clock", "600,900,1200", "--plot", path, made_up=True
    )
    check(outcome, path)
    assert b"SM clock, MHz" in path.read_bytes()
    assert "1200" in outcome.out


def test_evaluate(run: Run, perfect: None, runs: Path, tmp_path: Path):
    path = tmp_path / "a.svg"
    check(run("evaluate", runs, "--plot", path), path)
    assert b"MAPE 0.0 %, median 0.0 %" in path.read_bytes()


def test_codesign(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fields = {"sm_clock": 1e9}
    score = Score(2.0, 1.0, 2.0, 2.0, 800.0, 0.0, fields, {})
    entry = {"evaluations": 9, "objective": 2.0, "violation": 0.0, "fields": fields}
    found = Found("energy", "J", score, score, (), (), 9, 1.0, 0, (), (entry,))
    point = {"time_s": 1.0, "energy_j": 2.0, "avg_power_w": 2.0, "area_mm2": 800.0}
    point |= {"objective": 2.0, "fields": fields}
    space = {"low": 5e8, "high": 2e9, "base": 1e9}
    summary = {
        **ABOUT, "objective": "energy", "start": point, "best": point,
        "vary": {"sm_clock": space}, "pareto": [],
    }  # fmt: skip
    problem = object.__new__(Problem)  # a picture looks at none of it
    answer = SearchResult(summary, found, problem, read_gpu("a10"), [])
    monkeypatch.setattr(codesign, "search", lambda *given, **more: answer)
    path = tmp_path / "a.svg"
    words = ("codesign", "gpt2", "--vary", "sm_clock", "--json")
    check(run(*words, "--plot", path, made_up=True), path)
    assert b"model evaluations" in path.read_bytes()


def test_tiles(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    costs = {"time_s": 1.0, "default_time_s": 2.0, "energy_j": 1.0}
    costs["default_energy_j"] = 1.0
    gemm = {"op": "gemm", "batch": 1, "m": 8, "n": 8, "k": 8, "dtype": "bf16"}
    gemms = [{**gemm, **costs, "count": 3.0}]
    summary = {**ABOUT, **costs, "goal": "time", "gemms": gemms}
    tuning = object.__new__(Tuning)
    answer = TuneResult(summary, tuning, [])
    monkeypatch.setattr(codesign, "tune", lambda *given, **more: answer)
    path = tmp_path / "a.svg"
    words = ("codesign", "gpt2", "--tune-tiles", "--json")
    check(run(*words, "--plot", path, made_up=True), path)
    assert b"-50.00 %" in path.read_bytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.pdf", "allowed are names ending in .png, .svg"),
        ("no/a.png", "there is no folder"),
        ("given.png", "is an input of this run"),
    ],
)
@pytest.mark.parametrize("command", ["estimate", "evaluate", "codesign", "dvfs"])
def test_bad_files_are_found_before_any_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command, name, words
):
    def never(*args, **more):
        raise AssertionError("worked")

    monkeypatch.setattr(estimate, "task_of", never)
    monkeypatch.setattr(codesign, "search", never)
    monkeypatch.setattr(dvfs, "plan", never)
    monkeypatch.setattr(evaluate, "evaluate", never)
    given = tmp_path / "given.png"
    given.write_text(RUNS)
    first = given if command == "evaluate" else "gpt2"
    more = ("--vary", "sm_clock") if command == "codesign" else ()
    if command != "evaluate":
        more += ("--corrections", given)
    outcome = run(command, first, *more, "--plot", tmp_path / name)
    assert outcome.code == 2 and words in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert [x.name for x in tmp_path.iterdir()] == ["given.png"]


def test_nothing_is_written_of_what_cannot_be_drawn(run: Run, runs: Path, tmp_path):
    """The GPU is not known, so that no row is predicted."""
    runs.write_text(RUNS.replace("a10,", "nonesuch,"))
    out, path = tmp_path / "rows.csv", tmp_path / "a.png"
    outcome = run("evaluate", runs, "--out", out, "--plot", path)
    assert outcome.code == 2 and not out.exists() and not path.exists()


def test_a_picture_is_not_of_a_quoted_workload(run: Run):
    outcome = run("compare", "gpt2 --plot a.png", "gpt2")
    assert outcome.code == 2
    assert "A: `--plot` is of `estimate` alone; leave it out" in outcome.err
    outcome = run("codesign", "--workload", "gpt2 --plot a.png", "--vary", "num_sms")
    assert outcome.code == 2
    assert "`--plot` goes behind `codesign`, not into the quotes" in outcome.err


def test_one_chart_by_its_name(run: Run, perfect: None, runs: Path, tmp_path: Path):
    path = tmp_path / "a.svg"
    check(run("evaluate", runs, "--plot", f"accuracy={path}"), path)
    out = tmp_path / "rows.csv"
    missing = run("evaluate", runs, "--out", out, "--plot", f"b={tmp_path}/b.svg")
    assert missing.code == 2 and not out.exists()
    assert missing.err == "diffenergy: `--plot` is 'b'; allowed are accuracy.\n"
    bad = run("evaluate", runs, "--plot", "accuracy=a.pdf")
    assert bad.code == 2 and "names ending in .png, .svg" in bad.err


@pytest.mark.slow
def test_charts_of_a_page(run: Run, tmp_path: Path):
    page, path = tmp_path / "a.html", tmp_path / "roof.svg"
    flags = ("report", *GPT2[1:], "--out", page)
    assert run(*flags, "--plot", f"roofline={path}").code == 0
    assert b"Roofline" in path.read_bytes() and page.exists()
    names = run(*flags, "--plot", f"none={path}").err
    for name in ("roofline", "timeline-prefill", "clocks", "energy-by-unit"):
        assert name in names
