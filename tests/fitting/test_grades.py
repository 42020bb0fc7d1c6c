"""Grades and intervals of predicted rows: by kind, by the fitted clocks, and by what
guessed numbers of the GPU leave open."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import diffenergy as de
from diffenergy.corrections import CorrectionsFile, prior_file, read_corrections
from diffenergy.fitting import predict
from diffenergy.hardware import read_gpu
from diffenergy.workload import Listing

from .builders import read_rows

GPU = "a100-pcie-40gb"
CLOCKS = (870, 880, 900, 1410)  # MHz; 873 is 0.97 of 900
HEAD = "gpu,workload,sm_clock_mhz,time_us,avg_power_w"
QUANTITIES = ("time_s", "avg_power_w", "energy_j")
WIDTHS = {"calibrated": 0.1, "transferred": 0.2, "forecast": 0.3, "clock": 0.4}


@pytest.fixture(scope="module")
def passes(tmp_path_factory, sample):
    """One pass of a product and a softmax at four clocks."""
    kernels = (sample("gemm"), sample("softmax"))
    work = {"work": [Listing("work", kernels=kernels, dispatch="graph")]}
    lines = [f"{GPU},work,{clock},2000,200" for clock in CLOCKS]
    head, folder = HEAD, tmp_path_factory.mktemp("grades")
    return read_rows(folder, head, *lines, workloads=work)


def fitted(**rows: object) -> CorrectionsFile:
    """Priors that claim passes of that GPU from 900 MHz on."""
    on = {
        "rows": {f"{GPU}:workload": rows},
        "architectures": {GPU: "architecture:Ampere"},
        "sm_clock_min": {GPU: 900e6},
    }
    spread = {
        f"workload:{grade}": {q: [x] * 4 for q in ("time", "power", "energy")}
        for grade, x in WIDTHS.items()
    }
    return dataclasses.replace(prior_file(), fitted_on=on, spread=spread)


def widths(predictions, name: str) -> np.ndarray:
    """Half widths in ln of the intervals of a quantity."""
    low, high = (getattr(predictions, f"{name}_{x}") for x in ("p5", "p95"))
    return np.log(high / low) / 2


OPS = ["elementwise", "gather", "gemm", "layernorm", "rmsnorm", "softmax"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("power", "ops", "grade", "expected"),
    [
        (9, OPS, "calibrated", dict.fromkeys(QUANTITIES, [0.4, 0.1, 0.1, 0.1])),
        (0, OPS, "forecast", {
            "time_s": [0.4, 0.1, 0.1, 0.1], "avg_power_w": [0.4, 0.3, 0.3, 0.3],
        }),
        # a kernel nobody fitted
        (9, ["gemm"], "forecast", {"time_s": [0.4] * 4}),
    ],
)  # fmt: skip
def test_grades_of_passes(
    passes, monkeypatch, power: int, ops, grade: str, expected: dict[str, list[float]]
):
    """Known less below the fitted clocks; the grade is the least of its quantities."""
    monkeypatch.setattr("diffenergy.estimator._answer.guesses.sd_of", lambda *_: 0.0)
    predictions = predict(passes, fitted(time=9, power=power, ops=ops))
    assert predictions.grade.tolist() == [grade] * 4
    for name, half_widths in expected.items():
        assert widths(predictions, name) == pytest.approx(half_widths)


@pytest.mark.slow
def test_guessed_numbers_widen_what_is_evaluated(tmp_path, monkeypatch):
    """As they widen `estimate`: power and energy below a limit, alike."""
    rows = [f"l40s,gemm,{m},4096,4096,bf16,100,200" for m in (1, 8, 4096)]
    head = "gpu,op,m,n,k,dtype,time_us,avg_power_w"
    table, card = read_rows(tmp_path, head, *rows), read_gpu("l40s")

    def half_widths(quality: str) -> list[np.ndarray]:
        names = ("vf_slope", "idle_constant", "thermal_resistance")
        guessed = dict.fromkeys(names, {"quality": quality})
        own = {**card.provenance, **guessed}
        changed = dataclasses.replace(card, provenance=own)
        monkeypatch.setattr("diffenergy.fitting._batches.read_gpu", lambda _: changed)
        predictions = predict(table, read_corrections())
        return [widths(predictions, x) for x in ("time_s", "avg_power_w", "energy_j")]

    none, derived, guessed = map(half_widths, ("measured", "derived", "guess"))
    below = guessed[1] > none[1]  # the last is at its limit
    assert below.tolist() == [True, True, False]
    for i in (1, 2):
        more = [np.sqrt(x[i] ** 2 - none[i] ** 2) for x in (derived, guessed)]
        assert more[1][below] == pytest.approx(3 * more[0][below])
    assert guessed[0][below] == pytest.approx(none[0][below])
    assert guessed[0][2] > none[0][2]


def test_a_measured_training_step_is_predicted_as_its_plan(tmp_path):
    head = "gpu,model,precision,tp,pp,dp,global_batch,seq_len,overlap,time_s"
    row = "h100-sxm,llama-3.1-8b,bf16,1,1,8,8,4096,dp,1.0"
    predictions = predict(read_rows(tmp_path, head, row), read_corrections(None))
    plan: Any = dict(plan="dp=8,overlap=dp", global_batch=8, input_len=4096)
    step = de.estimate("llama-3.1-8b", "h100-sxm", phase="train", **plan).summary
    assert predictions.time_s[0] == pytest.approx(step["step_time_s"], rel=1e-6)
    high: Any = predictions.time_s_p95
    assert high[0] > 1.1 * predictions.time_s[0]
