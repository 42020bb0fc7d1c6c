"""`fit` on a table of copies whose readings are those of known constants."""

import collections
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import diffenergy as de
from diffenergy import __version__, measurements
from diffenergy.corrections import prior_file, read_corrections
from diffenergy.fitting import _fit as fit_module
from diffenergy.fitting import predict

TRUE = {"energy_dram": 6e-11, "dram_efficiency": 0.8, "launch_cycles": 4000.0}
HEAD = "gpu,op,fn,elements,dtype,sm_clock_mhz,time_us,avg_power_w\n"
ROWS = [
    f"a100-sxm-80gb,elementwise,copy,{2**power},bf16,{clock}"
    for clock in (900, 1410)
    for power in range(12, 28, 2)
]
SCRIPT = Path(__file__).parents[3] / "calibration" / "optimize.py"


def written(path, readings):
    lines = [f"{row},{a!r},{b!r}\n" for row, (a, b) in zip(ROWS, readings, strict=True)]
    path.write_text(HEAD + "".join(lines))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Copies of growing size at two clocks."""
    path = tmp_path_factory.mktemp("fit") / "streams.csv"
    blank = measurements.read([str(written(path, [(1.0, 1.0)] * len(ROWS)))])
    truth = prior_file()
    truth.levels["global"].update(TRUE)
    read = predict(blank, truth)
    readings = zip(1e6 * read.time_s, read.avg_power_w, strict=True)
    return written(path, [(float(a), float(b)) for a, b in readings])


@pytest.fixture(scope="module")
def fit(run, table):
    """`fit(out, ...)`: the outcome of a fit of the table, from the priors unless the
    flags say otherwise."""

    def fit(out, *flags, data=table):
        usual = {"--start": "none", "--out": out}
        saved = [x for flag in usual if flag not in flags for x in (flag, usual[flag])]
        return run("fit", data, *saved, *flags)

    return fit


@pytest.fixture(scope="module")
def first(fit, tmp_path_factory):
    """Corrections file of a fit, and what it said."""
    out = tmp_path_factory.mktemp("first") / "first.json"
    return out, fit(out, "--json").json


@pytest.mark.slow
def test_a_fit_is_read_back_and_errors_shrink(run, first, table):
    out, reported = first
    file = read_corrections(out)
    rows = {"a100-sxm-80gb:elementwise": {"time": 16, "power": 16}}
    on = file.fitted_on
    assert (on["rows"], on["sources"]) == (rows, ["streams.csv"])
    assert on["software"] == __version__
    before, after = (
        run("evaluate", table, "--corrections", x, "--json").json for x in ("none", out)
    )
    for word in ("time", "power", "energy"):
        name = f"{word}_mape_pct"
        assert (
            reported[name] == pytest.approx(after[name]) and after[name] < before[name]
        )
    assert after["time_mape_pct"] < 3 and after["power_mape_pct"] < 3
    (group,) = reported["groups"]
    assert (group["file"], group["held_out"], group["rows"]) == (str(table), False, 16)
    assert on["errors"][0]["time_mape_pct"] == round(reported["time_mape_pct"], 2)
    assert (reported["rows"], reported["fitted_rows"], reported["flagged"]) == (
        16,
        16,
        [],
    )
    assert (
        reported["held_out"] is None and reported["steps"] > 1 and reported["cost"] > 0
    )
    count = reported["parameters"]
    assert len(reported["constants"]) == count
    known = {c["constant"]: c for c in reported["constants"] if c["level"] == "global"}
    deviation = known["energy_dram"]["posterior_sd"]
    assert deviation < known["energy_dram"]["prior_sd"]
    assert file.posterior is not None
    at = file.posterior["parameters"].index("global/energy_dram")
    assert file.posterior["sd"][at] == pytest.approx(deviation, rel=1e-3)
    triangle = np.zeros((count, count))
    triangle[np.tril_indices(count)] = file.posterior["correlation"]
    assert np.all(np.diag(triangle) == 1) and np.all(np.abs(triangle) <= 1)


@pytest.mark.slow
def test_the_same_seed_writes_the_same_bytes(fit, first, table, tmp_path):
    """From Python, too."""
    out, reported = first
    shown = fit(tmp_path / "again.json").out
    assert (tmp_path / "again.json").read_bytes() == out.read_bytes()
    assert "16 rows, 16 fitted, 0 flagged" in shown
    assert f"{reported['parameters']} constants fitted" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["again.json"]
    result = de.fitting.fit(de.measurements.read(table), start="none")
    assert {"schema": 1} | result.summary == reported and not result.interrupted
    result.write(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_bytes() == out.read_bytes()
    assert f"{reported['parameters']} constants" in repr(result)
    assert "16 rows, 16 fitted, 0 flagged" in result._repr_html_()
    after = de.fitting.evaluate(result.rows[0].table, result.corrections).summary
    assert after["time_mape_pct"] == pytest.approx(reported["time_mape_pct"])


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["elements=65536", "elements : 0.1"])
def test_held_out_rows_are_reported_apart(fit, tmp_path, rule):
    out = tmp_path / "c.json"
    reported = fit(out, "--holdout", rule, "--json").json
    assert (
        reported["rows"],
        reported["fitted_rows"],
        reported["held_out"]["rows"],
    ) == (16, 14, 2)
    assert reported["held_out"]["time_mape_pct"] < 10
    groups = [(g["held_out"], g["rows"]) for g in reported["groups"]]
    assert groups == [(False, 14), (True, 2)]
    assert read_corrections(out).fitted_on["holdout"] == [rule]


def refused(outcome, *words):
    assert (outcome.code, outcome.out) == (2, ""), outcome
    (line,) = outcome.err.splitlines()
    for word in words:
        assert word in line


@pytest.mark.slow
def test_inputs_and_foreign_files_are_never_overwritten(fit, run, first, tmp_path):
    start = tmp_path / "start.json"
    start.write_bytes(first[0].read_bytes())
    data = tmp_path / "data.json"
    refused(run("fit", "x.csv", "--start", start, "--out", start), "input")
    data.write_text(HEAD)
    refused(run("fit", f"gemm={data}", "--start", "none", "--out", data), "input")
    (tmp_path / "c.partial.json").write_text("{}")
    refused(fit(tmp_path / "c.json"), "c.partial.json", "move it")
    assert data.read_text() == HEAD and not (tmp_path / "c.json").exists()
    assert start.read_bytes() == first[0].read_bytes()


@pytest.mark.slow
def test_rows_that_cannot_be_true(fit, table, tmp_path):
    bad, out = tmp_path / "bad.csv", tmp_path / "c.json"
    lines = table.read_text().splitlines()
    lines[4:6] = [f"{row},10,5000" for row in ROWS[3:5]]
    bad.write_text("\n".join(lines))
    refused(fit(out, "--strict", data=bad), "bad.csv", "line 5", "avg_power_w", "5000")
    assert not out.exists()
    outcome = fit(out, "--json", data=bad)
    assert (outcome.json["rows"], outcome.json["fitted_rows"]) == (16, 14)
    flags = outcome.json["flagged"]
    assert [(x["file"], x["row"]) for x in flags] == [(str(bad), 3), (str(bad), 4)]
    assert [x["line"] for x in flags] == [5, 6]
    assert all((x["column"], x["value"]) == ("avg_power_w", 5000) for x in flags)
    assert all(x["reason"] for x in flags) and outcome.json["power_mape_pct"] < 3
    assert "left out: 2" in outcome.err and "bad.csv, line 5" in outcome.err


def stop_after(monkeypatch, evaluations):
    """Ctrl-C during the evaluation behind so many."""
    residuals, done = fit_module._Problem.residuals, collections.Counter()

    def stopped(self, z):
        done[self] += 1
        if done[self] > evaluations:
            raise KeyboardInterrupt
        return residuals(self, z)

    monkeypatch.setattr(fit_module._Problem, "residuals", stopped)


@pytest.mark.slow
def test_an_interrupted_fit_goes_on(run, fit, first, table, tmp_path, monkeypatch):
    out, partial = tmp_path / "c.json", tmp_path / "c.partial.json"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        outcome = fit(out)
        assert (outcome.code, outcome.out) == (130, "")
        assert f"--start {partial}" in outcome.err.splitlines()[-1]
        assert [path.name for path in tmp_path.iterdir()] == [partial.name]
        saved = read_corrections(partial)
        assert saved.continues == prior_file()
        assert saved.levels != prior_file().levels
        again = run("fit", table, "--start", partial, "--out", out)
        assert again.code == 130
        assert read_corrections(partial).continues == prior_file()
    assert run("fit", table, "--start", partial, "--out", out).code == 0
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    done, whole = read_corrections(out), read_corrections(first[0])
    assert done.continues is None
    for name, value in whole.levels["global"].items():
        assert done.levels["global"][name] == pytest.approx(value, rel=0.01), name


@pytest.mark.slow
def test_an_interrupt_behind_the_fit_keeps_it_too(fit, first, tmp_path, monkeypatch):
    monkeypatch.setattr("diffenergy.fitting._ask.report", interrupted)
    assert fit(tmp_path / "c.json").code == 130
    saved = read_corrections(tmp_path / "c.partial.json")
    assert saved.levels == read_corrections(first[0]).levels


def test_a_bare_interrupt_leaves_nothing(fit, tmp_path, monkeypatch):
    monkeypatch.setattr("diffenergy.fitting._ask.flagged", interrupted)
    outcome = fit(tmp_path / "c.json")
    assert (outcome.code, outcome.err) == (130, "diffenergy: interrupted\n")
    assert not any(tmp_path.iterdir())


def interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def test_the_script_runs_from_anywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "x.csv", "--out", "c.json", "--max-rows", "-1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "`--max-rows`" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_fit_needs_64_bit(table):
    read = de.measurements.read(table)
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        de.fitting.fit(read)
