"""Two pools against hand arithmetic, simulated queues, exact chains and `estimate`."""

import dataclasses
import heapq
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffenergy as de
from diffenergy.serving import Load, apart, load_arrays, steady_state
from diffenergy.serving._apart.pools import Question, pools, queue_wait
from diffenergy.serving._apart.rank import Points, best_pairs

from .builders import ADDED, ENGINE, IDLE, READ, READING, STATIC, Case, balance, server

MODEL = "qwen3-0.6b"
DELAY = 0.02
GAPS = Case().launches - ADDED * 400 + ENGINE["step"] + ENGINE["sequence"]
READING_TIME = ADDED * 400 + GAPS
"""s of a prompt of 400 tokens on a worker that does nothing else."""
_program = jax.jit(pools)


def two(mode: Any, prefill: int = 1, decode: int = 1, **load: Any) -> Any:
    """Figures of pools of made-up servers."""
    numbers = [jnp.asarray(float(x)) for x in (prefill, decode, DELAY)]
    arrays, of = load_arrays(**load), server(Case())
    question = Question(of, of, *numbers, load=arrays, mode=mode, states=64)
    return jax.device_get(_program(question))


def decoding(slots: float) -> float:
    """s of a step of `serve` without prompts."""
    return float(balance(Case(), "saturated", slots=slots).decode)


@pytest.mark.parametrize(
    "mode, load", [("open", {"rate": 1e-6}), ("closed", {"clients": 1.0})]
)
def test_a_request_alone(mode: str, load: dict[str, Any]):
    x, step = two(mode, slots=8.0, **load), decoding(1.0)
    first = READING_TIME + DELAY + ENGINE["request"] + step
    assert float(x.steady.ttft.mean) == pytest.approx(first, rel=1e-4)
    assert float(x.steady.step) == pytest.approx(step, rel=1e-5)
    assert float(x.steady.tpot.mean) == pytest.approx(step, rel=1e-5)


def test_energy_of_both_pools():
    """W of a GPU of each pool by hand, at 20 requests/s with 2 and 1 workers."""
    x = two("open", prefill=2, slots=32.0, rate=20.0)
    each = READING * READ * 400 * 1.4 + STATIC * ADDED * 400 + IDLE * GAPS
    watts = 10 * each + (1 - 10 * READING_TIME) * IDLE
    assert float(x.power) == pytest.approx(watts, rel=1e-6)
    assert float(x.load) == pytest.approx(10 * READING_TIME, rel=1e-6)
    assert float(x.steady.flow) == pytest.approx(20 * 100, rel=1e-6)
    most = (2 / READING_TIME, 32 / (100 * decoding(32.0)))
    assert x.most == pytest.approx(most, rel=1e-5)


@pytest.mark.parametrize("workers, load, cv", [(1, 0.7, 1.0), (4, 0.8, 1.5)])
def test_waits_are_those_of_a_simulated_queue(workers: int, load: float, cv: float):
    random, number = np.random.default_rng(1), 150_000
    sigma = math.sqrt(math.log1p(cv**2))
    times = random.lognormal(-(sigma**2) / 2, sigma, number)
    arrivals = np.cumsum(random.exponential(1 / (load * workers), number))
    free, waits = [0.0] * workers, np.empty(number)
    for i, (arrival, time) in enumerate(zip(arrivals, times, strict=True)):
        begin = max(arrival, free[0])
        heapq.heapreplace(free, begin + time)
        waits[i] = begin - arrival
    numbers = load * workers, float(workers), 1.0, 1 + cv**2
    x = queue_wait(*map(jnp.asarray, numbers))
    assert float(x.taken * x.mean) == pytest.approx(waits.mean(), rel=0.1)
    high = float(x.mean) * math.log(float(x.taken) / 0.05)
    assert high == pytest.approx(np.quantile(waits, 0.95), rel=0.12)
    assert float(x.load) == pytest.approx(load)


def test_a_closed_loop_is_the_exact_chain():
    """12 clients, 2 prefill workers: probabilities by solving the generator matrix."""
    clients, slots, workers = 12, 4.0, 2
    x = two("closed", prefill=workers, slots=slots, clients=float(clients))
    away = DELAY + ENGINE["request"]
    step = {b: decoding(float(b)) for b in range(1, 5)}
    rates = np.zeros((clients + 1, clients + 1))
    for j in range(clients + 1):  # requests with the decode pool
        b = min(max(j, 1), 4)
        ends = min(j / (away + 100 * step[b]), b / (100 * step[b]))
        if j:
            rates[j, j - 1] = ends
        if j < clients:
            rates[j, j + 1] = min(clients - j, workers) / READING_TIME
    generator = rates - np.diag(rates.sum(1))
    one = np.ones(clients + 1)
    p, *_ = np.linalg.lstsq(np.vstack([generator.T, one]), np.append(0 * one, 1.0))
    flow = sum(p[j] * rates[j, j - 1] for j in range(1, clients + 1))
    assert float(x.steady.flow) == pytest.approx(100 * flow, rel=1e-5)
    # Little's law: clients = requests/s x (first token + the others)
    total = float(x.steady.ttft.mean) + 99 * float(x.steady.tpot.mean)
    assert flow * total == pytest.approx(clients, rel=0.01)


