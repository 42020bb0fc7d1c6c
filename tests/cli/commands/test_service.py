"""Logs of a service on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    assert (cells["input_len"], cells["output_len"]) == ("100", "50")
    assert float(cells["avg_power_w"]) == pytest.approx(400)
    assert float(cells["energy_j_per_output_token"]) == pytest.approx(4.0)


def test_flags_of_another_file_are_refused(run: Run, logs: Any, tmp_path: Path):
    both = run("import", logs[0], logs[0])
    assert both.code == 2 and "2 files are given" in both.err
    meter = run("import", logs[0], "--tp", 2)
    assert meter.code == 2 and "`--tp` is given" in meter.err
    service = run("import", logs[1], "--passes", 2)
    assert service.code == 2 and "`--passes` is given" in service.err
    table = run("fit", logs[0], "--tp", 2, "--out", tmp_path / "x.json")
    assert table.code == 2 and "no file is a log of a service" in table.err


@pytest.mark.slow
def test_fit_reads_logs(run: Run, tmp_path: Path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench()))
    words = ("--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--out", tmp_path / "x.json")
    group = run("fit", path, *words, "--json").json["groups"][0]
    assert group["rows"] == 1
    assert group["after"]["tpot_mape_pct"] < group["before"]["tpot_mape_pct"]
