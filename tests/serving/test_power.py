"""Power of served steps: composed of all their work, and then held to the limit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.hardware import read_gpu
from diffenergy.hardware._files import gpu_names
from diffenergy.results import Infeasible
from diffenergy.serving import (
    Load,
    Server,
    Steady,
    deploy,
    load_arrays,
    simulate,
    steady,
    steady_state,
)
from diffenergy.serving._step.power import governed, power_at, time_weights

MIXES: list[dict[str, Any]] = [
    dict(input_len=4096, output_len=16),
    dict(input_len="lognormal:512:1", output_len="lognormal:128:0.8"),
]

SHARES, BATCHES = (0.35, 0.5, 0.7, 1.0), (1.0, 17.0, 100.0, 256.0)
"""Limits over the board's power; batch limits."""


def at_limit(gpu: str, limit: float) -> float:
    """Power that the limiter of a board holds, W."""
    return limit * read_gpu(gpu).values["cap_fraction"]


# --- the limiter on a made-up step


CLOCKS = jnp.array([0.5e9, 1.0e9, 2.0e9])


def step(bound: float) -> tuple[jax.Array, jax.Array]:
    """Time (s) and energy (J) of a step that draws 100 W at 1 GHz, P ~ f^2: 10 ms, or
    10 ms x 1 GHz / f where the core clock bounds it."""
    time = 0.010 * (1 - bound + bound * 1e9 / CLOCKS)
    return time, 100 * (CLOCKS / 1e9) ** 2 * time


@pytest.mark.parametrize("bound", [0.0, 0.4])
def test_the_clock_of_a_power_law(bound: float):
    """P = 100 W (f / GHz)^2: 144 W allow 1.2 GHz; 900 W all; 20 W less than the lowest
    clock draws (25 W)."""
    run = step(bound)
    top = jnp.asarray(2.0e9)
    at = governed(CLOCKS, *run, top, jnp.asarray(144.0))
    assert float(at.clock) == pytest.approx(1.2e9, rel=1e-12)
    assert float(at.power) == pytest.approx(144.0, rel=1e-12)
    taken = 0.010 * (1 - bound + bound / 1.2)
    assert float(at.weights @ run[0]) == pytest.approx(taken, rel=1e-12)
    free = governed(CLOCKS, *run, top, jnp.asarray(900.0))
    assert (float(free.clock), bool(free.feasible)) == (2.0e9, True)
    assert float(free.power) == pytest.approx(400.0, rel=1e-12)
    # a lower request goes before the limit
    slow = governed(CLOCKS, *run, jnp.asarray(0.8e9), jnp.asarray(144.0))
    assert float(slow.clock) == 0.8e9
    assert float(slow.power) == pytest.approx(64.0, rel=1e-12)
    low = governed(CLOCKS, *run, top, jnp.asarray(20.0))
    assert not bool(low.feasible) and float(low.clock) == pytest.approx(0.5e9)
    assert float(low.lowest) == pytest.approx(25.0, rel=1e-12)


def test_the_slope_of_a_limit():
    """f = GHz sqrt(cap / 100 W): d ln f / d ln cap = 1/2, and none above the limit."""
    run = step(0.5)

    def clock(cap: jax.Array) -> jax.Array:
        return governed(CLOCKS, *run, jnp.asarray(2.0e9), cap).clock

    slope = jax.grad(clock)(jnp.asarray(144.0))
    assert float(slope) == pytest.approx(1.2e9 / 144 / 2, rel=1e-9)
    assert float(jax.grad(clock)(jnp.asarray(900.0))) == 0.0


def test_between_the_clocks_of_a_table():
    weights = time_weights(CLOCKS, jnp.asarray(1.6e9))
    assert float(weights @ (3 + 1e9 / CLOCKS)) == pytest.approx(3 + 1 / 1.6)
    power = power_at(CLOCKS, 7 * (CLOCKS / 1e9) ** 3, jnp.asarray(1.6e9))
    assert float(power) == pytest.approx(7 * 1.6**3)


