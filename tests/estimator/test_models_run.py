"""Models people serve on two GPUs, all of them priced in one program: finite answers
that respect what weights and products take at least."""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diffenergy.estimator import prepare
from diffenergy.hardware import read_gpu
from diffenergy.workload import LanguageModel, load_model
from diffenergy.workload.models import model_names

GPUS = ("h100-sxm", "b200-sxm")
FASTEST = {"h100-sxm": "fp8", "b200-sxm": "fp4"}
BATCH, LENGTH = 4, 1024


def floor(model: LanguageModel, gpu: str, phase: str) -> float:
    """Least time (s): the products of all tokens at the highest rate of any type, or
    the weights that one token needs once from DRAM."""
    values = read_gpu(gpu).values
    tokens = BATCH * LENGTH if phase == "prefill" else BATCH
    weights = [(w.number * n, w.used) for w, n in model.all_weights() if w.layer]
    active = sum(number * used for number, used in weights)
    used = active if phase == "decode" else sum(number for number, _ in weights)
    cycle = values[f"tensor_flop_per_cycle_{FASTEST[gpu]}"] * values["num_sms"]
    products = 2 * active * tokens / (cycle * values["sm_clock_max"])
    # no type has less than half a byte
    return max(products, 0.5 * used / values["dram_bandwidth"])


def check(gpu: str, models: Mapping[str, LanguageModel]):
    case: dict[str, Any] = dict(batch=BATCH, input_len=LENGTH, output_len=2)
    tasks = {name: prepare(name, gpu, **case) for name in models}
    pairs = [(name, x) for name, task in tasks.items() for x in task.listings]
    assert [x.mode for _, x in pairs] == ["prefill", "decode"] * len(models)
    first = next(iter(tasks.values()))
    whole = dataclasses.replace(first, listings=[x for _, x in pairs])
    result, values = whole.estimates().phases, read_gpu(gpu).values
    for i, (name, listing) in enumerate(pairs):
        time, energy = float(result.time[i]), float(result.energy[i])
        where = name, gpu, listing.mode
        assert math.isfinite(time) and math.isfinite(energy), where
        assert floor(models[name], gpu, str(listing.mode)) < time < 60, where
        assert values["idle_constant"] * time < energy, where
        assert energy <= 1.001 * values["tdp"] * time, where


def long_enough(model: Any) -> bool:
    return isinstance(model, LanguageModel) and model.max_positions > LENGTH + 1


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS)
def test_every_bundled_model_runs(gpu: str):
    loaded = {name: load_model(name) for name in model_names()}
    check(gpu, {name: model for name, model in loaded.items() if long_enough(model)})  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("gpu", GPUS)
def test_every_shared_config_runs(gpu: str, shared: Path, tmp_path: Path):
    folder = shared / "data" / "facts" / "model_configs"
    models: dict[str, LanguageModel] = {}
    for path in sorted(folder.glob("*.json")):
        own = tmp_path / path.stem
        own.mkdir()
        shutil.copy(path, own / "config.json")
        sidecar = folder / "hf_quant_config" / path.name
        if sidecar.exists():
            shutil.copy(sidecar, own / "hf_quant_config.json")
        with contextlib.suppress(ValueError):  # kinds that are not built
            models[str(own)] = load_model(own)  # pyright: ignore[reportArgumentType]
    models = {name: model for name, model in models.items() if long_enough(model)}
    assert len(models) >= 43
    check(gpu, models)
