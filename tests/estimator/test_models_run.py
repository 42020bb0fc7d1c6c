"""Models people serve on two GPUs: finite answers that respect what weights and
products take at least."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from diffenergy.estimator._requests import prepare
from diffenergy.hardware import read_gpu
from diffenergy.workload.models import load_model, model_names
from diffenergy.workload.models._shared.language_model import LanguageModel

GPUS = ("h100-sxm", "b200-sxm")
FASTEST = {"h100-sxm": "fp8", "b200-sxm": "fp4"}
BATCH, LENGTH = 4, 1024


def floor(model: LanguageModel, gpu: str, phase: str) -> float:
    """Least time (s): the products of all tokens at the highest rate of any type, or
    the weights that one token needs once from DRAM."""
    values = read_gpu(gpu).values
    tokens = BATCH * LENGTH if phase == "prefill" else BATCH
    used = sum(
        w.number * n * (w.used if phase == "decode" else 1.0)
        for w, n in model.all_weights()
        if w.layer
    )
    active = sum(w.number * n * w.used for w, n in model.all_weights() if w.layer)
    cycle = values[f"tensor_flop_per_cycle_{FASTEST[gpu]}"] * values["num_sms"]
    products = 2 * active * tokens / (cycle * values["sm_clock_max"])
    # no type has less than half a byte
    return max(products, 0.5 * used / values["dram_bandwidth"])


def check(model: str, loaded: LanguageModel):
    for gpu in GPUS:
        given: dict[str, Any] = dict(batch=BATCH, input_len=LENGTH, output_len=2)
        phases = prepare(model, gpu, **given).run().summary["phases"]
        assert list(phases) == ["prefill", "decode"]
        values = read_gpu(gpu).values
        for phase, answer in phases.items():
            time, energy = answer["time_s"], answer["energy_j"]
            assert math.isfinite(time) and math.isfinite(energy), (model, gpu, phase)
            assert floor(loaded, gpu, phase) < time < 60, (model, gpu, phase)
            assert values["idle_constant"] * time < energy, (model, gpu, phase)
            assert energy <= 1.001 * values["tdp"] * time, (model, gpu, phase)


NAMES = [name for name in model_names() if isinstance(load_model(name), LanguageModel)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_model_runs(name: str):
    loaded = load_model(name)
    assert isinstance(loaded, LanguageModel)
    if loaded.max_positions > LENGTH + 1:
        check(name, loaded)


@pytest.mark.slow
@pytest.mark.shared_data
def test_every_shared_config_runs(shared: Path, tmp_path: Path):
    folder = shared / "data" / "facts" / "model_configs"
    ran = 0
    for path in sorted(folder.glob("*.json")):
        own = tmp_path / path.stem
        own.mkdir()
        shutil.copy(path, own / "config.json")
        sidecar = folder / "hf_quant_config" / path.name
        if sidecar.exists():
            shutil.copy(sidecar, own / "hf_quant_config.json")
        try:
            loaded = load_model(own)
        except ValueError:
            continue
        if isinstance(loaded, LanguageModel) and loaded.max_positions > LENGTH + 1:
            check(str(own), loaded)
            ran += 1
    assert ran >= 43
