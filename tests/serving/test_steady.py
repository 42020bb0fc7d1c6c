"""A server in balance: identities, limits, and the published parts of a step."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.hardware import read_gpu
from diffenergy.results import Infeasible
from diffenergy.serving import Load, deploy, simulate, steady_state
from diffenergy.serving._engine import engine_of
from diffenergy.serving._step import cost

MODEL = "qwen3-0.6b"
LENGTHS: dict[str, Any] = dict(
    input_len="lognormal:256:1", output_len="lognormal:128:0.8"
)
LOADS: dict[str, dict[str, Any]] = {
    "saturated": dict(max_batch=64),
    "open": dict(rate=40.0, max_batch=64),
}


@pytest.mark.slow
def test_loads_and_limits_share_a_table_and_clocks_do_not():
    def table(rate: float, **setting: Any):
        return deploy("gpt2", "a100-sxm-80gb", Load(rate=rate), **setting).costs()

    first = table(1.0)
    assert table(2.0, power_limit=300.0) is first
    slower = table(1.0, sm_clock=1.2e9)
    assert float(slower.clocks[-1]) == pytest.approx(1.2e9)
    assert float(slower.time[-1].sum()) > float(first.time[-1].sum())


@pytest.mark.slow
def test_an_open_loop_serves_what_comes():
    """Up to the rate of saturation, which too high a rate names; replicas share it."""
    answers = {
        name: steady_state(MODEL, "h100-sxm", Load(**LENGTHS, **load)).summary
        for name, load in LOADS.items()
    }
    x = answers["open"]
    assert x["request_throughput_per_s"] == pytest.approx(40.0, rel=1e-6)
    assert x["limited_by"] == "rate"
    most = x["saturation_request_rate_per_s"]
    assert x["utilization"] == pytest.approx(40 / most, rel=1e-6)
    saturated = answers["saturated"]["request_throughput_per_s"]
    assert most == pytest.approx(saturated, rel=1e-9)
    with pytest.raises(Infeasible, match="`rate` is 10000") as refused:
        steady_state(MODEL, "h100-sxm", Load(rate=1e4, max_batch=64, **LENGTHS))
    least = refused.value.least["rate"]
    assert least == pytest.approx(most, rel=1e-4) and least <= most
    load = Load(rate=80.0, max_batch=64, **LENGTHS)
    both = steady_state(MODEL, "h100-sxm", load, tp=1, num_gpus=2).summary
    assert both["avg_power_w"] == pytest.approx(2 * x["avg_power_w"], rel=1e-6)
    assert both["tpot_s"]["mean"] == pytest.approx(x["tpot_s"]["mean"], rel=1e-6)


def test_memory_of_an_eight_billion_model():
    """131,072 B a token; 0.9 x 85.0e9 B less the weights and 2 GB: about 4.4e5."""
    result = deploy("llama-3.1-8b", "h100-sxm", Load(rate=1))
    memory = result.memory(result.gpu)
    assert float(memory.of_request(jnp.asarray(1.0))) == 131_072
    tokens = float(memory.pool) / 131_072
    assert tokens == pytest.approx(4.4e5, rel=0.03)
    with pytest.raises(Infeasible, match="it fits with tp=2") as refused:
        deploy("llama-3.1-70b", "h100-sxm", Load(rate=1))
    assert refused.value.least == {"tp": 2.0}


def test_what_is_left_out_is_assumed():
    result = deploy(MODEL, "h100-sxm", Load(rate=1), num_gpus=2).assumed
    expected = dict(tp=2, max_batch="memory", input_len=512, output_len=128)
    assert {name: result[name] for name in expected} == expected
    assert "num_gpus" not in result
    case = deploy(MODEL, "h100-sxm", Load(max_batch=4), tp=1).assumed
    assert "max_batch" not in case and case["num_gpus"] == 1


def test_sampling_takes_the_time_that_was_measured():
    """Sort with penalties of 151,936 words on H100: 3.8 ms at 64, 8.1 at 128 and 11.3
    at 255 rows (ML.ENERGY)."""
    engine = engine_of("vllm", "penalties", read_gpu("h100-sxm"), 36)
    batch = jnp.asarray([64.0, 128.0, 255.0])
    result = 1e3 * np.asarray(engine.sampled(batch, jnp.asarray(151_936.0)))
    np.testing.assert_allclose(result, [3.8, 8.1, 11.3], rtol=0.01)


@pytest.mark.slow
def test_an_engine_that_is_fitted_keeps_large_steps_near_measured_ones():
    """Median gaps of Qwen3-8B on H100 (ML.ENERGY): 13.95 ms at 64 running with 955
    tokens each, 20.70 at 128 with 941, 31.35 at 255 with 972."""
    load = Load(max_batch=255, input_len=755, output_len=400)
    result = deploy("qwen3-8b", "h100-sxm", load, sampling="penalties")
    costs, words = result.costs(), jnp.asarray(float(result.model.vocab))
    for b, c, measured in (
        (64.0, 955.0, 13.95),
        (128.0, 941.0, 20.7),
        (255.0, 972.0, 31.35),
    ):
        at = jnp.asarray(b), jnp.asarray(c), words
        step = cost.decode(costs, result.engine, *at).time[-1]
        assert 1e3 * float(step) == pytest.approx(measured, rel=0.03)


def closed_at(name: str, value: float) -> dict[str, Any]:
    """A closed loop and what is changed in it."""
    load: dict[str, Any] = dict(concurrency=48, max_batch=64)
    load |= dict(input_len="lognormal:512:1", output_len="lognormal:256:0.8")
    if name == "concurrency":
        return {"load": load | {name: value}}
    if name == "output_len":
        return {"load": load | {name: f"lognormal:{value}:0.8"}}
    if name in ("sm_clock", "power_limit"):
        return {"load": load, name: [value]}
    if name == "accept":
        return {"load": load, "speculative": "eagle", name: value}
    return {"load": load, "changes": {name: value}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value, low, high",
    [
        ("concurrency", 48, 0.99, 1.01),  # a knot of the table of steps
        ("concurrency", 1, 1.0, 1.02),
        ("output_len", 256, 0.98, 1.02),
        ("sm_clock", 1980e6, 0.98, 1.0),  # the top of the board
        ("power_limit", 700.0, 0.98, 1.0),
        ("dram_capacity", 85.0e9, 0.98, 1.02),
        ("accept", 0.7, 0.98, 1.02),
    ],
)
def test_derivatives_of_a_closed_loop(name: str, value: float, low: float, high: float):
    base = closed_at(name, value)
    load = base.pop("load")
    own = steady_state("qwen3-8b", "h100-sxm", load, sensitivity=(name,), **base)
    figures = []
    for share in (high, low):
        moved = closed_at(name, share * value)
        x = steady_state("qwen3-8b", "h100-sxm", **moved).summary
        means = (x["tpot_s"]["mean"], x["ttft_s"]["mean"])
        figures.append(np.array([x["energy_j_per_output_token"], *means]))
    slopes = (figures[0] - figures[1]) / ((high - low) * value)
    ours = np.array([x[name] for x in own.summary["sensitivities"].values()])
    # or 0.01 in d ln / d ln: where the limit binds the clock hardly matters
    scale = value / figures[0]
    np.testing.assert_allclose(ours * scale, slopes * scale, rtol=0.05, atol=0.01)


@pytest.mark.slow
def test_replicas_without_a_client_wait():
    """Four clients on eight replicas: four of them idle at any time."""
    one = steady_state(MODEL, "h100-sxm", Load(concurrency=1))
    idle = float(one.deployment.costs().idle[-1])
    some = steady_state(MODEL, "h100-sxm", Load(concurrency=4), tp=1, num_gpus=8)
    assert some.tpot == pytest.approx(one.tpot, rel=1e-9)
    assert some.power == pytest.approx(4 * one.power + 4 * idle, rel=1e-6)
    at_once = one.summary["running_requests"]
    assert some.summary["running_requests"] == pytest.approx(4 * at_once)
    tokens = some.summary["output_token_throughput_per_s"]
    assert some.power == pytest.approx(some.energy * tokens, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("clients, output", [(1, 128), (64, 128), (4, 1), (1, 1)])
def test_little_holds_in_a_closed_loop(clients: int, output: int):
    """Clients are requests a second times the time that each of them sees."""
    load = Load(concurrency=clients, output_len=output)
    x = steady_state("qwen3-0.6b", "h100-sxm", load).summary
    seen = x["request_throughput_per_s"] * x["e2e_latency_s"]["mean"]
    assert seen == pytest.approx(clients, rel=0.02 if output == 1 else 0.01)


@pytest.mark.slow
def test_one_client_waits_for_no_step():
    """Its first token is that of requests which come one by one: no other runs."""
    load = Load(concurrency=1)
    closed = steady_state(MODEL, "h100-sxm", load).ttft
    requests = {"arrival_s": [0, 60], "input_len": [512] * 2, "output_len": [128] * 2}
    alone = simulate(requests, MODEL, "h100-sxm").ttft
    assert closed == pytest.approx(alone, rel=1e-4)


@pytest.mark.slow
def test_the_best_point_keeps_a_limit_by_its_own_table():
    """Steps up to the largest batch are priced more coarsely."""
    lengths: Any = dict(input_len="lognormal:512:1", output_len="lognormal:256:0.8")
    load = Load(rate=60.0, slo_tpot=0.030, **lengths)
    best = steady_state(
        "qwen3-8b", "h100-sxm", load, optimize="energy", num_gpus=6, tp=1
    ).summary
    assert 0.029 < best["tpot_s"]["p95"] <= 0.030


@pytest.mark.slow
def test_boards_that_wait_have_the_fitted_voltage():
    """A steeper V(f) costs a waiting board the same, fitted or from the GPU's file."""
    result = deploy(MODEL, "h100-sxm")
    fitted = eqx.tree_at(lambda g: g.corrections.voltage_slope, result.gpu, 1.5)
    stated = eqx.tree_at(lambda g: g.vf_slope, result.gpu, 1.5 * result.gpu.vf_slope)
    idle = float(result.costs(fitted).idle[-1])
    assert idle == pytest.approx(float(result.costs(stated).idle[-1]), rel=1e-9)
    assert idle > 1.01 * float(result.costs().idle[-1])
