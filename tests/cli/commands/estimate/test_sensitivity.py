"""`estimate --sensitivity`: its table, its JSON, what it refuses."""

import json

import pytest


@pytest.fixture
def listing(tmp_path):
    path = tmp_path / "one.jsonl"
    kernel = {"op": "elementwise", "fn": "add", "elements": 5e7, "reads": 2}
    kernel |= {"writes": 1, "dtype": "bf16", "count": 10}
    path.write_text(json.dumps({"name": "one", "kernels": [kernel]}))
    return str(path)


@pytest.mark.slow
def test_the_table_is_that_of_the_json(run, listing):
    command = ("estimate", listing, "--gpu", "h100-sxm", "--sensitivity")
    rows = run(*command, "--json").json["sensitivity"]
    bandwidth = next(x for x in rows if x["field"] == "dram_bandwidth")
    assert bandwidth["time_pct"] == pytest.approx(-100 * 100 / 3352, rel=0.15)
    text = run(*command).out
    table = text[text.index("one step") :].splitlines()[2:]
    shown = [line.split()[0] for line in table[: min(len(rows), 20)]]
    assert shown == [x["field"] for x in rows[:20]]
    line = next(x for x in table if x.startswith("dram_bandwidth"))
    assert line.split()[1:] == [
        "+100", "GB/s", f"{bandwidth['time_pct']:+.2f}", "%",
        f"{bandwidth['energy_pct']:+.2f}", "%", "gradient",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more, said",
    [
        (("--batch", "1,8"), "`--sensitivity` is given with several settings"),
    ],
)
def test_several_settings_are_refused(run, more, said):
    outcome = run("estimate", "gpt2", "--sensitivity", *more)
    assert outcome.code == 2 and said in outcome.err


def test_a_comparison_has_none(run):
    outcome = run("compare", "gpt2 --sensitivity", "gpt2")
    assert outcome.code == 2
    assert "`--sensitivity` is of `estimate` alone; leave it out" in outcome.err
