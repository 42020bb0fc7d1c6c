"""Speculative decoding of a server: against `estimate`, and token by token."""

from typing import Any

import numpy as np
import pytest
from json_keys import check

import diffenergy as de
from diffenergy.results import json_text
from diffenergy.serving import Load, deploy, steady_state
from diffenergy.serving._drafts import turning_point

from .builders import Case, balance

MODEL, GPU = "qwen3-32b", "h100-sxm"
TWO: dict[str, Any] = dict(tp=2, dtype="fp8", kv_dtype="fp8")
estimate: Any = de.estimate
EAGLE: dict[str, Any] = dict(speculative="eagle", accept=0.7, draft_tokens=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle", "draft=qwen3-0.6b"])
def test_a_verifying_step_is_that_of_an_estimate(kind: str):
    """At 1,024 cached tokens and full clock; memory of the drafting network."""
    draft: dict[str, Any] = EAGLE | dict(speculative=kind)
    load = Load(max_batch=32, input_len=960, output_len=128)
    result = deploy(MODEL, GPU, load, **TWO, **draft)
    costs = result.costs()
    for batch in (1, 8, 32):
        step: dict[str, Any] = dict(phase="decode", input_len=1024, batch=batch)
        theirs = estimate(MODEL, GPU, **TWO, **step, **draft).summary
        row = int(np.flatnonzero(np.asarray(costs.batches) == batch)[0])
        time = float(costs.time[-1, row].sum())
        energy = float(costs.energy[-1, row].sum() + costs.static[-1, row] * time)
        assert time == pytest.approx(theirs["time_s"], rel=1e-3)
        assert 2 * energy == pytest.approx(theirs["energy_j"], rel=0.01)
        memory = result.memory(result.gpu)
        parts = theirs["memory"]
        assert float(memory.weights) == pytest.approx(parts["weights"])
        cached = batch * memory.on_host(1024.0)[0]
        assert cached == pytest.approx(parts["kv_cache"], rel=1e-6)


@pytest.mark.slow
def test_a_server_says_where_speculation_turns():
    load: dict[str, Any] = dict(max_batch=64, input_len=16, output_len=2000)
    common: dict[str, Any] = dict(TWO, sampling="greedy")
    result = steady_state(MODEL, GPU, load, **common, **EAGLE).summary
    plain = steady_state(MODEL, GPU, load, **common).summary
    check("serve", json_text(result))
    turns = result["break_even_batch"]
    assert turns["energy"] == pytest.approx(128, rel=0.1)
    assert turns["time"] == pytest.approx(220, rel=0.1)
    other, key = result["without_speculation"], "energy_j_per_output_token"
    assert other["tpot_s"] == pytest.approx(plain["tpot_s"]["mean"], rel=1e-9)
    assert other[key] == pytest.approx(plain[key], rel=1e-9)
    assert result[key] < plain[key]
    more = steady_state(MODEL, GPU, load | {"max_batch": 192}, **common, **EAGLE)
    assert more.energy > more.summary["without_speculation"][key]


@pytest.mark.parametrize(
    "power, even, batch",
    [(0.5, 64, 64.0), (2.0, 100.0, 100.0), (1.0, 1.0, 1.0), (1.0, 0.3, 1.0),
     (1.0, 1025.0, None), (-1.0, 1025.0, 1.0)],
)  # fmt: skip
def test_speculation_turns_where_its_cost_reaches_the_other(power, even, batch):
    """A cost over that without speculation of (batch / even)^power."""
    batches = np.geomspace(1, 1024, 81)
    result = turning_point((batches / even) ** power)
    assert result == batch or result == pytest.approx(batch, abs=1e-5)


def test_time_of_a_token_varies_with_the_tokens_of_steps():
    """4,000 requests of 400 tokens, whose steps make 1 to 4 of them."""
    case = Case(prompt=1.0, output=400, drafted=3, accept=0.7, launches=0.0)
    result = balance(case, "saturated", slots=20.0)
    random = np.random.default_rng(3)
    right = random.random((4_000, 400, 3)) < case.accept
    generated = np.cumsum(1 + np.cumprod(right, axis=2).sum(2), axis=1)
    steps = (generated < case.output).sum(1) + 1
    times = steps * result.step / case.output
    assert result.tpot.mean == pytest.approx(times.mean(), rel=0.01)
    spread = result.tpot.quantiles[2] / result.tpot.mean
    assert spread == pytest.approx(np.quantile(times, 0.95) / times.mean(), rel=0.01)
