"""`estimate` with lists of flags: one table, crossed, each as alone."""

import csv
import json

import json_keys
import pytest

from diffenergy.cli.commands import estimate
from diffenergy.estimator import crossed

from ...conftest import GPT2


@pytest.mark.slow
def test_lists_are_one_table_that_equals_single_estimates(run, gpt2, tmp_path):
    rows = tmp_path / "points.csv"
    flags = ("--sm-clock", "705,1410", "--power-limit", "400,50", "--out", rows)
    flags = (*flags, "--set", "power_limit_min=50")
    outcome = run(*GPT2, *flags, "--json")
    points = outcome.json["points"]
    asked = [(x["sm_clock_set_mhz"], x["power_limit_w"]) for x in points]
    assert asked == [(705, 400), (705, 50), (1410, 400), (1410, 50)]
    for key in ("time_s", "energy_j", "avg_power_w", "sm_clock_mhz"):
        assert points[2][key] == pytest.approx(gpt2[key], rel=1e-9)
    single = run(*GPT2, "--sm-clock", 705, "--json").json
    assert points[0]["energy_j"] == pytest.approx(single["energy_j"], rel=1e-9)
    live = (points[0], points[2])
    energy = min(live, key=lambda x: x["energy_j"])
    edp = min(live, key=lambda x: x["energy_j"] * x["time_s"])
    assert points[outcome.json["best_energy"]] is energy
    assert points[outcome.json["best_edp"]] is edp
    for point in (points[1], points[3]):  # idle power alone is above 50 W
        assert not point["feasible"] and point["least_power_w"] > 50
        assert point["time_s"] is point["energy_j"] is None
    assert len(rows.read_text().splitlines()) == 5


CROSSED = ("estimate", "gpt2", "--gpu", "a10,l4", "--input-len", "64")


CROSSED = (*CROSSED, "--output-len", "5", "--batch", "1:3:2")


@pytest.mark.slow
def test_lists_are_crossed(run, tmp_path):
    """Two GPUs and batches of 1 and 3; each point as the estimate of it alone; the
    table has a row for each, the files too."""
    rows, kept = tmp_path / "rows.csv", tmp_path / "rows.parquet"
    found = run(*CROSSED, "--json", "--out", rows).json
    chosen = [(point["gpu"], point["batch"]) for point in found["points"]]
    assert chosen == [("a10", 1), ("a10", 3), ("l4", 1), ("l4", 3)]
    assert found["axes"] == ["gpu", "batch"] and "gpu" not in found
    alone = run(*CROSSED[:3], "l4", *CROSSED[4:-1], "3", "--json").json
    for key in ("time_s", "energy_j", "energy_j_per_token"):
        assert found["points"][3][key] == pytest.approx(alone[key], rel=1e-9), key
    with rows.open() as text:
        written = list(csv.DictReader(text))
    assert [float(row["energy_j"]) for row in written] == [
        point["energy_j"] for point in found["points"]
    ]
    table = run(*CROSSED, "--out", kept)
    assert table.out.count("mJ   ") >= 4 and "a10 " in table.out
    assert "least energy per token: l4, batch 3" in table.out
    import pandas as pd

    assert pd.read_parquet(kept)["batch"].tolist() == [1, 3, 1, 3]


@pytest.mark.slow
def test_ctrl_c_keeps_the_points_so_far(run, monkeypatch):
    """After the first call of the program: its points with figures, the others say why
    they have none, status 130."""

    def stopped(*args, **request):
        def progress(done: int, total: int):
            raise KeyboardInterrupt

        return crossed(*args, **{**request, "progress": progress})

    monkeypatch.setattr(estimate, "crossed", stopped)
    clocks = ",".join(str(600 + 15 * x) for x in range(33))
    outcome = run(*CROSSED[:3], "l4", *CROSSED[4:], "--sm-clock", clocks, "--json")
    points = json.loads(outcome.out)["points"]
    assert outcome.code == 130 and len(points) == 66
    assert ["error" in x for x in points] == [False] * 64 + [True] * 2
    assert "2 of 66 estimates were not computed" in outcome.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--batch", "8:1:2"), "`--batch` is '8:1:2', a range of 0 values"),
        (("--batch", "1:8"), "give a list or FROM:TO:STEP"),
        (("--batch", "1,2", "--detail"), "several settings"),
    ],
)
def test_lists_that_cannot_be_are_told(run, flags, said):
    outcome = run("estimate", "gpt2", *flags)
    assert outcome.code == 2 and outcome.out == ""
    assert said in outcome.err and outcome.err.count("\n") == 1


@pytest.mark.slow
def test_a_combination_without_an_answer_names_the_flag(run):
    """A batch that does not fit beside one that does."""
    asked = ("estimate", "gpt2", "--gpu", "l4", "--dtype", "fp16", "--require-fit")
    asked = (*asked, "--batch", "1,100000", "--input-len", "64", "--output-len", "2")
    point = ("--sm-clock", "900", "--mem-clock", "6251", "--power-limit", "72")
    found = run(*asked, *point, "--json").json["points"]
    assert set(found[1]) == set(json_keys.rows("unanswered"))
    assert "error" not in found[0]
    assert found[1]["error"].startswith("`--require-fit`: gpt2 does not fit l4: ")
    assert "batch 100000: `--require-fit`: gpt2 does not fit l4" in run(*asked).out
