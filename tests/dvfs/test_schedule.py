"""Schedules of modelled workloads: solvers beside each other, exact mixtures."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import OperatingPoint, load_model
from diffenergy.compiling import compiler_options
from diffenergy.corrections import read_corrections
from diffenergy.dvfs import Objective, Plan, Rules, row_costs
from diffenergy.dvfs import _descent as descent
from diffenergy.dvfs._schedule import Descent, schedule, stage_power
from diffenergy.hardware import read_gpu
from diffenergy.physics import stage_time

from .builders import (
    Modelled,
    clock_pairs,
    default_total,
    modelled,
    random_problem,
    total,
)

CASES = [("gpt2", "decode", "a100-pcie-40gb"), ("gpt2", "prefill", "rtx-3080-ti")]
SLOW = [
    ("llama-3.1-8b", "generate", "h200-sxm"),
    ("llama-3.1-8b", "decode", "a100-sxm-80gb"),
    ("qwen3-30b-a3b", "decode", "h100-sxm"),
    ("gpt3-xl", "train", "a100-sxm-80gb"),
]


def of(
    name: str, phase: str, gpu: str, step: int = 1, power: float | None = None
) -> Modelled:
    """Every `step`-th clock of a GPU, under a power limit (W)."""
    card = read_gpu(gpu)
    low, top, by = (card.values[f"sm_clock_{x}"] for x in ("min", "max", "step"))
    clocks = np.arange(top, low, -by * step)
    listings = load_model(name).listings(batch=8, input_len=256, phase=phase)
    labels = [str(i) for x in listings for i, _ in enumerate(x.kernels)]
    served = read_corrections(None).serve(card)
    pairs = clock_pairs(card, list(map(float, clocks)))
    limit = float(card.values["tdp"]) if power is None else power
    return modelled(listings, labels, card, served, limit, pairs)


@pytest.fixture(scope="module")
def cases() -> list[Modelled]:
    return [of(*case, step=6) for case in CASES]


def descent_excess(result: Modelled, slowdown: float) -> float:
    """Energy of the descent's schedule beyond the exact one, %."""
    objective = Objective(max_slowdown=slowdown)
    problem, exact = schedule(result, objective)
    _, rounded = schedule(result, objective, descent=Descent())
    assert rounded.time <= (1 + slowdown / 100) * default_total(problem).time * (
        1 + 1e-9
    )
    assert rounded.solver == "gradient descent, rounded"
    assert rounded.energy >= rounded.bound_energy * (1 - 1e-9)
    return 100 * (rounded.energy / exact.energy - 1)


def test_a_descent_keeps_limits(monkeypatch):
    """Two kernels towards 4 and 7, one clock of which may sum to 6 only: 3 each; from
    any start, where the limit binds or not."""

    def score(clocks: jax.Array, task: Any) -> tuple[jax.Array, jax.Array]:
        miss = jnp.sum((clocks - jnp.array([4.0, 7.0])) ** 2) / 2
        return miss, jnp.stack([jnp.sum(clocks[:, 0]) * task.time - 1, -1.0])

    monkeypatch.setattr(descent, "_score", score)
    nothing: Any = [jnp.zeros(())] * len(descent._Task._fields)
    blank = descent._Task(*nothing)
    starts = 1.5 * np.random.default_rng(0).normal(size=(3, 2, 2))
    run = jax.jit(
        jax.vmap(descent._descent, in_axes=(0, None)),
        compiler_options=compiler_options(once=True),
    )
    for most, clock in ((6.0, 3.0), (20.0, 4.0)):
        task = blank._replace(
            low=jnp.array([1.0, 0.0]), high=jnp.array([9.0, 8.0]),
            time=jnp.asarray(1 / most),
        )  # fmt: skip
        result = np.asarray(run(jnp.asarray(starts), task))
        assert result == pytest.approx(np.tile([clock, 7.0], (3, 2, 1)), abs=0.02)


