"""`diffenergy report`: bad input is one line, nothing is half written."""

from pathlib import Path

import pytest

BAD = {
    "no file": (),
    "list of clocks": ("--out", "page.html", "--sm-clock", "900,1000"),
    "list of limits": ("--out", "page.html", "--power-limit", "200,300"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_line(run, args, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run("report", "gpt2", *args)
    assert outcome.code == 2 and not outcome.out
    assert outcome.err.startswith("diffenergy: ") and outcome.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_errors_of_the_second_gpu_say_so(run):
    outcome = run("report", "gpt2", "--versus", "h1000", "--out", "page.html")
    assert "`--versus`" in outcome.err and "h1000" in outcome.err


def test_an_input_is_never_written_over(run, tmp_path: Path):
    model = tmp_path / "model.html"
    model.write_text("mine")
    for args in (("gpt2", "--versus", model), (model,)):
        outcome = run("report", *args, "--out", model)
        assert outcome.code == 2 and "input" in outcome.err
    assert model.read_text() == "mine"


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_is_infeasible(run, tmp_path: Path):
    page = tmp_path / "page.html"
    limit = ("--power-limit", "40", "--phase", "prefill", "--out", page)
    limit = (*limit, "--set", "power_limit_min=40")
    outcome = run("report", "gpt2", "--gpu", "h100-sxm", *limit)
    assert outcome.code == 3 and not page.exists()


def test_help_has_examples(run):
    outcome = run("report", "--help")
    assert outcome.code == 0 and outcome.out.count("  diffenergy report ") == 3
