"""Kernels of a step of every kind of model, and tables of measured servers."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from json_keys import check

import diffenergy as de
from diffenergy.hardware import read_gpu
from diffenergy.serving import Load, deploy, fit, is_serving, steady_state
from diffenergy.serving._engine import constants, levels
from diffenergy.serving._fitting.fit import ENERGY_FACTORS, read_serving
from diffenergy.serving._step.rows import PARTS, Step, listing
from diffenergy.workload import ModelShare, ModelSplit, assemble, load_model

KINDS = (
    "deepseek-v3", "qwen3.5-9b", "gpt-oss-20b", "gpt2", "gemma-4-26b-a4b",
    "nemotron-3-nano",
)  # fmt: skip
TABLE = """gpu,model,engine,max_batch,running_requests,input_len,output_len,tpot_s
h100-sxm,qwen3-0.6b,vllm,16,15.9,256,128,0.0050
h100-sxm,qwen3-0.6b,vllm,32,31.5,256,128,0.0062
h100-sxm,qwen3-0.6b,vllm,64,63.5,256,128,0.0085
"""


@pytest.mark.parametrize("name", KINDS)
def test_a_mixed_step(name: str):
    model: Any = load_model(name)
    request = model.request(phase="decode", batch=1, input_len=1)
    result, parts = listing(model, request, Step(24, 900, 512))
    assert set(parts) <= set(PARTS) and len(parts) == len(result.kernels)
    rows = list(zip(result.kernels, parts, strict=True))
    heads = [row for row, part in rows if part == "head" and row["op"] == "gemm"]
    assert [min(row["m"], row["n"]) for row in heads] == [25]
    apart = {
        (row["batch"], row["op"] == "context_attention" or row.get("q_len", 1) > 1)
        for row, part in rows
        if part == "attention"
    }
    assert apart == {(24, False), (1, True)}
    norms = [row for row, _ in rows if row["op"] in ("rmsnorm", "layernorm")]
    assert max(row["rows"] for row in norms) % 536 == 0


def test_a_step_without_prompts_is_a_decode_step():
    """And a prompt of one token is a sequence that decodes."""
    model: Any = load_model("qwen3-8b")
    request = model.request(phase="decode", batch=32, input_len=700)
    ours, one, more = (
        sorted(map(str, listing(model, request, step)[0].kernels))
        for step in (Step(32, 700), Step(255, 900, 1, 700), Step(256, 900))
    )
    theirs = model.listings(phase="decode", batch=32, input_len=700)[0]
    assert ours == sorted(map(str, theirs.kernels))
    assert one == more


@pytest.mark.parametrize("drafted", [0, 3])
def test_a_table_has_the_estimates_of_its_steps(drafted: int):
    """Of sequences and of a prompt beside some, at the lowest and highest clock. The
    prompt has the place of one token: of a sequence that drafts none."""
    load, drafts = Load(max_batch=8, output_len=64), dict[str, Any]()
    if drafted:
        drafts |= dict(speculative="eagle", accept=0.7, draft_tokens=drafted)
    place = deploy("qwen3-0.6b", "h100-sxm", load, chunk=512, **drafts)
    costs = place.costs()
    near, far = (scale * int(costs.context) for scale in (1, 2))
    beside = 16 if drafted else 15, near, 512
    steps = (
        Step(*x, drafted=drafted) for x in ((1, near), (8, far), (16, near), beside)
    )
    work = assemble([listing(place.model, place.request, step)[0] for step in steps])
    at = jnp.searchsorted(costs.batches, jnp.array([1, 8, 16]))
    more = jnp.array([0.0, far - near, 0.0])[:, None]
    for clock in (0, -1):
        point = dataclasses.replace(place.point, sm_clock=costs.clocks[clock])
        phases = de.estimate(work, place.gpu, point).phases
        time = (costs.time[clock, at] + costs.slope[clock, at] * more).sum(-1)
        energy = costs.energy[clock, at] + costs.energy_slope[clock, at] * more
        energy, static = energy.sum(-1), costs.static[clock, at]
        beside = clock, list(costs.beside).index(16), list(costs.prompts).index(512)
        time = jnp.append(time, time[2] + costs.added_time[beside].sum())
        energy = jnp.append(energy, energy[2] + costs.added_energy[beside])
        energy += time * jnp.append(static, static[2])
        np.testing.assert_allclose(phases.time, time, rtol=1e-6)
        np.testing.assert_allclose(phases.energy, energy, rtol=0.03)


def test_parts_of_a_mixture():
    """Experts below 16 bits run by libraries of their own, which fuse what stands
    around them."""
    for name, dtype, experts, small in (
        ("deepseek-v3", "nvfp4", "experts", "small"),
        ("gpt-oss-20b", "bf16", "linear", "linear"),
        ("qwen3-30b-a3b", None, "linear", "linear"),
    ):
        model: Any = load_model(name)
        request = model.request(phase="decode", batch=1, input_len=1, dtype=dtype)
        result, parts = listing(model, request, Step(24, 900))
        of = {row["op"]: x for row, x in zip(result.kernels, parts, strict=True)}
        assert of["moe"] == experts and of["rmsnorm"] == of["softmax"] == small


@pytest.mark.parametrize(
    "name, gpu, ep, more, expected",
    [
        # 94 layers x (4096 + 1536)/32 loads, of steps of more tokens than experts here,
        # and half of them in other steps
        ("qwen3-235b-a22b", "b200-sxm", 4, {}, (94 * 88, 94 * 176, 32, 0)),
        ("qwen3-235b-a22b", "h100-sxm", 8, {}, (94 * 88, 94 * 176, 16, 0)),
        # a file: 128 experts of 192
        ("qwen3-235b-a22b", "b200-sxm", 1, {}, (0, 0, 0, 0)),
        ("qwen3-235b-a22b", "b200-sxm", 4, {"engine": "sglang"}, (0, 0, 0, 0)),
        ("qwen3-235b-a22b", "b200-sxm", 4, {"dtype": "fp8_block"}, (0, 0, 0, 0)),
        # 128 rows of 32 experts a layer at 2.14 PFLOP/s
        ("qwen3-235b-a22b", "h100-sxm", 4, {"dtype": "fp8_block"},
         (0, 0, 0, 94 * 32 * 128 * 6 * 4096 * 1536 / (8192 * 132 * 1.98e9))),
        ("qwen3-30b-a3b", "h100-sxm", 2, {}, (0, 0, 0, 0)),
        ("qwen3-8b", "h100-sxm", 1, {"set": 1e-6}, (0, 0, 0, 0)),  # no experts
        ("qwen3-30b-a3b", "h100-sxm", 2, {"set": 1e-6}, (48 * 44, 48 * 88, 64, 0)),
        ("qwen3-30b-a3b", "h100-sxm", 2, {"set": 1e-6, "dtype": "fp8_block"},
         (48 * 88, 48 * 88, 0, 0)),
    ],
)  # fmt: skip
def test_experts_without_tuned_tiles(name, gpu, ep, more, expected):
    """vLLM's default tiles: 32 deep, where no file has the shape; a constant that the
    user sets goes for any shape. Block-scaled fp8 has one size for all steps, and pads
    listed shapes."""
    changes = {"untuned": more["set"]} if "set" in more else None
    load = Load(rate=1.0, input_len=128, output_len=64)
    engine = more.get("engine", "vllm")
    server = deploy(
        name, gpu, load, tp=8 if ep == 1 else ep, ep=ep, dtype=more.get("dtype"),
        engine=engine, engine_changes=changes,
    )  # fmt: skip
    assert tuple(server.tiles) == pytest.approx(expected)
    named = "padded" if expected[3] else "untuned" if expected[1] else None
    assert server.assumed.get("expert_tiles") == (None if changes else named)
    constants = levels(engine, read_gpu(gpu)) | (changes or {})
    few, many, _, padded = expected
    for value, loads in (
        (server.engine.tiles_few, few), (server.engine.tiles_many, many)
    ):  # fmt: skip
        assert float(value) == pytest.approx(loads * constants["untuned"])
    assert float(server.engine.padded) == pytest.approx(padded * constants["padded"])


def test_shared_layers_send():
    whole: Any = load_model("qwen3-8b")
    model = whole.placed(ModelShare(ModelSplit(4)))
    request = model.request(phase="decode", batch=1, input_len=1)
    result, parts = listing(model, request, Step(8, 100, 64))
    sent = [
        row for row, part in zip(result.kernels, parts, strict=True)
        if part == "communication"
    ]  # fmt: skip
    reduced = [row for row in sent if row["collective"] == "custom_all_reduce"]
    tokens = {row["bytes"] / (4096 * 2) for row in reduced}
    assert tokens == {72.0}  # two bytes a value, all tokens of both kinds
    assert sum(row["count"] for row in reduced) == 2 * 36 + 1  # and the embedding


def test_constants_go_from_engine_to_host():
    own = levels("vllm", read_gpu("h100-sxm"))
    other = levels("vllm", read_gpu("a100-sxm-80gb"))
    assert set(own) == set(constants()) == set(other)
    assert own["step"] != other["step"]
    fitted = {"host": {"vllm:h100-sxm": {"step": 0.5}}}
    assert levels("vllm", read_gpu("h100-sxm"), fitted)["step"] == 0.5
    assert levels("vllm", read_gpu("h200-sxm"))["step"] == own["step"]
    assert min(own.values()) >= 0
    # energy of kernels needs no factor of servers
    assert {x[name] for x in (own, other) for name in ENERGY_FACTORS} == {1.0}


@pytest.mark.slow
def test_a_fit_finds_what_rows_say(tmp_path: Path):
    path = tmp_path / "serving.csv"
    path.write_text(TABLE)
    assert is_serving(path) and not is_serving(tmp_path / "none.csv")
    rows = read_serving(path)
    assert [row.running for row in rows] == [15.9, 31.5, 63.5]
    assert rows[0].measured == {"tpot_s": 0.0050}
    result = fit(path)
    check("fit", result.to_json())  # what `fit --json` prints of it
    group = result.summary["groups"][0]
    assert group["rows"] == 3
    assert group["after"]["tpot_mape_pct"] < group["before"]["tpot_mape_pct"]
    written = result.corrections.engines["host"]["vllm:h100-sxm"]
    assert written == {k: x["value"] for k, x in group["constants"].items()}
    out = tmp_path / "mine.json"
    result.write(out)
    served = deploy("qwen3-0.6b", "h100-sxm", corrections=str(out)).engine
    step = written.get("step", levels("vllm", read_gpu("h100-sxm"))["step"])
    assert float(served.step) == pytest.approx(step)


@pytest.mark.slow
def test_narrow_experts_are_forecasts():
    """Left-out rows of mixtures below 16 bits are off by 8 to 19 %, on one GPU too."""
    load = Load(max_batch=4, input_len=16, output_len=16)
    for dtype, forecast in (("bf16", False), (None, True)):
        result = steady_state("gpt-oss-20b", "h100-sxm", load, dtype=dtype)
        assert (result.summary["grade"] == "forecast") == forecast