def test_more_clients_than_the_shortest_chain_are_all_somewhere():
    """Little's law: 100 clients, of whom each waits, reads, or is served."""
    x = apart(MODEL, "h100-sxm", Load(concurrency=100, max_batch=32)).summary
    clients = x["request_throughput_per_s"] * x["e2e_latency_s"]["mean"]
    assert clients == pytest.approx(100, rel=0.01)


def test_pairs_are_the_best_of_all():
    random = np.random.default_rng(2)

    def points(number: int) -> Points:
        return Points(*random.uniform(0.1, 1, (8, number)))

    prefill, decode = points(40), points(50)
    p, d, scores = best_pairs(prefill, decode, lambda x: x.power, 1.2, 0.6, 0.1)
    tried = {
        j: min(
            (prefill.power[i] + decode.power[j], i)
            for i in range(40)
            if prefill.ttft[i] + decode.ttft[j] + 0.1 <= 1.2
        )
        for j in range(50)
        if decode.tpot[j] <= 0.6 and decode.ttft[j] + 0.1 + prefill.ttft.min() <= 1.2
    }
    best = sorted((score, i, j) for j, (score, i) in tried.items())
    assert len(best) > 10
    assert [*zip(scores, p, d, strict=True)] == best


LOAD = Load(rate=200, input_len="lognormal:1024:1", output_len=64, slo_ttft=0.37)


@pytest.mark.slow
def test_workers_are_the_least_that_keep_the_limits():
    x = apart(MODEL, "a100-sxm-80gb", LOAD).summary
    number = x["pools"]["prefill"]["workers"]
    assert x["ttft_s"]["p95"] <= 0.37 and x["pools"]["prefill"]["utilization"] <= 0.85
    less = apart(MODEL, "a100-sxm-80gb", LOAD, prefill={"workers": number - 1}).summary
    assert less["ttft_s"]["p95"] > 0.37
    # the sum of the pools' own percentiles lies below the limit, that of both not
    with pytest.raises(de.Infeasible, match=r"365 ms.*the least .* is 367.5 ms"):
        apart(MODEL, "a100-sxm-80gb", dataclasses.replace(LOAD, slo_ttft=0.365))
    free = apart(MODEL, "a100-sxm-80gb", dataclasses.replace(LOAD, slo_ttft=None))
    assert free.summary["pools"]["prefill"]["workers"] < number
    watts = [pool["avg_power_w"] for pool in x["pools"].values()]
    assert sum(watts) / (200 * 64) == pytest.approx(x["energy_j_per_output_token"])
    assert sum(x["pools"][y]["num_gpus"] for y in x["pools"]) == x["num_gpus"]


@pytest.mark.slow
def test_pools_of_a_large_model():
    """Llama-3.1-70B beside estimates of prompts and steps; rates of two GPU types."""
    name = "llama-3.1-70b"
    one: Any = {"tp": 2, "sm_clock": (1080e6,)}
    lengths: Any = {"input_len": 1024, "output_len": 256}
    fp8: Any = {"dtype": "fp8"}
    load, other = Load(rate=1e-3, max_batch=16, **lengths), {"gpu": "h200-sxm", "tp": 4}
    x = apart(name, "h100-sxm", load, **fp8, prefill=one, decode=other).summary
    prompt = de.estimate(
        name, "h100-sxm", phase="prefill", input_len=1024, **fp8, **one
    ).summary
    alone = Load(max_batch=1, **lengths)
    step = steady_state(name, "h200-sxm", alone, tp=4, **fp8).summary["step_s"]
    assert x["step_s"]["mean"] == pytest.approx(step["decode_only"], rel=1e-3)
    size = 1024 * 2 * 80 * 8 * 128 * 2
    assert x["kv_transfer_s"] == pytest.approx(20e-6 + size / (2 * 50e9))
    assert x["kv_transfer_j"] == pytest.approx(8 * size * 20e-12)
    first = prompt["time_s"] + x["kv_transfer_s"] + 0.2 + step["decode_only"] + 0.0395
    assert x["ttft_s"]["mean"] == pytest.approx(first, rel=0.05)
    # 0.158 s of both GPUs in a prototype; 83.4 J when block-scaled fp8 stood for fp8
    pool = x["pools"]["prefill"]
    assert pool["utilization"] == pytest.approx(1e-3 * prompt["time_s"], rel=0.02)
    assert prompt["time_s"] == pytest.approx(0.158, rel=0.02)
    assert prompt["energy_j"] == pytest.approx(79.4, rel=0.02)
    load = dataclasses.replace(load, rate=4)
    both = apart(name, "h100-sxm", load, **fp8, prefill=one | {"workers": 1},
                 decode={"tp": 4})  # fmt: skip
    busy = both.summary["pools"]["prefill"]
    more = (busy["avg_power_w"] - pool["avg_power_w"]) / (4 - 1e-3)
    idle = pool["avg_power_w"] * pool["utilization"] / 1e-3  # while it reads a prompt
    assert more + idle == pytest.approx(prompt["energy_j"], rel=0.03)
    assert x["grade"] == "forecast" and x["pools"]["decode"]["gpu"] == "h200-sxm"
