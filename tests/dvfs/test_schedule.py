"""Schedules of modelled workloads: solvers beside each other, exact mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import OperatingPoint, load_model
from diffenergy.corrections import read_corrections
from diffenergy.dvfs._problem.costs import row_costs
from diffenergy.dvfs._problem.modelled import Modelled, clock_pairs, modelled
from diffenergy.dvfs._problem.plan import Objective
from diffenergy.dvfs._problem.problem import default_total
from diffenergy.dvfs._solving.schedule import Descent, schedule, stage_power
from diffenergy.dvfs._solving.solve import Rules
from diffenergy.hardware import read_gpu

CASES = [("gpt2", "decode", "a100-pcie-40gb"), ("gpt2", "prefill", "rtx-3080-ti")]
SLOW = [
    ("llama-3.1-8b", "generate", "h200-sxm"),
    ("llama-3.1-8b", "decode", "a100-sxm-80gb"),
    ("qwen3-30b-a3b", "decode", "h100-sxm"),
    ("gpt3-xl", "train", "a100-sxm-80gb"),
    ("gpt3-xl", "train", "rtx-3080-ti"),
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


def descent_excess(found: Modelled, slowdown: float) -> float:
    """Energy of the descent's schedule beyond the exact one, %."""
    objective = Objective(max_slowdown=slowdown)
    problem, exact = schedule(found, objective)
    _, rounded = schedule(found, objective, descent=Descent())
    assert rounded.time <= (1 + slowdown / 100) * default_total(problem).time * (
        1 + 1e-9
    )
    assert rounded.solver == "gradient descent, rounded"
    assert rounded.energy >= rounded.bound_energy * (1 - 1e-9)
    return 100 * (rounded.energy / exact.energy - 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_gradient_descent_comes_within_half_a_percent(cases: list[Modelled], case: int):
    for slowdown in (1.0, 5.0):
        assert -1e-3 <= descent_excess(cases[case], slowdown) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=lambda case: "-".join(case))
def test_gradient_descent_on_larger_cases(case: tuple[str, str, str]):
    found = of(*case)
    for slowdown in (0.0, 2.0, 10.0):
        if schedule(found, Objective(max_slowdown=slowdown))[1].solver != "default":
            assert -1e-3 <= descent_excess(found, slowdown) <= 0.5


@pytest.mark.slow
def test_the_descent_is_reproducible(cases: list[Modelled]):
    objective = Objective(max_slowdown=5.0)
    (_, one), (_, other) = (
        schedule(cases[0], objective, descent=Descent(starts=2, seed=3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.setting, other.setting)


def test_a_schedule_is_what_the_model_says_of_its_mixture(cases: list[Modelled]):
    """Kernels at clocks of their own in one call, at the temperature of the whole."""
    found = cases[0]
    problem, plan = schedule(found, Objective(max_slowdown=3.0))
    assert len(set(plan.setting.tolist())) > 2
    values = found.card.values
    clocks = problem.settings[plan.setting, 0]
    clocks = np.where(np.isnan(clocks), values["sm_clock_max"], clocks)
    ones = jnp.ones(len(clocks))
    point = OperatingPoint(clocks, values["mem_clock"] * ones, ones)
    of_rows = jax.jit(row_costs)
    costs = of_rows(found.workload, found.card.spec, point, found.corrections)
    growth = found.growth(stage_power(problem, plan))[problem.stage]
    energy = costs.work + (costs.idle + costs.leakage * growth) * costs.time
    np.testing.assert_allclose(float(jnp.sum(costs.time)), plan.time, rtol=1e-6)
    np.testing.assert_allclose(float(jnp.sum(energy)), plan.energy, rtol=1e-3)


def test_finer_schedules_take_less(cases: list[Modelled]):
    for found in cases:
        energies = [
            schedule(
                found, Objective(max_slowdown=5.0), Rules(granularity=granularity)
            )[1].energy
            for granularity in ("kernel", "phase", "iteration")
        ]
        assert energies[0] <= energies[1] * 1.001 and energies[1] <= energies[2] * 1.001


def test_a_capped_stage_keeps_its_power():
    """Where the limiter acts by default, kernels of their own clocks are faster."""
    found = of(*CASES[0], step=6, power=120.0)
    problem, plan = schedule(found, Objective("time"))
    cap = 120.0 * found.card.values["cap_fraction"]
    assert stage_power(problem, plan)[0] <= cap * (1 + 1e-3)
    assert plan.time < 0.995 * default_total(problem).time
