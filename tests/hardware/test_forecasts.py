"""Chips that nobody has measured here: systolic arrays (TPU, Trainium, Gaudi), R100 and
MI455X, against what is public of them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import diffenergy as de
from diffenergy import serving
from diffenergy.corrections import prior_file, read_corrections
from diffenergy.estimator import prepare
from diffenergy.hardware import (
    OperatingPoint,
    gpu_names,
    idle_power,
    read_gpu,
)

FORECASTS = [name for name in gpu_names() if read_gpu(name).corrections is None]
ARRAYS = [name for name in FORECASTS if read_gpu(name).mma == "systolic"]
DISPATCH = 1e-4
"""s that a host needs for each program (JAX guide to Pallas matrix products)."""


def listed(folder: Path, sizes: Sequence[Mapping[str, int | str]]) -> str:
    """Path of a listing of one phase, a bf16 product for each of `sizes`."""
    rows = [{"op": "gemm", "dtype": "bf16", **size} for size in sizes]
    path = folder / "products.jsonl"
    path.write_text(json.dumps({"name": "x", "dispatch": "graph", "kernels": rows}))
    return str(path)


def one(folder: Path, side: int) -> de.Workload:
    """A square product."""
    return de.load_workload(listed(folder, [square(side)]))


def square(side: int, **tile: int) -> dict[str, int]:
    """C = A B of one side, its tile perhaps given."""
    return {"m": side, "n": side, "k": side, **tile}


@pytest.mark.parametrize("name", FORECASTS)
def test_every_number_says_how_it_is_known(name: str):
    """Nothing is called measured here; recalled figures are no `vendor_docs`."""
    card = read_gpu(name)
    for field, entry in card.provenance.items():
        assert entry["quality"] != "measured", field
        if "recalled" in entry["source"] or "guess" in entry["source"]:
            assert entry["quality"] in ("recall", "guess", "derived"), field


TIMES = [  # JAX guide, TPU v5e: ms with the host's start of each program
    (square(8192), 6.05),
    (square(4096), 0.827),
    (square(1024), 0.119),
    (square(4096, tile_m=128, tile_n=128, tile_k=128), 11.77),
    (square(8192, tile_m=128, tile_n=128, tile_k=128), 91.8),
    (square(8192, tile_m=512, tile_n=1024, tile_k=1024), 6.10),
]


def test_times_of_a_tpu_v5e(tmp_path: Path):
    """Within 10 %; 32,768 and 262,144 steps of 128x128x128 are 0.35 us each. In fp32
    six passes of bf16 take six times as long at least; on the vector unit it would be
    32 times (131,072 of 4,096 FLOP a cycle)."""
    wide = {**square(4096), "dtype": "fp32"}
    path = listed(tmp_path, [*(size for size, _ in TIMES), wide])
    kernels = de.estimate(path, "tpu-v5e").kernels
    assert kernels is not None
    *times, passes = np.array([kernel["time_s"] for kernel in kernels])
    assert 6 < passes / times[1] < 9
    published = np.array([time for _, time in TIMES]) * 1e-3
    np.testing.assert_allclose(np.array(times) + DISPATCH, published, rtol=0.1)
    assert times[3] / 32**3 == pytest.approx(0.359e-6, rel=0.1)
    assert times[4] / 64**3 == pytest.approx(0.350e-6, rel=0.1)


@pytest.mark.parametrize(
    ("name", "side", "peak", "low", "high"),
    [
        ("tpu-v5p", 8192, 459e12, 0.90, 0.98),
        ("gaudi3", 16384, 1835e12, 0.965, 0.994),  # a Gaudi 2: 99.4 % at best
        ("trn2", 8192, 667e12, 0.90, 0.994),
        ("tpu-v7x", 8192, 2307e12, 0.90, 0.994),
    ],
)
def test_large_products_reach_the_peak(
    tmp_path: Path, name: str, side: int, peak: float, low: float, high: float
):
    """A tenth of it before tiles were those of arrays."""
    estimate = de.estimate(one(tmp_path, side), read_gpu(name).spec)
    assert low < 2 * side**3 / float(estimate.time) / peak < high


def test_a_tpu_v4_draws_its_measured_watts(tmp_path: Path):
    """Google measured 90 W at least, 192 W at most. Products ask for more than that at
    the top clock, so that the price of a FLOP is, if anything, high; it is under the
    0.41 pJ that 102 W leave for 0.9 of 275 TFLOP/s."""
    card = read_gpu("tpu-v4")
    top, memory = (card.values[x] for x in ("sm_clock_max", "mem_clock"))
    assert float(idle_power(card.spec, jnp.asarray(top))) == pytest.approx(90, abs=1)
    work = one(tmp_path, 8192)
    limited = de.estimate(work, card.spec)
    assert float(limited.power) == pytest.approx(192, rel=1e-3)
    assert 0.85e9 < float(limited.phases.sm_clock[0]) < top
    free = de.estimate(work, card.spec, OperatingPoint(top, memory, 1e7))
    assert 1.0 < float(free.power) / 192 < 1.35
    c = card.spec.corrections
    price = float(c.energy_tensor * c.core_energy) * 1.25**2
    assert 0.2e-12 < price < 0.41e-12


def test_a_rubin_within_its_limit(tmp_path: Path):
    """8192^3 by hand: 99 % of 1,800 W; at 0.62 pJ/FLOP 2,870 TFLOP/s. A B200 reaches
    half of that."""
    work = one(tmp_path, 8192)
    result = {x: de.estimate(work, read_gpu(x).spec) for x in ("r100", "b200-sxm")}
    assert float(result["r100"].power) == pytest.approx(0.99 * 1800, rel=1e-3)
    rate = 2 * 8192**3 / float(result["r100"].time)
    assert rate == pytest.approx(2868e12, rel=0.02)
    assert float(result["b200-sxm"].time / result["r100"].time) == pytest.approx(
        2, 0.05
    )


# --- what is served, and how well it is known


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_no_link_of_the_chain(name: str):
    """Nothing of wgmma or tcgen05 acts on them; a core is fed as one, not as an SM."""
    card = read_gpu(name)
    assert [x for x in card.tags if x.startswith("mma:")] == ["mma:systolic"]
    priors, plain = prior_file().serve(card), prior_file().levels["global"]
    for constant, factor in {"stream_feed": 100, "energy_tensor": 0.35}.items():
        expected = plain[constant] * factor
        assert float(getattr(priors, constant)) == pytest.approx(expected), constant


@pytest.mark.parametrize("corrections", [None, "h100-sxm", "b200-sxm"])
def test_no_grade_of_arrays_is_better_than_forecast(corrections: str | None):
    """Nor where the file names a GPU that was measured."""
    card = dataclasses.replace(read_gpu("tpu-v5e"), corrections=corrections)
    file = read_corrections()
    for kind in ("gemm", "workload", "moe", "plan"):
        for quantity in ("time", "power"):
            assert file.grade(card, kind, quantity) == "forecast"
    assert file.trust(card).grade == "forecast"
    answer = de.estimate("gpt2", card, phase="decode")
    assert answer.summary["grade"] == "forecast"


def guesses(warnings: Any) -> list[str]:
    return [x for x in warnings if x.startswith("guessed of ")]


TPU_V4, CURVE = read_gpu("tpu-v4"), "the voltage curve (`vf_slope`)"


@pytest.mark.parametrize(
    ("gpu", "changes", "reported"),
    [
        ("tpu-v5e", None, f"tpu-v5e: `tdp`, {CURVE}, idle power (`idle_constant`);"),
        ("tpu-v4", None, f"tpu-v4: {CURVE};"),
        ("tpu-v5e", {"tdp": 180}, f"tpu-v5e: {CURVE}, idle power (`idle_constant`);"),
        # for the warning as for the interval (`estimator/test_guesses.py`)
        (dataclasses.replace(TPU_V4, provenance={}), None, f"tpu-v4: `tdp`, {CURVE}"),
        ("b300", None, ""),  # a guess, too: its grade and interval say so
    ],
)
def test_an_answer_says_what_is_guessed(gpu: Any, changes: Any, reported: str):
    task = prepare("gpt2", gpu, phase="decode", changes=changes)
    warnings = guesses(task.warnings)
    assert len(warnings) == bool(reported)
    assert not reported or warnings[0].startswith(f"guessed of {reported}")


@pytest.mark.slow
def test_a_server_says_what_is_guessed():
    load = serving.Load(max_batch=8)
    answer = serving.steady_state("qwen3-0.6b", "tpu-v5e", load)
    assert answer.summary["grade"] == "forecast"
    assert len(guesses(answer.warnings)) == 1
    assert any("`process_node` 5nm was never fitted" in x for x in answer.warnings)


def test_a_host_starts_one_program():
    """0.1 ms a pass, whatever it holds; an H100's host lists its operators."""
    for name, most in (("tpu-v5p", 0.2e-3), ("h100-sxm", 10e-3)):
        phase = de.estimate("gpt2", name, phase="prefill").summary["phases"]["prefill"]
        assert most / 10 < phase["host_time_s"] < most


def test_many_chips():
    """Four of a host; nothing is known of more."""
    answer = de.estimate("llama-3.1-8b", gpu="tpu-v5p", tp=4, phase="decode")
    assert answer.summary["topology"] == "a host of 4"
    assert any("the link ici was never fitted" in x for x in answer.warnings)
