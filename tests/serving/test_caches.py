"""Caches of a server: hits of the prefix cache, and requests that pause, by hand."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from json_keys import check

from diffenergy.results import Infeasible, json_text
from diffenergy.serving import (
    Load,
    Server,
    deploy,
    load_arrays,
    simulate,
    steady,
    steady_state,
)
from diffenergy.serving._steady.pause import slots_beside
from diffenergy.serving._steady.server import Pause

from .builders import ENGINE, Case, by_hand, server

MODEL, GPU = "qwen3-8b", "h100-sxm"
RUNS, PAUSES = 450.0, 500.0
"""B of a request of `Case`, 400 + 100 tokens, that runs, and that pauses."""
POOL = 18_000.0


_program = jax.jit(steady, static_argnums=(2, 3))


def paused(time: float, offload: float) -> Server:
    """The server whose requests pause."""
    there = Pause(*map(jnp.asarray, (time, offload, 1e-3)))
    result = dataclasses.replace(server(Case()), pause=there)
    return eqx.tree_at(lambda x: x.memory.capacity, result, jnp.asarray(POOL))


def pausing(mode: Any, time: float, offload: float = 0.0, **load: Any) -> Any:
    """Figures of a server whose memory is `POOL` bytes, 1 B a token; 0.001 s to bring
    one back."""
    states = 64 if mode == "open" else 0
    arrays = load_arrays(POOL / RUNS, **load)
    return jax.device_get(_program(paused(time, offload), arrays, mode, states))


@pytest.mark.parametrize("offload, room", [(0.0, 12e3), (1e3, 13e3), (6e3, 18e3)])
def test_room_beside_those_that_pause(offload: float, room: float):
    """3 a second x 4 s of them hold 6,000 B of 18,000, what the host takes apart."""
    slots = jnp.asarray(POOL / RUNS)
    result = slots_beside(paused(4.0, offload), slots, jnp.asarray(3.0))
    assert float(result) == pytest.approx(room / RUNS)


@pytest.mark.slow
def test_who_pauses_takes_room_from_who_runs():
    """n kv(c) + X T kv(P + C + L) - offload = pool, X requests ending a second. Of
    clients in a closed loop all run, wait, pause or are with HTTP and tokeniser."""
    for offload in (0.0, 6000.0):
        result = pausing("saturated", 2.0, offload)
        x = by_hand(Case(), result.slots)
        ending = x.decoding / x.time / 100
        assert result.pausing == pytest.approx(2.0 * ending, rel=1e-3)
        used = RUNS * result.slots + PAUSES * result.pausing - offload
        assert used == pytest.approx(POOL, rel=1e-3)
        assert result.running == result.slots < POOL / RUNS
        assert result.saturation == pytest.approx(100 * ending)
    for clients, time in ((12.0, 2.0), (80.0, 2.0), (1.0, 30.0)):
        result = pausing("closed", time, clients=clients)
        ending = result.flow / 100
        assert result.pausing == pytest.approx(time * ending)
        away = result.pausing + ENGINE["request"] * ending
        total = result.running + result.waiting + away
        assert total == pytest.approx(clients, rel=1e-3)
        assert (result.waiting > 1) == (clients == 80)
    # one after the other: a pause, HTTP, then all steps of a request
    between = 30.0 + ENGINE["request"]
    step = by_hand(Case(), 1.0).time
    assert 1 / ending == pytest.approx(between + 100 * step, rel=1e-3)


@pytest.mark.slow
def test_an_open_loop_holds_those_that_pause():
    """Little: 3 a second x 4 s of them hold 6,000 B of 18,000."""
    result = pausing("open", 4.0, rate=3.0)
    assert result.slots == pytest.approx((POOL - 6000) / RUNS)
    assert result.pausing == pytest.approx(12) and result.fetch == 0
    free = pausing("open", 4.0, 6000.0, rate=3.0)
    assert free.slots == pytest.approx(POOL / RUNS)
    assert free.ttft.mean <= result.ttft.mean


def test_hits_are_cached_tokens():
    """Half of 1,024 tokens found: 512 to compute behind 512."""
    hits = deploy(MODEL, GPU, Load(rate=4, input_len=1024, prefix_hit=0.5))
    both = deploy(MODEL, GPU, Load(rate=4, input_len=512, cached_len=512))
    assert jax.tree.all(jax.tree.map(jnp.allclose, hits.traffic, both.traffic))
    assert hits.context == both.context
    long = Load(rate=1, input_len="lognormal:20000:0.5", output_len=8, prefix_hit=0.9)
    with pytest.raises(ValueError, match="`input_len` is .* positions"):
        deploy(MODEL, GPU, long)


@pytest.mark.slow
def test_a_point_of_hits_is_worth_its_difference():
    load: dict[str, Any] = dict(rate=3, input_len=8000, output_len=200, pause=2)
    load |= dict(prefix_hit=0.3, kv_offload=1e11)
    result = steady_state(MODEL, GPU, load, sensitivity=["prefix_hit", "rate"]).summary
    check("serve", json_text(result))

    names = ("avg_power_w", "energy_j_per_output_token", "tpot_s", "ttft_s")
    high, low = (
        steady_state(MODEL, GPU, load | {"prefix_hit": x}).summary for x in (0.33, 0.27)
    )
    slopes = [_mean(high[x]) / 6 - _mean(low[x]) / 6 for x in names]
    point = result["prefix_hit_point"]
    np.testing.assert_allclose([point[x] for x in names], slopes, rtol=0.05)
    for key, name in zip(result["sensitivities"], names[1:], strict=True):
        case = result["sensitivities"][key]["prefix_hit"]
        assert case == pytest.approx(100 * point[name], rel=1e-9)
    # 147 kB a token: 2,400 of them at 25 GB/s, and 8,200 a request
    offload = result["kv_offload"]
    assert offload["fetch_s"] == pytest.approx(2400 * 147_456 / 25e9)
    assert offload["requests"] == pytest.approx(1e11 / (8200 * 147_456))
    assert offload["fetch_s"] < offload["compute_s"]


def _mean(x: Any) -> float:
    return x["mean"] if isinstance(x, dict) else x


@pytest.mark.slow
def test_a_trace_with_hits_is_one_of_what_is_left():
    trace = {"arrival_s": [0.0, 0.1, 3.0], "output_len": [8, 80, 20]}
    sent, left = ({"input_len": [x, x, x]} for x in (1024, 256))
    hits = simulate(trace | sent, MODEL, GPU, {"prefix_hit": 0.75}).summary
    both = simulate(trace | left, MODEL, GPU, {"cached_len": 768.0}).summary
    check("serve", json_text(hits))
    for key in ("ttft_s", "tpot_s", "energy_j_per_token", "kv_cache_usage"):
        assert hits[key] == pytest.approx(both[key], rel=1e-9), key


@pytest.mark.slow
def test_pauses_may_be_too_many():
    """70B in fp8 on 2 GPUs: 12 GB a request of 38,000 tokens, 85 GB for tokens."""
    load = Load(rate=0.05, input_len=38_000, output_len=100, pause=300, prefix_hit=0.9)
    with pytest.raises(Infeasible, match="sustains less than"):
        steady_state("llama-3.1-70b", GPU, load, tp=2, dtype="fp8")
    load = dataclasses.replace(load, rate=None, concurrency=8)
    result = steady_state("llama-3.1-70b", GPU, load, tp=2, dtype="fp8").summary
    assert result["limited_by"] == "memory" and result["kv_cache_usage"] <= 1.001