# --- servers


@jax.jit
def on_grid(server: Server, caps: jax.Array, batches: jax.Array) -> Steady:
    """Figures of a saturated server under each cap (W) with each batch limit."""

    def one(cap: jax.Array, batch: jax.Array) -> Steady:
        limited = eqx.tree_at(lambda x: x.cap, server, cap)
        return steady(limited, load_arrays(batch), "saturated")

    return jax.vmap(lambda x: jax.vmap(lambda b: one(x, b))(batches))(caps)


def check_limits(gpu: str):
    """W keep the limit, or it is infeasible; a lower one never makes more tokens."""
    caps = np.array([at_limit(gpu, x * read_gpu(gpu).values["tdp"]) for x in SHARES])
    for mix in MIXES:
        result = deploy("qwen3-0.6b", gpu, Load(max_batch=256, **mix))
        server = result.server(result.costs())
        x = jax.device_get(on_grid(server, jnp.asarray(caps), jnp.asarray(BATCHES)))
        cap = np.broadcast_to(caps[:, None], x.power.shape)
        assert (x.power <= cap * (1 + 1e-9))[x.feasible].all(), (gpu, mix)
        assert (x.lowest > cap)[~x.feasible].all()
        assert x.feasible[-1].all()  # the board's own limit can be kept
        assert (np.diff(x.flow, axis=0) >= -1e-9 * x.flow[1:]).all()
        np.testing.assert_allclose(x.power, x.energy * x.flow, rtol=1e-9)


@pytest.mark.parametrize("gpu", ["h100-sxm", "l4"])
def test_no_server_draws_more_than_its_limit(gpu: str):
    check_limits(gpu)


@pytest.mark.slow
def test_no_server_of_any_gpu_draws_more_than_its_limit():
    for gpu in gpu_names():
        check_limits(gpu)


@pytest.mark.slow
def test_a_table_agrees_with_its_own_clock():
    """Between the clocks of the table: priced again at the clock that a limit allows,
    the same step is within 0.2 % in time and 1 % in power."""
    load = Load(max_batch=256, input_len=16, output_len=4096)  # hardly any prompts
    for limit in (200.0, 450.0):
        x = steady_state("qwen3-8b", "h100-sxm", load, power_limit=limit).summary
        clock = 1e6 * x["sm_clock_mhz"]
        free = steady_state("qwen3-8b", "h100-sxm", load, sm_clock=clock).summary
        assert x["step_s"]["mean"] == pytest.approx(free["step_s"]["mean"], rel=2e-3)
        assert x["avg_power_w"] == pytest.approx(free["avg_power_w"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["chunked", "prefill-first"])
def test_every_step_of_a_trace_keeps_the_limit(schedule: Any):
    """Bursts of long prompts beside decoding, under half the board's power."""
    random = np.random.default_rng(1)
    trace = {
        "arrival_s": np.sort(random.choice([0.0, 2.0, 2.5], 60)),
        "input_len": random.integers(16, 4000, 60),
        "output_len": random.integers(2, 120, 60),
    }
    limit = 300.0
    result = simulate(
        trace, "qwen3-8b", "h100-sxm", Load(max_batch=48), power_limit=[limit],
        schedule=schedule,
    )  # fmt: skip
    x, cap = result.summary, at_limit("h100-sxm", limit)
    assert x["peak_step_power_w"] <= cap * (1 + 1e-9)
    assert x["peak_step_power_w"] == pytest.approx(cap)  # and it binds
    assert x["avg_power_w"] <= cap * (1 + 1e-9)
    tokens = x["output_token_throughput_per_s"]
    assert x["energy_j_per_output_token"] * tokens == pytest.approx(x["avg_power_w"])
    with pytest.raises(Infeasible, match="`power_limit` cannot be kept"):
        simulate(
            trace, "qwen3-8b", "h100-sxm", power_limit=[100.0],
            changes={"power_limit_min": 50.0},
        )  # fmt: skip
