import json

import pytest

from ..conftest import GPT2

FLAGS = " ".join(GPT2[1:])


def test_ratios_to_the_first_by_hand(run, tmp_path):
    files, out = [], tmp_path / "all.json"
    for name, time, energy in (("x", 2.0, 400.0), ("y", 1.0, 300.0), ("z", 4.0, 400.0)):
        figures = {"time_s": time, "energy_j": energy, "avg_power_w": energy / time}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({"model": name, **figures}))
    result = run("compare", *files, "--out", out, "--json").json
    assert json.loads(out.read_text()) == result
    assert {key for key in result if len(key) == 1} == {"a", "b", "c"}
    assert [result[x]["model"] for x in "abc"] == ["x", "y", "z"]
    assert result["b"].items() >= json.loads(files[1].read_text()).items()
    assert result["ratio"] == result["ratios"]["b"]
    assert result["ratios"] == {
        "b": {"time_s": 0.5, "energy_j": 0.75, "avg_power_w": 1.5},
        "c": {"time_s": 2.0, "energy_j": 1.0, "avg_power_w": 0.5},
    }
    table = run("compare", *files).out
    assert "C: z" in table and "C / A" in table and "0.7500" in table


def test_flags_against_the_file_that_they_write(run, gpt2, tmp_path):
    """With or without the number of its version."""
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
