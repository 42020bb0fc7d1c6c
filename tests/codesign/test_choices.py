"""Processes and memories as choices of a search: each is a search of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from chips import rubin

import diffenergy as de
from diffenergy import codesign
from diffenergy.hardware import read_gpu

REQUEST: dict[str, Any] = {"batch": 8, "input_len": 512, "output_len": 128}
WORDS: dict[str, Any] = {
    "process_node": ("4NP", "N3P", "N2"),
    "memory": ("HBM3e", "HBM4"),
}
PRODUCT = {"op": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}


@pytest.fixture
def product(tmp_path: Path) -> str:
    path = tmp_path / "product.jsonl"
    listing = {"name": "product", "dispatch": "graph", "kernels": [PRODUCT]}
    path.write_text(json.dumps(listing))
    return str(path)


def test_what_n2_and_hbm4_buy():
    """Of a Rubin-like chip at the same clocks and rates: HBM4 saves 22 of 332 J, a step
    of the process 11; decode is memory and idle power."""
    result = codesign.search("llama-3.1-8b", rubin(), vary=WORDS, **REQUEST)
    by = {tuple(x["words"].values()): x["energy_j"] for x in result.summary["choices"]}
    assert len(by) == 6
    assert by["4NP", "HBM3e"] == pytest.approx(332, rel=0.02)
    assert by["4NP", "HBM3e"] - by["4NP", "HBM4"] == pytest.approx(22, abs=2)
    assert by["4NP", "HBM4"] - by["N3P", "HBM4"] == pytest.approx(11, abs=2)
    assert by["N3P", "HBM4"] - by["N2", "HBM4"] == pytest.approx(10.5, abs=2.5)
    best = result.summary["choices"][0]
    assert best["words"] == {"process_node": "N2", "memory": "HBM4"}
    assert (result.card.process_node, result.card.memory) == ("N2", "HBM4")
    assert result.start.energy == pytest.approx(by["N3P", "HBM4"], rel=1e-6)  # as it is
    alone = de.estimate("llama-3.1-8b", gpu=rubin(), changes=best["words"], **REQUEST)
    assert alone.energy == pytest.approx(best["energy_j"], rel=1e-6)
    for key in ("energy_j_p5_p95", "time_s_p5_p95"):  # as wide as laws leave it
        assert result.summary[key] == pytest.approx(alone.summary[key], rel=1e-6)
    assert "process_node N2, memory HBM4" in repr(result)


def test_a_process_decides_area(product: str, tmp_path: Path):
    """Logic of an H100 in N2 shrinks by the pitches: 48 x 20 over 51 x 28."""
    result = codesign.search(product, "h100-sxm", vary={"process_node": ("4N", "N2")})
    area = {
        x["words"]["process_node"]: x["area_mm2"] for x in result.summary["choices"]
    }
    assert area["4N"] == pytest.approx(814, abs=1)
    assert 48 * 20 / (51 * 28) < area["N2"] / area["4N"] < 1
    path = tmp_path / "smaller.toml"
    result.to_toml("smaller", path)
    assert read_gpu(str(path)).process_node == "N2"


def test_a_smaller_process_is_faster_at_the_limit(product: str):
    """8192^3 in bf16 at 1.8 kW: 2,868 TFLOP/s in N3P, 2,975 in N2 (3.7 % more), at
    0.62 and 0.60 pJ a FLOP."""
    flop = 2 * 8192**3
    runs = [de.estimate(product, gpu=rubin(process_node=x)) for x in ("N3P", "N2")]
    rates = [flop / x.time / 1e12 for x in runs]
    assert rates == [pytest.approx(2868, rel=0.03), pytest.approx(2975, rel=0.03)]
    assert rates[1] / rates[0] == pytest.approx(1.037, abs=0.006)
    for run, price in zip(runs, (0.621, 0.599), strict=True):
        assert run.energy / flop == pytest.approx(price * 1e-12, rel=0.03)
