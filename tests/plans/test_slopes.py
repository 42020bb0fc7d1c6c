"""Numbers stay differentiable: a plan changes the listing alone."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import diffenergy as de
from diffenergy.hardware import read_gpu
from diffenergy.plans import Inference, Plan, host_of
from diffenergy.workload import LanguageModel, from_listings, load_model


@pytest.mark.slow
def test_time_falls_with_the_rate_of_the_links():
    """All-reduces of a long prompt: slope by the link's rate against a difference."""
    model = load_model("gpt2")
    assert isinstance(model, LanguageModel)
    one = Inference(model, Plan(tp=4), host_of(read_gpu("h100-sxm")))
    work = from_listings(one.listings(phase="prefill", batch=8, dispatch="graph"))
    gpu = de.load_gpu("h100-sxm")

    def seconds(rate: jax.Array) -> jax.Array:
        return de.estimate(work, dataclasses.replace(gpu, link_bandwidth=rate)).time

    step = 1e-3
    low, high = (seconds(gpu.link_bandwidth * (1 + x)) for x in (-step, step))
    options = de.compiler_options()
    slope = jax.jit(jax.grad(seconds), compiler_options=options)(gpu.link_bandwidth)
    wanted = (high - low) / (2 * step * gpu.link_bandwidth)
    assert float(slope) < 0
    assert float(slope) == pytest.approx(float(wanted), rel=1e-3)
    assert bool(jnp.isfinite(slope))
