"""Sums, limits and caps, against closed forms and at their tolerance of 1e-9."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Problem, Switching
from diffenergy.physics import gpu_time, stage_slope, stage_time, tangent_offset
from diffenergy.workload import Loop

from .builders import Spent, Total, chosen, default_total, listed, total, within_caps

INSIDE, OUTSIDE = 1 + 0.95e-9, 1 + 1.05e-9


def built(**changes) -> Problem:
    """Kernels a and b in the first stage (3 and 2 launches), c in the second (5)."""
    time = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
    energy = np.array([[100.0, 90.0], [200.0, 150.0], [300.0, 400.0]])
    none = np.zeros(2)
    whole = Problem(
        kernels=("a", "b", "c"), stages=("first", "second"), stage=np.array([0, 0, 1]),
        count=np.array([3.0, 2.0, 5.0]),
        settings=np.array([[np.nan] * 2, [1e9, np.nan]]),
        time=time, energy=energy, default_time=np.array([1.5, 3.5, 7.5]),
        default_energy=np.array([110.0, 210.0, 310.0]), loops=(Loop((0,), 3),),
        power_cap=np.full(2, np.inf), host_time=none, wait_power=none,
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)


def test_sums_of_a_choice():
    """a and c at the second setting: (6 + 6, 55) s, (270 + 400, 2000) J."""
    spent = chosen(built(), np.array([[1, 0, 1]]))
    assert spent.time.tolist() == [[12, 55]]
    assert spent.energy.tolist() == [[670, 2000]]
    rows = (np.array([2, 0, 0]), np.array([1, 0, 1]), np.array([4.0, 1.0, 2.0]))
    spent = listed(built(), *rows)
    assert spent.time.tolist() == [5, 44] and spent.energy.tolist() == [280, 1600]
    assert np.isclose(
        default_total(built()), [3 * 1.5 + 7 + 37.5, 330 + 420 + 1550]
    ).all()

    # 20-norm of GPU and host; the GPU draws the waiting power meanwhile
    problem = built(host_time=np.array([12.0, 0.0]), wait_power=np.array([40.0, 60.0]))
    spent = chosen(problem, np.array([1, 0, 1]))
    first = 12 * 2**0.05
    result = total(problem, spent)
    assert result.time == pytest.approx(first + 55, rel=1e-12)
    assert result.energy == pytest.approx(670 + 40 * (first - 12) + 2000, rel=1e-12)


@pytest.mark.parametrize(("gpu", "host"), [(1.0, 0.0), (1.0, 1.0), (0.0, 2.0)])
def test_stage_time(gpu: float, host: float):
    time = float(stage_time(gpu, host))
    assert time == pytest.approx((gpu**20 + host**20) ** 0.05, rel=1e-12)
    step = 1e-6
    up, down = (float(stage_time(gpu + x, host)) for x in (step, 0.0))
    assert float(stage_slope(gpu, host)) == pytest.approx((up - down) / step, abs=1e-4)
    inverse = gpu_time(time * (1 + 1e-12), host)
    if gpu >= 0.9:
        assert float(inverse) == pytest.approx(gpu, rel=1e-6)
    assert float(gpu_time(0.99 * host, host)) == (-1 if host else 0)


@pytest.mark.parametrize("slope", [0.0, 0.3, 0.9, 1.0])
def test_a_tangent_lies_below_every_stage_time(slope: float):
    gpu = np.linspace(0, 3, 30001)
    least = (stage_time(gpu, 1.0) - slope * gpu).min()
    assert float(tangent_offset(slope, 1.0)) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_stage_times_are_free_of_scale(scale: float):
    """Stages of microseconds as those of seconds."""
    gpu, host = np.array([1.0, 0.97, 1.05, 1.0]), np.array([0.9, 1.0, 1.0, 0.0])
    time = stage_time(gpu, host)
    assert stage_time(scale * gpu, scale * host) == pytest.approx(scale * time)
    slope = (gpu / time) ** 19
    assert slope.max() - slope.min() > 0.3
    assert stage_slope(scale * gpu, scale * host) == pytest.approx(slope, rel=1e-9)
    assert gpu_time(scale * time, scale * host) == pytest.approx(scale * gpu)
    offset = time - slope * gpu
    assert tangent_offset(slope, scale * host) == pytest.approx(
        scale * offset, abs=1e-12
    )


def test_caps_at_their_tolerance():
    """One stage at 100 W of the other free; both on a line of plans."""
    problem = built(power_cap=np.array([100.0, np.inf]))
    energy = 100 * 12 * np.array([[INSIDE, 99.0], [OUTSIDE, 99.0], [0.5, 1e9]])
    spent = Spent(np.full((3, 2), 12.0), energy)
    assert within_caps(problem, spent).tolist() == [True, False, True]
    both = built(power_cap=np.array([100.0, 100.0]))
    assert within_caps(both, spent).tolist() == [False, False, False]


@pytest.mark.parametrize("slowdown", [-5.0, 0.0, 7.0])
def test_limits_at_their_tolerance(slowdown: float):
    default = Total(np.asarray(10.0), np.asarray(1000.0))
    most = 10 * (1 + slowdown / 100)
    objective = Objective(max_slowdown=slowdown)
    assert objective.most_time(default) == pytest.approx(most)
    for factor, remaining in ((INSIDE, True), (OUTSIDE, False)):
        plan = Total(np.asarray(most * factor), np.asarray(1e9))
        assert bool(objective.keeps(plan, default)) == remaining
        capped = Objective("time", slowdown, 80.0)
        plan = Total(np.asarray(most), np.asarray(most * 80 * factor))
        assert bool(capped.keeps(plan, default)) == remaining
        late = Total(2 * plan.time, plan.energy)
        assert not capped.keeps(late, default)


def test_what_switching_costs():
    assert Switching() == ("stall", 0.0, 0.0, "")
    for latency, energy in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (np.inf, 0.0)):
        result = Switching("stall", latency, energy)
        assert result.free == (latency == energy == 0)
        assert result.forbidden == np.isinf(latency)
    assert Switching("stall", 0.0, np.inf).forbidden
    own = Switching.published("h200-sxm", "lookahead", 2.0)
    assert own[:3] == ("lookahead", 0.006, 2.0) and own.source.startswith("h200-sxm (")
    other = Switching.published("a gpu of nobody")
    assert other.energy == 0
    assert other.kind == "stall" and other.source.startswith("GPUs in general (")
