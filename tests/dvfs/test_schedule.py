"""Schedules of modelled workloads: solvers beside each other, exact mixtures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import OperatingPoint, load_model
from diffenergy.corrections import read_corrections
from diffenergy.dvfs import Objective, Plan, Problem, Rules, _descent, row_costs, solve
from diffenergy.dvfs._costs import Costs
from diffenergy.dvfs._meter import BOARD
from diffenergy.dvfs._schedule import Descent, schedule, stage_power
from diffenergy.hardware import read_gpu
from diffenergy.physics import stage_time

from .builders import (
    Modelled,
    all_choices,
    clock_pairs,
    default_total,
    modelled,
    random_problem,
    total,
)

CASES = [("gpt2", "decode", "a100-pcie-40gb"), ("gpt2", "generate", "rtx-3080-ti")]


def of(name: str, phase: str, gpu: str, power: float | None = None) -> Modelled:
    """Every sixth clock of a GPU, under a power limit (W)."""
    card = read_gpu(gpu)
    low, top, by = (card.values[f"sm_clock_{x}"] for x in ("min", "max", "step"))
    clocks = np.arange(top, low, -by * 6)
    listings = load_model(name).listings(batch=8, input_len=256, phase=phase)
    labels = [str(i) for x in listings for i, _ in enumerate(x.kernels)]
    served = read_corrections(None).serve(card)
    pairs = clock_pairs(card, list(map(float, clocks)))
    limit = float(card.values["tdp"]) if power is None else power
    return modelled(listings, labels, card, served, limit, pairs)


@pytest.fixture(scope="module")
def cases() -> list[Modelled]:
    return [of(*case) for case in CASES]


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


class Heated(Modelled):
    """A table whose energies grow by 2e-4 for each W above 150 W of their stage; with
    one clock a stage they are `coarse` times those of the table."""

    def __init__(self, table: Problem, coarse: float):
        self.__dict__.update(table=table, coarse=coarse)

    @property
    def default_growth(self) -> np.ndarray:
        return np.zeros(2)

    def growth(self, power: np.ndarray) -> np.ndarray:
        return 2e-4 * (power - 150)

    def problem(self, growth: np.ndarray) -> Problem:
        table: Problem = self.__dict__["table"]
        warm = table.energy * (1 + growth[table.stage, None])
        return dataclasses.replace(table, energy=warm)

    def stage_problem(self) -> Problem:
        table: Problem = self.__dict__["table"]
        energy = self.__dict__["coarse"] * table.energy
        return dataclasses.replace(table, energy=energy)


@pytest.mark.parametrize("seed", range(4))
def test_a_schedule_at_its_own_temperature_is_that_of_enumeration(seed: int):
    """P = P0 (1 + 2e-4 (P - 150)) in each stage of every choice."""
    table, objective = random_problem(seed), Objective(max_slowdown=6.0)
    table = dataclasses.replace(table, default_energy=1.2 * table.default_energy)
    choice = all_choices(*table.time.shape)
    choice = choice[table.usable[np.arange(4), choice].all(axis=1)]
    time, energy = (
        table.count * x[np.arange(4), choice] @ np.eye(2)[table.stage]
        for x in (table.time, table.energy)
    )
    cold = energy / time
    spent = (time * cold * 0.97 / (1 - 2e-4 * cold)).sum(axis=1)
    within = time.sum(axis=1) <= 1.06 * default_total(table).time
    best = spent[within].min()
    _, plan = schedule(Heated(table, 2.0), objective)
    assert best * (1 - 1e-6) <= plan.energy <= best * 1.001
    (mine,) = np.flatnonzero((choice == plan.setting[np.argsort(plan.kernel)]).all(1))
    assert plan.energy == pytest.approx(spent[mine], rel=1e-6)
    stages = Heated(table, 0.5)
    _, coarse = schedule(stages, objective)
    assert coarse.energy == solve(stages.stage_problem(), objective).energy


def test_gradient_descent_by_hand(monkeypatch: pytest.MonkeyPatch):
    """Energies f^2 and 8 f^2 are least where the times 1/f add up to 3.75 s at f = 0.8
    and 0.4 of the highest clock."""

    def row_costs(workload, gpu, clocks: OperatingPoint, corrections) -> Costs:
        f = clocks.sm_clock / 1.41e9
        return Costs(1 / f, jnp.array([1.0, 8.0]) * f**2, 0 * f, 0 * f)

    monkeypatch.setattr(_descent, "row_costs", row_costs)
    table = random_problem(0, num_kernels=2, num_settings=2)
    table = dataclasses.replace(
        table, default_time=1 / table.count, default_energy=[1.0, 8.0] / table.count
    )
    task = Heated(table, 1.0)
    task.__dict__.update(
        card=read_gpu("a100-pcie-40gb"), workload=(), corrections=(),
        labels=table.kernels, meter=BOARD,
    )  # fmt: skip
    objective = Objective(max_slowdown=87.5)
    clocks = _descent.descend(task, np.zeros(2), objective, starts=2)
    expected = [pytest.approx([0.8, 0.4], rel=0.02)] * 2
    assert (clocks[:, :, 0] / 1.41e9).tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [0, *(pytest.param(x, marks=pytest.mark.long) for x in range(1, len(CASES)))],
)
def test_gradient_descent_comes_within_half_a_percent(cases: list[Modelled], case: int):
    for slowdown in (1.0, 5.0):
        objective = Objective(max_slowdown=slowdown)
        problem, exact = schedule(cases[case], objective)
        _, rounded = schedule(cases[case], objective, descent=Descent())
        most = (1 + slowdown / 100) * default_total(problem).time
        assert rounded.time <= most * (1 + 1e-9)
        assert rounded.solver == "gradient descent, rounded"
        assert rounded.energy >= rounded.bound_energy * (1 - 1e-9)
        assert -1e-3 <= 100 * (rounded.energy / exact.energy - 1) <= 0.5
    _, again = schedule(cases[case], objective, descent=Descent())
    np.testing.assert_array_equal(rounded.setting, again.setting)


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
        rules = (Rules(granularity=x) for x in ("kernel", "phase", "iteration"))
        objective = Objective(max_slowdown=5.0)
        energies = [schedule(result, objective, x)[1].energy for x in rules]
        assert energies[0] <= energies[1] * 1.001 and energies[1] <= energies[2] * 1.001


@pytest.mark.slow
def test_a_capped_stage_keeps_its_power():
    """Where the limiter acts by default, kernels of their own clocks are faster."""
    result = of(*CASES[0], power=120.0)
    problem, plan = schedule(result, Objective("time"))
    cap = 120.0 * result.card.values["cap_fraction"]
    assert stage_power(problem, plan)[0] <= cap * (1 + 1e-3)
    assert plan.time < 0.995 * default_total(problem).time
