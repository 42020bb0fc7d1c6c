"""Speed of a server's figures in double width: many points in one call, a long trace.

    pytest tests/benchmarks/bench_serving.py -o python_files='bench_*.py' -o addopts=''

After compilation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import compiler_options
from diffenergy.serving import Load, deploy, simulate

MODEL, GPU = "qwen3-8b", "h100-sxm"
LENGTHS: dict[str, Any] = dict(
    input_len="lognormal:512:1", output_len="lognormal:256:0.8"
)
POINTS, REQUESTS = 10_000, 10_000


@pytest.mark.parametrize("mode", ["open", "saturated"])
def test_operating_points(benchmark, mode: str):
    """All figures of 10,000 rates or batches of one server: 1 s."""
    ways: dict[str, tuple[str, Load, float]] = {
        "open": ("rate", Load(rate=8, max_batch=128, **LENGTHS), 19.0),
        "saturated": ("max_batch", Load(max_batch=256, **LENGTHS), 256.0),
    }
    name, load, most = ways[mode]
    server = deploy(MODEL, GPU, load)
    costs = server.costs()
    each = jax.vmap(lambda x: server.steady(costs, **{name: x}))
    many = jax.jit(each, compiler_options=compiler_options())
    rates = jnp.linspace(1.0, most, POINTS)
    benchmark.pedantic(
        lambda: jax.block_until_ready(many(rates)), rounds=3, warmup_rounds=1
    )


def test_trace(benchmark):
    """10,000 requests at 75 % of saturation, from columns to the summary: 2 s."""
    random = np.random.default_rng(3)
    trace = {"arrival_s": np.cumsum(random.exponential(1 / 14.6, REQUESTS))}
    for name, mean, cv in (("input_len", 512, 1.0), ("output_len", 256, 0.8)):
        sigma = np.sqrt(np.log1p(cv**2))
        drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, REQUESTS)
        trace[name] = np.maximum(np.round(drawn), 1.0)
    load = Load(max_batch=128)
    benchmark.pedantic(
        lambda: simulate(trace, MODEL, GPU, load), rounds=3, warmup_rounds=1
    )
