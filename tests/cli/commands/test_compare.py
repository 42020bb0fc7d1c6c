import json

import pytest

from ..conftest import GPT2

FLAGS = " ".join(GPT2[1:])


def test_ratios_of_two_files_by_hand(run, tmp_path):
    a = {"model": "x", "time_s": 2.0, "energy_j": 400.0, "avg_power_w": 200.0}
    b = {"model": "y", "time_s": 1.0, "energy_j": 300.0, "avg_power_w": 300.0}
    for name, content in (("a", a), ("b", b)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    out = tmp_path / "both.json"
    args = ("compare", tmp_path / "a.json", tmp_path / "b.json", "--out", out)
    result = run(*args, "--json").json
    assert result["ratio"] == {"time_s": 0.5, "energy_j": 0.75, "avg_power_w": 1.5}
    assert result["a"].items() >= a.items() and result["b"].items() >= b.items()
    assert json.loads(out.read_text()) == result
    assert "0.7500" in run(*args).out


def test_flags_against_the_file_that_they_write(run, gpt2, tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(gpt2))
    result = run("compare", file, f"{FLAGS} --sm-clock 705", "--json").json
    slower = run(*GPT2, "--sm-clock", 705, "--json").json
    assert {"schema": 1, **result["b"]} == slower
    older = {key: x for key, x in gpt2.items() if key != "schema"}
    file.write_text(json.dumps(older))
    again = run("compare", file, f"{FLAGS} --sm-clock 705", "--json").json
    assert again == result and result["a"] == older
    expected = slower["time_s"] / gpt2["time_s"]
    assert result["ratio"]["time_s"] == pytest.approx(expected, rel=1e-12)


def test_more_than_two_by_their_ratios_to_the_first(run, tmp_path):
    """Times of 2, 1 and 4 s: 0.5 and 2."""
    names = []
    for i, time in enumerate((2.0, 1.0, 4.0)):
        figures = {"time_s": time, "energy_j": 100 * time, "avg_power_w": 100.0}
        names.append(tmp_path / f"{i}.json")
        names[-1].write_text(json.dumps({"model": f"m{i}", **figures}))
    result = run("compare", *names, "--json").json
    assert {key for key in result if len(key) == 1} == {"a", "b", "c"}
    assert result["c"]["model"] == "m2" and result["ratio"] == result["ratios"]["b"]
    assert result["ratios"]["b"]["time_s"] == 0.5
    assert result["ratios"]["c"] == {"time_s": 2, "energy_j": 2, "avg_power_w": 1}
    table = run("compare", *names).out
    assert "C: m2" in table and "C / A" in table and "2.000" in table
