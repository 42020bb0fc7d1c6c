"""Logs of a service on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import json_keys
import pytest

from tests.service.builders import bench, matrix, metrics, smi

Run = Callable[..., Any]


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    power, served = tmp_path / "power.csv", tmp_path / "metrics.json"
    power.write_text(smi())
    served.write_text(matrix(metrics()))
    return str(power), str(served)


def test_import_makes_a_table_of_servers(run: Run, logs: Any, tmp_path: Path):
    out = tmp_path / "servers.csv"
    words = ("--model", "qwen3-0.6b", "--every", "10min", "--out", out)
    answer = run("import", *logs, *words, "--json").json
    assert (answer["format"], answer["gpus"]) == (
        "nvidia_smi, prometheus",
        ["h100-sxm"],
    )
    header, row = out.read_text().splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["input_len"], cells["output_len"]) == ("100", "46")
    assert float(cells["avg_power_w"]) == pytest.approx(400)
    assert float(cells["energy_j_per_output_token"]) == pytest.approx(400 / 736)


@pytest.mark.slow
def test_fit_reads_logs(run: Run, tmp_path: Path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench()))
    words = ("--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--out", tmp_path / "x.json")
    group = run("fit", path, *words, "--json").json["groups"][0]
    assert group["rows"] == 1
    assert group["after"]["tpot_mape_pct"] < group["before"]["tpot_mape_pct"]


@pytest.mark.slow
def test_a_service_against_its_prediction(run: Run, logs: Any, tmp_path: Path):
    """Figures of the window that serves are those that are known by hand; it is slower
    than predicted, and a cron job learns it."""
    rows = tmp_path / "rows.csv"
    words = ("--service", *logs, "--model", "qwen3-8b", "--every", "10min", "--out",
             rows)  # fmt: skip
    answer = run("evaluate", *words, "--node", "default", "--json").json
    states = answer["states"]
    assert {x: y["windows"] for x, y in states.items()} == {
        "loading": 1, "idle": 1, "serving": 1,
    }  # fmt: skip
    assert states["serving"]["energy_j"] == pytest.approx(240_000)
    window = answer["windows"][-1]
    measured, predicted = window["measured"], window["predicted"]
    million = "energy_j_per_million_output_tokens"
    assert measured[million] == pytest.approx(400 / 736 * 1e6)
    whole = sum(x["energy_j"] for x in states.values())
    assert answer[million] == pytest.approx(whole / 441_600 * 1e6)
    assert measured[f"wall_{million}"] > measured[million]
    for figure in ("avg_power_w", million, "tpot_s", "ttft_s"):
        low, high = predicted[f"{figure}_p5_p95"]
        assert low < predicted[figure] < high
        assert (figure in window["outside"]) == (not low <= measured[figure] <= high)
    error = answer["errors"]["tpot_s"]["bias_pct"]
    assert error == pytest.approx(100 * (predicted["tpot_s"] / 0.01 - 1))
    assert answer["outside"] == [2] and len(rows.read_text().splitlines()) == 4
    strict = run("evaluate", *words, "--strict")
    assert strict.code == 4 and "2026-01-01T00:04:00Z (" in strict.err
    assert "10.00 ms" in strict.out and run("evaluate", *words).code == 0
    as_json = run("evaluate", *words, "--strict", "--json")
    json_keys.check_refusal(as_json.err.splitlines()[-1], 4)
    assert json.loads(as_json.out)["outside"] == [2]


@pytest.mark.slow
def test_a_window_as_predicted_is_inside(run: Run, tmp_path: Path):
    """A benchmark that measures what `serve` says passes; its picture is drawn."""
    load = ("--concurrency", 8, "--waves", 1200, "--input-len", 100, "--output-len", 46)
    s = run("serve", "qwen3-8b", *load, "--json").json
    seconds = 441_600 / s["output_token_throughput_per_s"]
    path, picture = tmp_path / "bench.json", tmp_path / "x.svg"
    latencies = {f"mean_{x}_ms": 1e3 * s[f"{x}_s"]["mean"] for x in ("tpot", "ttft")}
    path.write_text(json.dumps(bench(duration=seconds, **latencies)))
    page = tmp_path / "x.html"
    words = ("--model", "qwen3-8b", "--gpu", "h100-sxm", "--strict", "--plot", picture,
             "--out", page)  # fmt: skip
    answer = run("evaluate", "--service", path, *words, "--json").json
    assert answer["outside"] == [] and answer["compared"] == 1
    assert abs(answer["errors"]["tpot_s"]["bias_pct"]) < 1.5
    assert "power" in answer["windows"][0]["unavailable"]
    assert "<svg" in picture.read_text() and "A service over time" in page.read_text()
