"""Searches over the hardware of a plan: every GPU and every host counts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import codesign, estimate, load_gpu, parallel
from diffenergy.codesign import _request
from diffenergy.codesign._problem.exact import Judge
from diffenergy.codesign._problem.problem import Problem

TRAINED: dict[str, Any] = dict(
    phase="train", plan="tp=2,pp=2,dp=4", global_batch=16, input_len=128
)


def problem(
    request: Mapping[str, Any], *vary: str, parts: int = 1, **limits: float
) -> Problem:
    """The space that `search` has of GPT-2; of the next parts a decode pass each."""
    ranges, _ = _request.ranges_of(vary)
    one = codesign.Part("gpt2", request=request)
    mix = [one, *(parts - 1) * [codesign.Part("gpt2", request={"phase": "decode"})]]
    tasks = _request.tasks_of(mix, "h100-sxm", {})
    aims = (ranges, False), ("energy",), limits, 1.0
    return _request.problem_of(tasks, parts * [1.0], *aims)


def scores(space: Problem, *designs: Mapping[str, float]) -> list[tuple[float, float]]:
    """Exact (time, energy) of designs that differ from the base by name."""
    names, base = space.task.names, space.base
    rows = np.array(
        [[d.get(n, x) for n, x in zip(names, base, strict=True)] for d in designs]
    )
    result = Judge(space.task)(rows)
    return [(float(row[0]), float(row[1])) for row in result.metrics]


def test_network_cards_are_those_of_a_step():
    """A pass of one GPU beside it in the mix has none."""
    step, single = problem(TRAINED, "network", parts=2).task.members
    cards = jnp.array(1e11)
    assert single.connected(cards) is single
    steps = step.connected(cards).steps
    assert steps and float(steps.network) == 1e11


@pytest.mark.slow
def test_a_step_is_that_of_estimate_whatever_its_links():
    """Time and energy of all 16 GPUs, as they are and with links and network cards of
    twice the rate."""
    designs = problem(TRAINED, "link_bandwidth", "network")
    faster = {n: 2 * x for n, x in zip(designs.task.names, designs.base, strict=True)}
    assert faster["network"] == 2 * 50e9  # 400 Gbit/s a GPU of a DGX H100
    links = {"link_bandwidth": faster["link_bandwidth"]}
    plain, linked, both = scores(designs, {}, links, faster)
    single = estimate("gpt2", gpu="h100-sxm", **TRAINED)
    assert plain == pytest.approx((single.time, single.energy), rel=1e-6)
    gpu = load_gpu("h100-sxm")
    gpu = dataclasses.replace(gpu, link_bandwidth=2 * gpu.link_bandwidth)
    sizes = {k: x for k, x in TRAINED.items() if k != "phase"}
    step = parallel.training_step("gpt2", "h100-sxm", **sizes)
    again = estimate(step, gpu)
    assert linked == pytest.approx((float(again.time), float(again.energy)), rel=1e-6)
    step = eqx.tree_at(lambda x: x.steps.network, step, 2 * step.steps.network)
    again = estimate(step, gpu)
    assert both == pytest.approx((float(again.time), float(again.energy)), rel=1e-6)
    assert plain[0] > linked[0] > both[0]


@pytest.mark.slow
def test_requests_on_several_gpus_take_the_energy_of_all():
    request: dict[str, Any] = dict(phase="decode", plan="tp=2,pp=2", batch=8)
    ((time, energy),) = scores(problem(request, "link_bandwidth"), {})
    single = estimate("gpt2", gpu="h100-sxm", **request)
    assert (time, energy) == pytest.approx((single.time, single.energy), rel=1e-6)


@pytest.mark.long
@pytest.mark.slow
def test_a_limit_of_power_holds_for_all_gpus():
    """The fastest step under the watts of the cluster: faster links make room for a
    lower clock, and time is the least where both bind."""
    base = estimate("gpt2", gpu="h100-sxm", **TRAINED)
    result = codesign.search(
        "gpt2",
        "h100-sxm",
        vary={"network": (25e9, 100e9), "sm_clock": None},
        goals="time",
        limits={"power": 0.8 * base.power},
        effort=codesign.Effort(starts=2, rounds=3),
        **TRAINED,
    )
    assert result.best.power <= 0.8 * base.power * (1 + 1e-6)
    assert result.best.fields["network"] == pytest.approx(100e9, rel=1e-3)
    named = {entry["name"] for entry in result.summary["active_constraints"]}
    assert "network (high)" in named