def test_power_of_stages_by_hand():
    """Two kernels in the first stage, one in the second, which waits for the host."""
    problem = dataclasses.replace(
        random_problem(0, num_kernels=3, num_settings=2),
        stage=np.array([0, 0, 1]), count=np.array([2.0, 1.0, 3.0]),
        time=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        energy=np.array([[100.0, 150.0], [200.0, 300.0], [400.0, 500.0]]),
        default_time=np.array([1.0, 2.0, 4.0]),
        default_energy=np.array([90.0, 180.0, 380.0]),
        host_time=np.array([0.0, 30.0]), wait_power=np.array([50.0, 60.0]),
        power_cap=np.full(2, np.inf),
    )  # fmt: skip
    rows = np.array([0, 1, 2]), np.array([1, 0, 1]), problem.count
    plan = Plan(*rows, 0.0, 0.0, 0.0, 0.0, 0.0, "exact", 0.0)
    late = float(stage_time(18.0, 30.0))
    result = stage_power(problem, plan)
    assert result == pytest.approx([500 / 7, (1500 + 60 * (late - 18)) / late])
    alone = stage_power(problem, dataclasses.replace(plan, solver="default"))
    late = float(stage_time(12.0, 30.0))
    assert alone == pytest.approx([360 / 4, (1140 + 60 * (late - 12)) / late])


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_gradient_descent_comes_within_half_a_percent(cases: list[Modelled], case: int):
    for slowdown in (1.0, 5.0):
        assert -1e-3 <= descent_excess(cases[case], slowdown) <= 0.5


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=lambda case: "-".join(case))
def test_gradient_descent_on_larger_cases(case: tuple[str, str, str]):
    result = of(*case)
    assert -1e-3 <= descent_excess(result, 2.0) <= 0.6


@pytest.mark.slow
def test_the_descent_is_reproducible(cases: list[Modelled]):
    objective = Objective(max_slowdown=5.0)
    (_, one), (_, other) = (
        schedule(cases[0], objective, descent=Descent(starts=2, seed=3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.setting, other.setting)


@pytest.mark.slow
def test_a_schedule_is_what_the_model_says_of_its_mixture(cases: list[Modelled]):
    """Kernels at clocks of their own in one call, at the temperature of the whole."""
    result = cases[0]
    problem, plan = schedule(result, Objective(max_slowdown=3.0))
    assert len(set(plan.setting.tolist())) > 2
    values = result.card.values
    clocks = problem.settings[plan.setting, 0]
    clocks = np.where(np.isnan(clocks), values["sm_clock_max"], clocks)
    ones = jnp.ones(len(clocks))
    point = OperatingPoint(clocks, values["mem_clock"] * ones, ones)
    of_rows = jax.jit(row_costs)
    costs = of_rows(result.workload, result.card.spec, point, result.corrections)
    growth = result.growth(stage_power(problem, plan))[problem.stage]
    energy = costs.work + (costs.idle + costs.leakage * growth) * costs.time
    np.testing.assert_allclose(float(jnp.sum(costs.time)), plan.time, rtol=1e-6)
    np.testing.assert_allclose(float(jnp.sum(energy)), plan.energy, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("slowdown", [0.0, 3.0])
def test_energies_are_of_a_schedules_own_temperature(
    cases: list[Modelled], slowdown: float
):
    """Its power heats the GPU to where its energies were taken."""
    for result in cases:
        problem, plan = schedule(result, Objective(max_slowdown=slowdown))
        if problem.kernels != result.labels or plan.solver == "default":
            continue  # of phases, whose temperature the model settles
        power = stage_power(problem, plan)
        again = result.problem(result.growth(power))
        np.testing.assert_allclose(stage_power(again, plan), power, rtol=2e-6)
        assert plan.energy == pytest.approx(float(total(again, plan.spent(again))[1]))


@pytest.mark.slow
def test_finer_schedules_take_less(cases: list[Modelled]):
    for result in cases:
        energies = [
            schedule(
                result, Objective(max_slowdown=5.0), Rules(granularity=granularity)
            )[1].energy
            for granularity in ("kernel", "phase", "iteration")
        ]
        assert energies[0] <= energies[1] * 1.001 and energies[1] <= energies[2] * 1.001


@pytest.mark.slow
def test_a_capped_stage_keeps_its_power():
    """Where the limiter acts by default, kernels of their own clocks are faster."""
    result = of(*CASES[0], step=6, power=120.0)
    problem, plan = schedule(result, Objective("time"))
    cap = 120.0 * result.card.values["cap_fraction"]
    assert stage_power(problem, plan)[0] <= cap * (1 + 1e-3)
    assert plan.time < 0.995 * default_total(problem).time
