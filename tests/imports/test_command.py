"""`diffenergy import`, and the same files given to `estimate` and `evaluate`."""

import csv
import json
import math
from pathlib import Path

import pytest

from diffenergy.cli import main
from tests.imports import builders


def run_command(capsys, *words: str) -> str:
    """What a command prints; it is done."""
    assert main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words: str) -> str:
    """The one line of a command that does not take what it is given."""
    assert main(list(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def test_the_json(tmp_path, capsys):
    summary = json.loads(
        run_command(capsys, "import", builders.trace(tmp_path), "--json")
    )
    assert set(summary) == {
        "schema", "source", "kind", "gpu", "kernels", "rows", "busy_us", "sum_us",
        "wait_us", "classes", "class_share", "shape_share", "unknown", "notes",
    }  # fmt: skip
    assert summary["source"] == "t.json" and summary["kernels"] == 5


@pytest.mark.slow
def test_the_listing_is_what_estimate_takes(tmp_path, capsys):
    path, out = builders.trace(tmp_path), tmp_path / "x.jsonl"
    run_command(capsys, "import", path, "--out", str(out))
    direct = json.loads(run_command(capsys, "estimate", path, "--json"))
    again = json.loads(run_command(capsys, "estimate", str(out), "--json"))
    assert direct["gpu"] == "h100-sxm" and "gpu" not in direct["assumed"]
    assert direct["time_s"] == pytest.approx(again["time_s"], rel=1e-9)
    assert direct["grade"] == "forecast"  # a kernel that only the trace knows
    own = json.loads(run_command(capsys, "estimate", path, "--gpu", "h100", "--json"))
    assert own["gpu"] == "h100-sxm"


def test_kernels_without_shape_keep_their_time(tmp_path, capsys):
    events = [builders.kernel(builders.GEMM, i, 100.0 * i, 50.0) for i in range(4)]
    path = builders.trace(tmp_path, events)
    result = json.loads(run_command(capsys, "estimate", path, "--json", "--detail"))
    assert result["time_s"] == pytest.approx(200e-6, rel=1e-3)
    [row] = result["kernels"]
    assert row["kernel_s"] == pytest.approx(50e-6, rel=1e-3)
    assert any("without a shape" in x for x in result["warnings"])


@pytest.mark.slow
def test_a_trace_is_evaluated_by_kernel_time(tmp_path, capsys):
    path, out = builders.trace(tmp_path), tmp_path / "rows.csv"
    words = ("evaluate", path, "--by", "op", "--json", "--out", str(out))
    scores = json.loads(run_command(capsys, *words))
    assert (scores["rows"], scores["skipped"], scores["time_rows"]) == (5, 1, 4)
    detail = json.loads(run_command(capsys, "estimate", path, "--json", "--detail"))
    shaped = [x for x in detail["kernels"] if x["op"] != "traced"]
    errors = [
        abs(x["kernel_s"] * 1e6 / x["traced_us"] - 1)
        for x in shaped
        for _ in range(x["count"])
    ]
    assert scores["time_mape_pct"] == pytest.approx(100 * sum(errors) / 4)
    predicted = sum(x["kernel_s"] * x["count"] for x in shaped) * 1e6
    assert scores["whole_ratio"] == pytest.approx(predicted / 21.0)
    assert [x["op"] for x in scores["groups"]] == [
        "gemm", "softmax", "elementwise", "traced",
    ]  # fmt: skip
    assert scores["groups"][-1]["whole_ratio"] is None
    table = list(csv.DictReader(out.read_text().splitlines()))
    missed = [
        abs(float(x["ratio"]) - 1) * float(x["traced_total_us"]) if x["ratio"] else 0.0
        for x in table
    ]
    assert len(table) == 4 and missed == sorted(missed, reverse=True)


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name, long_rows",
    [("bert-small", 1), ("vit-base", 1), ("timesformer", 392), ("qwen1.5-0.5b", 1035)],
)
def test_passes_of_an_h100_take_their_time(capsys, name: str, long_rows: int):
    """Whole passes and kernels of more than 20 us, as AMD-AGI/TraceLens traced them."""
    path = builders.shared(f"h100_{name}_bf16_eager.json.gz")
    scores = json.loads(run_command(capsys, "evaluate", str(path), "--json"))
    assert scores["long_rows"] == long_rows
    assert scores["whole_ratio"] == pytest.approx(1, abs=0.15)
    assert scores["long_median_pct"] < 15


@pytest.mark.parametrize("unshaped, is_refused", [(1.7, False), (3.0, True)])
def test_another_gpu_needs_shapes(tmp_path, capsys, unshaped, is_refused):
    """21 us with shapes beside 1.7 us (7 %) or 3 us (12.5 %) without."""
    last = builders.EVENTS[-1] | {"dur": unshaped}
    path = builders.trace(tmp_path, [*builders.EVENTS[:-1], last])
    words = ("estimate", path, "--gpu", "l4", "--json")
    if not is_refused:
        assert json.loads(run_command(capsys, *words))["gpu"] == "l4"
        return
    error = refused(capsys, *words)
    assert "12.5 % of its time has no shape" in error and "on h100-sxm" in error
    summary = json.loads(run_command(capsys, "evaluate", path, "--gpu", "l4", "--json"))
    assert summary["gpu"] == "l4"  # who names the GPU of the trace is believed


def test_a_board_that_is_not_known_has_a_sibling(tmp_path, capsys):
    about = [{"id": 0, "name": "Tesla V100-SXM2-16GB"}]
    path = builders.trace(tmp_path, deviceProperties=about)
    assert "nearest: v100-sxm-32gb" in refused(capsys, "estimate", path)
    assert "nearest: v100-sxm-32gb" in refused(capsys, "evaluate", path)
    notes = json.loads(run_command(capsys, "import", path, "--json"))["notes"]
    assert any("nearest: v100-sxm-32gb" in x for x in notes)
    words = ("estimate", path, "--json", "--gpu")
    run_command(capsys, *words, "v100-sxm-32gb")  # 12.5 % without a shape, but its own
    assert "recorded on Tesla V100" in refused(capsys, *words, "h100-sxm")


def test_a_trace_of_an_unknown_gpu_needs_one(tmp_path, capsys):
    about = [{"id": 0, "name": "NVIDIA Q1"}]
    path = builders.trace(tmp_path, deviceProperties=about)
    for command in ("estimate", "evaluate"):
        assert "`--gpu` is missing" in refused(capsys, command, path)
    assert json.loads(run_command(capsys, "import", path, "--json"))["gpu"] is None


@pytest.mark.parametrize(
    "words, message",
    [
        ("import TRACE --window 9:3", "`--window` is '9:3'"),
        ("import TRACE --dim batch", "allowed is NAME=N"),
        ("import TRACE --out x.csv", "no counters of units"),
        ("estimate TRACE --batch 8", "decides it"),
        ("estimate TRACE --plan tp=2", "is of one GPU"),
        ("evaluate TRACE TRACE", "evaluate it alone"),
        ("evaluate TRACE --op gemm", "is a trace"),
        ("evaluate TRACE --by colour", "`--by` is 'colour'"),
        ("estimate nowhere.json", "There is no model or file"),
        ("models show TRACE", "is a profiler's trace; give it to `import`"),
        ("fit TRACE --out c.json", "is a profiler's trace"),
        ("evaluate x.jsonl", "is a kernel listing; give it to `estimate`"),
        ("estimate t.csv", "measured runs are for `evaluate` and `fit`"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    path = builders.trace(tmp_path)
    Path("x.jsonl").write_text('{"name": "x", "kernels": [{"op": "softmax"}]}')
    Path("t.csv").write_text("gpu,op,time_us\na10,gemm,3\n")
    assert message in refused(capsys, *words.replace("TRACE", path).split())


@pytest.mark.slow
def test_many_unknown_kernels(tmp_path, capsys):
    path = tmp_path / "many.json"
    events = (builders.kernel(f"zz{i}", i, float(i), 1.0) for i in range(40_000))
    lines = ",".join(map(json.dumps, events))
    path.write_text(f'{{"traceEvents": [{lines}]}}')
    summary = json.loads(run_command(capsys, "import", str(path), "--json"))
    assert summary["kernels"] == 40_000 and len(summary["unknown"]) == 20
    assert math.isclose(summary["sum_us"], 4e4) and summary["class_share"] == 0.0
    assert any("40,000 names" in note for note in summary["notes"])
