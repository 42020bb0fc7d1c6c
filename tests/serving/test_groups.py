"""Attention data parallel: groups of GPUs with sequences of their own."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from json_keys import check

from diffenergy.results import json_text
from diffenergy.serving import Load, deploy, load_arrays, steady, steady_state
from diffenergy.serving._steady.server import Groups
from diffenergy.serving._step.groups import fullest
from diffenergy.serving._step.rows import Step, listing
from diffenergy.workload import ModelShare, ModelSplit, load_model

from .builders import IDLE, Case, by_hand, server

DEEPSEEK: dict[str, Any] = dict(tp=8, dtype="nvfp4", kv_dtype="fp8", engine="trtllm")


def test_the_fullest_group_sets_the_step():
    """64 sequences over 4 groups: 16 + 1.03 x 4 in the fullest, for which all wait."""
    case, full = Case(prompt=1.0, output=10_000, launches=0.0), 16 + 1.03 * 4
    there = Groups(*map(jnp.asarray, (4.0, 1.03, 0.5)))
    at = dataclasses.replace(server(case), groups=there)
    run = jax.jit(lambda x: steady(x, load_arrays(64.0), "saturated"))
    result = jax.device_get(run(at))
    most, mean = (by_hand(case, x, 0.0) for x in (full, 16.0))
    assert result.decode == pytest.approx(most.decode)
    assert result.flow == pytest.approx(64 / result.step)
    energy = mean.energy + IDLE * (most.decode - mean.decode)
    assert result.power == pytest.approx(energy / most.decode, rel=1e-3)


def test_sequences_fall_on_groups_at_random():
    random = np.random.default_rng(2)
    for number, groups in ((64, 8), (256, 8), (512, 4)):
        each = random.multinomial(number, [1 / groups] * groups, 4000).max(axis=1)
        expected = number / groups + fullest(groups) * np.sqrt(number / groups)
        assert each.mean() == pytest.approx(expected, rel=0.05)


def test_rows_of_a_gpu_with_a_group():
    """16 sequences here, 128 in all; a token goes to as many ranks as experts."""
    whole: Any = load_model("deepseek-v3")
    model = whole.placed(ModelShare(ModelSplit(1, 8)))
    request = model.request(phase="decode", batch=1, input_len=1)
    result, parts = listing(model, request, Step(16, 900, 512))
    rows = list(zip(result.kernels, parts, strict=True))
    (moe,) = (row for row, _ in rows if row["op"] == "moe")
    # all tokens once: `loads` of the kernel take the most loaded rank
    assert moe["num_tokens"] == 128 + 512
    sent = [row for row, part in rows if part == "communication"]
    assert {row["collective"] for row in sent} == {"all_to_all"}
    assert {row["bytes"] for row in sent} == {(16 + 512) * 7168 * 8 * 1.5}
    step = [row for row, part in rows if part == "attention" and row["batch"] == 16]
    assert {row["num_heads"] for row in step} == {128}


def test_a_latent_cache_is_held_once():
    """8 GPUs with a latent of every sequence each, or of an eighth of them."""
    load = Load(rate=1, input_len=4096, output_len=1024)
    one = deploy("deepseek-v3", "b200-sxm", load, **DEEPSEEK)
    both = deploy("deepseek-v3", "b200-sxm", load, **DEEPSEEK, attention_dp=8)
    pools = [float(x.memory(x.gpu).pool) for x in (one, both)]
    assert pools[1] < pools[0]
    assert both.fits / one.fits == pytest.approx(8 * pools[1] / pools[0])
    assert both.plan.ep == 8 and both.replicas == 1


@pytest.mark.slow
def test_groups_serve_latent_attention_faster():
    load: dict[str, Any] = dict(concurrency=192, input_len=2048, output_len=1024)
    field = "concurrency"
    more = dict(DEEPSEEK, attention_dp=8)
    result = steady_state("deepseek-v3", "b200-sxm", load, **more, sensitivity=[field])
    check("serve", json_text(result.summary))
    plain = steady_state("deepseek-v3", "b200-sxm", load, **DEEPSEEK, ep=8)
    parts, others = (x.summary["step_s"]["parts"] for x in (result, plain))
    assert parts["attention"] < 0.5 * others["attention"]
    assert result.tpot < plain.tpot
    high, low = (
        steady_state("deepseek-v3", "b200-sxm", load | {field: 192 * x}, **more)
        for x in (1.02, 0.98)
    )
    for key, a, b in (
        ("tpot_s", high.tpot, low.tpot),
        ("energy_j_per_output_token", high.energy, low.energy),
    ):
        slope = result.summary["sensitivities"][key][field]
        assert slope == pytest.approx((a - b) / (0.04 * 192), rel=0.05)
