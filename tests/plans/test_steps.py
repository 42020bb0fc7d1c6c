"""How a step follows from its parts: by hand, for parts whose times are given."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import plans
from diffenergy.compiling import compiler_options
from diffenergy.corrections import Corrections
from diffenergy.plans import STEP_PARTS, Steps
from diffenergy.plans._steps import HOP, stacked

GIVEN: dict[str, Any] = dict(
    plan_contention=0.3, plan_network=0.5, plan_tp_exposed=0.8, plan_tp_overlapped=0.4,
    plan_pp_exposed=0.6, plan_fixed=0.02, plan_straggle=0.01,
    plan_experts_contention=0.2,
)  # fmt: skip
PLAIN = Corrections(**GIVEN)


def steps(
    parts: dict[str, float], kinds: int = 1, **changed: Any
) -> tuple[jnp.ndarray, Steps]:
    """Alike kinds of virtual stages whose parts take the given s."""
    phase = np.full((kinds, len(STEP_PARTS)), -1)
    phase[:, [STEP_PARTS.index(x) for x in parts]] = np.arange(len(parts))
    zeros = np.zeros(phase.shape)
    arguments: dict[str, Any] = dict(
        phase=phase, far=zeros, hops=zeros, members=[[1.0]], count=[1.0], batches=4.0,
        virtual=1.0, abreast=8.0, network=np.inf, gathers=0.0, reduces=0.0,
        tp_overlap=0.0, dp_overlap=1.0, zero_bubble=0.0, ep_overlap=0.0, both_ways=0.0,
    )  # fmt: skip
    columns = {name: np.asarray(x) for name, x in (arguments | changed).items()}
    return padded(*parts.values()), Steps(**columns)


def padded(*values: float) -> jnp.ndarray:
    """Values of phases, as many as there may be: a program serves all tests."""
    return jnp.zeros(len(STEP_PARTS)).at[: len(values)].set(jnp.array(values))


compose_step, step_energy = (
    jax.jit(x, compiler_options=compiler_options(once=True))
    for x in (plans.compose_step, plans.step_energy)
)


def test_gradients_hide_behind_the_last_micro_batch():
    """Reduced in 0.3 s beside 0.5 s of backward: 0.3 x 0.3 s of contention; gathered in
    0.2 s beside 0.25 s of forward; 8 GPUs: 2 % on all of it."""
    parts = {"forward": 1.0, "backward": 2.0, "optimizer": 0.1}
    times, one = steps(parts, abreast=1.0)
    result = compose_step(times, one, PLAIN)
    assert float(result.time) == pytest.approx(3.1, rel=1e-14)
    assert float(result.bubble) == pytest.approx(0, abs=1e-14)
    times, one = steps(parts | {"gather": 0.2, "reduce": 0.3})
    result = compose_step(times, one, PLAIN)
    hidden = (0.5 + 0.09) ** 8 + 0.3**8
    ahead = (0.25 + 0.06) ** 8 + 0.2**8
    late = hidden ** (1 / 8) - 0.5 + ahead ** (1 / 8) - 0.25
    assert float(result.time) == pytest.approx((3.1 + late) * 1.02)
    assert float(result.exposed[2]) == pytest.approx(late)
    bare = dataclasses.replace(one, dp_overlap=jnp.array(0.0))
    assert float(compose_step(times, bare, PLAIN).time) == pytest.approx(3.6 * 1.02)


def test_dualpipe_reduces_the_gradients_of_both_stages():
    """Two stages of a GPU, each with half of the micro-batches."""
    parts = {"forward": 1.0, "backward": 2.0, "gather": 0.2, "reduce": 0.3}
    two: Any = dict(count=[2.0], members=[[0.5, 0.5]], dp_overlap=0.0, both_ways=1.0)
    times, one = steps(parts, **two, kinds=2)
    result = compose_step(times, one, PLAIN)
    assert float(result.late[0]) == pytest.approx(2 * (0.2 + 0.3))
    dynamic = padded(0.0, 0.0, 5.0, 7.0)
    drawn = step_energy(times, dynamic, 0 * dynamic, result, one)
    assert float(drawn.energy) == pytest.approx(8 * 2 * 2 * (5.0 + 7.0))


def test_fsdp_gathers_twice_a_micro_batch():
    """4 micro-batches: 4 x 0.1 s beside 1 s forward, 4 x (0.1 + 0.2) s beside 2 s."""
    parts = {"forward": 1.0, "backward": 2.0, "gather": 0.1, "reduce": 0.2}
    times, one = steps(parts, gathers=2.0, reduces=1.0)
    result = compose_step(times, one, PLAIN)
    forward = ((1 + 0.3 * 0.4) ** 8 + 0.4**8) ** (1 / 8)
    backward = ((2 + 0.3 * 1.2) ** 8 + 1.2**8) ** (1 / 8)
    assert float(result.time) == pytest.approx((forward + backward) * 1.02)
    assert float(result.moved[2]) == pytest.approx(1.6)
    bare = dataclasses.replace(one, dp_overlap=jnp.array(0.0))
    assert float(compose_step(times, bare, PLAIN).time) == pytest.approx(4.6 * 1.02)
    parts = {"forward": 1.0, "backward": 2.0, "forward_cp": 0.3, "backward_cp": 0.4}
    times, one = steps(parts, dp_overlap=0.0)  # `none` hides keys and values neither
    assert float(compose_step(times, one, PLAIN).time) == pytest.approx(3.7 * 1.02)


def test_tensor_parallel_exchanges():
    parts = {"forward": 1.0, "backward": 2.0, "forward_tp": 0.5, "backward_tp": 0.5}
    for overlap, share in ((0.0, 0.8), (1.0, 0.4)):
        times, one = steps(parts, tp_overlap=overlap)
        result = compose_step(times, one, PLAIN)
        assert float(result.time) == pytest.approx((3 + share) * 1.02)


def test_between_hosts():
    """1 GB over half of 50 GB/s is 40 ms, beside 30 ms within a host; two hops."""
    here = 1.0 * (np.array([STEP_PARTS]) == "forward_ep")
    parts = {"forward": 1.0, "backward": 2.0, "forward_ep": 0.03}
    times, one = steps(parts, far=1e9 * here, hops=2 * here, network=50e9)
    wanted = (0.03**8 + 0.04**8) ** (1 / 8) + 2 * HOP
    result = compose_step(times, one, PLAIN)
    assert float(result.time) == pytest.approx((3 + wanted) * 1.02)
    assert float(result.moved[3]) == pytest.approx(wanted)


MIXED = {"forward": 1.0, "backward": 2.0, "forward_ep": 0.4, "backward_ep": 0.6}
BESIDE = ((0.75 + 0.2 * 0.25) ** 8 + 0.25**8) ** (1 / 8)
"""s of a micro-batch (of 4) whose 0.25 s of exchange run beside 0.75 s of work."""


@pytest.mark.parametrize(
    ("changed", "micro", "pipeline"),
    [
        ({}, 1.0, 4.0),
        # one GPU's first forward and last backward pass have nothing beside them
        ({"ep_overlap": 1.0}, BESIDE, 4 * BESIDE + (1 - BESIDE)),
        ({"ep_overlap": 0.37}, 0.75 + 0.63 * 0.25, 4 * 0.9075 + 0.37 * 0.25),
        # four stages with two virtual ones each: (p - 1)/v of a micro-batch more
        ({"ep_overlap": 1.0, "count": [4.0], "virtual": 2.0}, BESIDE,
         4 * BESIDE + 3 / 2),
        # arXiv 2412.19437, table 2: m x + (p/2 - 1) (x + b - 3 w)
        ({"both_ways": 1.0, "count": [4.0]}, 1.0, 4 + (1 + 0.65 - 3 * 0.325)),
    ],
)  # fmt: skip
def test_experts_exchange_beside_another_micro_batch(changed, micro, pipeline):
    times, one = steps(MIXED, **changed)
    result = compose_step(times, one, PLAIN)
    work = result.micro.work.sum() + result.micro.exposed.sum()
    assert float(work) == pytest.approx(micro)
    assert float(result.pipeline) == pytest.approx(pipeline)
    assert float(result.moved[3]) == pytest.approx(1.0)  # hidden or not


def test_stages_and_sends():
    """Two stages of 3 s a step and 4 micro-batches: (4 + 1) x 0.75 s, and for each
    micro-batch on its way two sends of 10 ms, of which 60 % show; 16 GPUs: 3 %."""
    times, one = steps(
        {"forward": 1.0, "backward": 2.0, "send": 0.01}, count=[2.0], members=[[1.0]]
    )
    result = compose_step(times, one, PLAIN)
    assert float(result.pipeline) == pytest.approx(5 * (0.75 + 0.012), rel=2e-3)
    assert float(result.bubble) == pytest.approx(1 / 5, abs=0.03)
    assert float(result.time / result.pipeline) == pytest.approx(1.03)


def test_energy_is_that_of_kernels_and_of_waiting():
    """8 GPUs: each draws 1,000 + 1,500 J beyond 100 W, for as long as the step is."""
    times, one = steps({"forward": 1.0, "backward": 2.0})
    result = compose_step(times, one, PLAIN)
    dynamic, static = padded(1000.0, 1500.0), padded(100.0, 100.0)
    drawn = step_energy(times, dynamic, static, result, one)
    assert float(drawn.energy) == pytest.approx(8 * (2500 + 100 * 3.06))
    assert float(drawn.stage_power[0]) == pytest.approx(2500 / 3.06 + 100)


def test_steps_of_different_plans_in_one_record():
    """Kinds that one of them lacks change nothing."""
    times, one = steps({"forward": 1.0, "backward": 2.0})
    more: Any = dict(members=[[1.0, 0.0], [0.0, 1.0]], count=[1.0, 2.0])
    _, two = steps({"forward": 1.0, "backward": 2.0}, kinds=2, **more)
    both = compose_step(times, stacked([one, two]), PLAIN)
    each = [float(compose_step(times, x, PLAIN).time) for x in (one, two)]
    assert both.time.tolist() == pytest.approx(each)
