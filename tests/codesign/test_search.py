"""Searches find what scoring every design finds, and say what holds it back."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import estimate
from diffenergy.codesign import Effort, Range
from diffenergy.codesign._problem.exact import Judge, Judged
from diffenergy.codesign._problem.mixing import build
from diffenergy.codesign._problem.problem import Problem, Share
from diffenergy.codesign._search.searching import search, with_shares
from diffenergy.codesign._space import task
from diffenergy.codesign._space.task import hardware
from diffenergy.hardware import FIELDS, read_gpu
from tests.codesign.builders import everything, part, problem

SPACE = (
    Range("num_sms", 90, 200),
    Range("dram_bandwidth", 1.3e12, 6e12),
    Range("sm_clock", 0.9e9, 1.98e9),
)
EFFORT = Effort(starts=6, rounds=10)


def row_of(result, designs):
    """Values of the best design, in the order of the axes."""
    return np.array([result.best.fields[name] for name in designs.task.names])


@pytest.fixture(scope="module")
def small() -> tuple[Problem, Judged]:
    """A space of 600 designs, and their scores."""
    ranges = Range("dram_bandwidth", 2e12, 5e12), Range("sm_clock", 0.9e9, 1.2e9)
    designs = problem(["streams"], (SPACE[0], *ranges))
    return designs, everything(designs)


def test_the_best_of_a_small_space(small: tuple[Problem, Judged]):
    """Under a limit that binds and without; what holds the design back is told, no
    single step is better, and the same seed finds it again."""
    designs, judged = small
    few = Effort(starts=2, rounds=3)
    middle = float(np.median(judged.metrics[:, 3]))
    for goal, limits in (("energy", {}), ("edp", {"area": middle})):
        wanted = dataclasses.replace(designs, goals=(goal,), limits=limits)
        (target,) = wanted.targets
        result = search(wanted, few)
        best = judged.objective(target)[judged.order(target)[0]]
        assert result.best.violation == 0
        assert result.best.objective == pytest.approx(best, rel=1e-9)
        assert ("max_area" in {x.name for x in result.active}) == bool(limits)
        assert all(x.multiplier > 0 for x in result.active)  # the clock at its bound
    assert search(wanted, few).best == result.best
    none = dataclasses.replace(designs, limits={"area": 100.0})
    least = judged.metrics[:, 3].min()
    assert search(none, few).best.violation == pytest.approx(least / 100 - 1)


def test_the_front_of_a_small_space(small: tuple[Problem, Judged]):
    """Its ends are the best by each goal; no design is 0.5 % better in both. Limits as
    shares are those of the base."""
    designs, judged = small
    both = dataclasses.replace(designs, goals=("energy", "time"))
    front = search(both, Effort(starts=2, rounds=3)).pareto
    points = judged.metrics[:, [1, 0]]
    mine = np.array([[x.energy, x.time] for x in front])
    assert len(mine) > 5 and (np.diff(mine, axis=0) * [1, -1] > 0).all()
    assert [mine[0, 0], mine[-1, 1]] == pytest.approx(points.min(axis=0))
    better = (points < 0.995 * mine[:, None]).all(axis=2)
    assert not better.any()
    limited = with_shares(designs, {"area": Share(0.9)})
    (area,) = Judge(designs.task)(designs.base[None]).metrics[:, 3]
    assert limited.limits == {"area": pytest.approx(0.9 * area)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["products", "attention", "cuda_cores"])
def test_equals_brute_force(name: str):
    """4,000 designs each; several goals and limits on one compiled task."""
    designs = problem([name], SPACE)
    judged = everything(designs)
    assert len(judged.values) > 2000
    middle = float(np.median(judged.metrics[:, 3]))
    slow = 1.1 * judged.metrics[:, 0].min()
    for goal, limits in (
        ("energy", {}),
        ("edp", {"area": middle}),
        ("energy", {"time": slow, "area": 1.2 * middle}),
        ("time", {"power": 400.0}),
    ):
        single = dataclasses.replace(designs, goals=(goal,), limits=limits)
        (target,) = single.targets
        result = search(single, EFFORT)
        best = judged.objective(target)[judged.order(target)[0]]
        assert result.best.violation == 0
        assert result.best.objective == pytest.approx(best, rel=1e-9)
        assert result.evaluations < 4000


@pytest.mark.long
@pytest.mark.slow
def test_mix_equals_brute_force_and_is_the_weighted_sum():
    parts = [part("products", weight=2.0), part("streams", weight=30.0)]
    designs = build(parts, read_gpu("h100-sxm"), SPACE, goals=("edp",))
    judged = everything(designs)
    result = search(designs, EFFORT)
    (target,) = designs.targets
    assert result.best.objective == pytest.approx(judged.objective(target).min())
    alone = [problem([name], SPACE) for name in ("products", "streams")]
    values = row_of(result, designs)[None]
    both = [Judge(one.task)(values).metrics[0, :2] for one in alone]
    time, energy = 2 * both[0] + 30 * both[1]
    assert (result.best.time, result.best.energy) == pytest.approx((time, energy))


@pytest.mark.slow
def test_multiplier_is_what_a_looser_limit_gains():
    """Continuous axes: the multiplier of the area is the slope of the best objective,
    by two more searches."""
    space = (Range("l2_capacity"), Range("tensor_flop_per_cycle_bf16"), Range("tdp"))
    best = {}
    for area in (760.0, 770.0, 780.0):
        designs = problem(["products"], space, goals=("edp",), limits={"area": area})
        best[area] = search(designs, Effort(starts=6, rounds=20))
    active = {x.name: x.multiplier for x in best[770.0].active}
    slope = (best[760.0].best.objective - best[780.0].best.objective) / 20
    assert active["max_area"] == pytest.approx(slope, rel=0.1)


@pytest.mark.slow
def test_elasticity_is_the_slope_of_the_estimate():
    """Of a number that no rounding touches: by estimates at 1 % more and less."""
    designs = problem(["streams"], SPACE)
    result = search(designs, EFFORT)
    elasticity = dict(result.sensitivities)["idle_constant"]
    values = jnp.asarray(row_of(result, designs))
    gpu, point, _ = hardware(designs.task, values, jnp.zeros(len(FIELDS)))
    workload, energies = designs.task.members[0].workload, []
    for factor in (0.99, 1.01):
        changed = dataclasses.replace(gpu, idle_constant=gpu.idle_constant * factor)
        energies.append(float(estimate(workload, changed, point).energy))
    slope = math.log(energies[1] / energies[0]) / math.log(1.01 / 0.99)
    assert elasticity == pytest.approx(slope, rel=0.02)
    assert dict(result.sensitivities)["tensor_flop_per_cycle_fp4"] is None


@pytest.mark.slow
def test_front_of_two_goals_is_near_that_of_all_designs():
    """Ends exact; no design beats a point by half a per cent in both."""
    designs = problem(["streams"], SPACE, goals=("energy", "time"))
    result = search(designs, EFFORT)
    judged = everything(designs)
    points = judged.metrics[:, [1, 0]]
    for score in result.pareto:
        mine = np.array([score.energy, score.time])
        assert not (points < 0.995 * mine).all(1).any()
    assert len(result.pareto) > 5
    ends = [result.pareto[0].energy, result.pareto[-1].time]
    assert ends == pytest.approx(points.min(axis=0))


@pytest.mark.long
@pytest.mark.slow
def test_own_objective_and_where_it_is_nan():
    def hot(estimate):
        return estimate.energy * estimate.time**0.5

    designs = problem(["streams"], SPACE, goals=hot)
    result = search(designs, EFFORT)
    judged = everything(designs)
    assert result.best.objective == pytest.approx(judged.custom.min())

    def broken(estimate):
        return (1e-3 - estimate.time) ** 0.5

    with pytest.raises(ValueError, match="`broken` is nan at num_sms"):
        search(problem(["products"], SPACE, goals=broken), EFFORT)


def test_metrics_of_a_mix_by_hand(monkeypatch: pytest.MonkeyPatch):
    """Of 2 s and 300 J and of 5 s and 900 J: sums over what runs, weighted; memory of
    the one that needs most."""
    first = part("streams", weight=3.0, memory=40e9, tokens=8.0)
    card = read_gpu("h100-sxm")
    mix = build([first, part("products", weight=2.0, memory=8e9)], card, SPACE)
    phases = iter([(2.0, 300.0), (5.0, 900.0)])

    def run(*_: Any) -> Any:
        time, energy = (jnp.array([x]) for x in next(phases))
        return task._Phases(time, energy, jnp.ones(()), jnp.array(True))

    monkeypatch.setattr(task, "_run", run)
    values, nudge = jnp.asarray(mix.base), jnp.zeros(len(FIELDS))
    metrics = task.measured(mix.task, values, nudge, True).metrics
    result: dict[str, float] = dict(zip(task.METRICS, metrics.tolist(), strict=True))
    expected = {
        "time": 16.0, "energy": 2700.0, "power": 2700 / 16, "energy_per_token": 112.5,
        "memory": 40e9 / card.values["dram_capacity"], "board_energy": 2700.0,
    }  # fmt: skip
    assert {name: result[name] for name in expected} == pytest.approx(expected)


def test_the_best_design_lies_within_the_bounds():
    """Also where the base is better: with half the bandwidth streams take longer."""
    ranges = Range("num_sms", 150, 200), Range("dram_bandwidth", 1.3e12, 2.1e12)
    designs = problem(["streams"], (*ranges, SPACE[2]), goals=("time",))
    result = search(designs, Effort(starts=2, rounds=3))
    assert 150 <= result.best.fields["num_sms"] <= 200
    assert 1.3e12 <= result.best.fields["dram_bandwidth"] <= 2.1e12
    assert result.best.time > result.start.time
