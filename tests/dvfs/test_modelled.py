"""Workloads through the model: its points by hand, tables of costs by `estimate`."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from diffenergy import OperatingPoint, estimate, load_model
from diffenergy.corrections import read_corrections
from diffenergy.dvfs import _costs as costs
from diffenergy.dvfs import _modelled
from diffenergy.dvfs._meter import BOARD
from diffenergy.dvfs._problem import Spent
from diffenergy.hardware import read_gpu
from diffenergy.workload import Loop

from .builders import Modelled, chosen, clock_pairs, default_total, modelled, total

GPU = read_gpu("a100-pcie-40gb")  # 150 to 250 W, 1410 and 1215 MHz
GEFORCE = read_gpu("rtx-3080-ti")  # from 100 W, 2100 and 9501 MHz
H200 = read_gpu("h200-sxm")  # from 200 W
NAN = np.nan
CLOCKS = [600e6, 960e6, 1200e6, 1410e6]


@pytest.fixture(scope="module")
def prefill() -> Modelled:
    """GPT-2 on the A100 at a few clocks."""
    listings = load_model("gpt2").listings(batch=8, input_len=512, phase="prefill")
    labels = [str(i) for x in listings for i, _ in enumerate(x.kernels)]
    served = read_corrections(None).serve(GPU)
    return modelled(listings, labels, GPU, served, 250.0, clock_pairs(GPU, CLOCKS))


def test_problems_of_costs_by_hand():
    """Two kernels, a stage each, at two clocks and by default; leakage of stages grows
    by what their estimates say: twice by default."""
    table = costs.Costs(
        np.array([[2.0, 3.0], [4.0, 5.0], [1.0, 6.0]]),
        np.array([[20.0, 30.0], [16.0, 24.0], [22.0, 33.0]]),
        np.full((3, 2), 5.0),
        np.array([[1.0, 2.0], [0.5, 1.0], [1.5, 2.5]]),
    )
    default = SimpleNamespace(
        time=np.array([2.0, 6.0]), energy=np.array([40.0, 90.0]),
        gpu_time=np.array([1.0, 6.0]), components=np.array([[0.0, 6.0], [0.0, 30.0]]),
        host_time=np.array([2.0, 0.0]), static_power=np.array([50.0, 60.0]),
    )  # fmt: skip
    clocks = Spent(np.array([[2.0, 3.0], [4.0, 5.0]]), np.ones((2, 2)))
    whole = SimpleNamespace(
        default=default, clocks=clocks, feasible=np.array([True, False])
    )
    workload = object.__new__(Modelled)  # whatever no compiled model has to say
    workload.__dict__.update(
        labels=("a", "b"), stages=("first", "second"), stage=np.array([0, 1]),
        count=np.array([2.0, 1.0]), loops=(Loop((0,), 2), Loop((1,), 1)),
        settings=np.array([[NAN, NAN], [6e8, NAN]]), costs=table, uniform=whole,
        card=GPU, power_cap=200.0, meter=BOARD, shared=None,
    )  # fmt: skip
    assert workload.default_growth.tolist() == [2, 2]
    problem = workload.problem(np.array([2.0, 3.0]))
    assert problem.time.tolist() == [[1, 2], [3, 5]]
    assert problem.energy.tolist() == [
        [(20 + 7 * 2) / 2, (16 + 6 * 4) / 2], [30 + 11 * 3, 24 + 8 * 5],
    ]  # fmt: skip
    assert problem.default_time.tolist() == [0.5, 6]
    assert problem.default_energy.tolist() == [(22 + 8) / 2, 33 + 10 * 6]
    assert problem.power_cap.tolist() == [200 * GPU.values["cap_fraction"]] * 2
    assert problem.host_time.tolist() == [2, 0]
    stages = workload.stage_problem()
    assert stages.time.tolist() == [[2, np.inf], [3, np.inf]]
    assert stages.default_energy.tolist() == [40, 90]
    assert stages.sequence().tolist() == [0, 1]


@pytest.mark.slow
def test_default_is_the_estimate(prefill: Modelled):
    problem = prefill.problem(prefill.default_growth)
    result = estimate(prefill.workload, GPU.spec, None, prefill.corrections)
    default = default_total(problem)
    np.testing.assert_allclose(default.time, result.time, rtol=1e-9)
    np.testing.assert_allclose(default.energy, result.energy, rtol=1e-9)
    warm = dataclasses.replace(prefill, temperature=70.0)  # of every schedule
    cool, hot = warm.growth(np.array([50.0])), warm.growth(np.array([250.0]))
    assert cool == hot and cool > 0


@pytest.mark.slow
@pytest.mark.parametrize("clock", [600e6, 1200e6])
def test_one_clock_for_all_kernels_is_the_estimate_at_that_clock(
    prefill: Modelled, clock: float
):
    point = OperatingPoint(clock, GPU.values["mem_clock"], 250.0)
    result = estimate(prefill.workload, GPU.spec, point, prefill.corrections)
    growth = prefill.growth(np.array([float(result.power)]))
    problem = prefill.problem(growth)
    setting = int(np.flatnonzero(problem.settings[:, 0] == clock)[0])
    took = total(problem, chosen(problem, np.full(len(problem.kernels), setting)))
    np.testing.assert_allclose(took.time, result.time, rtol=1e-6)
    np.testing.assert_allclose(took.energy, result.energy, rtol=2e-4)
    whole = prefill.stage_problem()
    np.testing.assert_allclose(whole.time[0, setting], result.time, rtol=1e-6)
    np.testing.assert_allclose(whole.energy[0, setting], result.energy, rtol=1e-6)


@pytest.mark.slow
def test_power_limits_end_at_the_default(prefill: Modelled):
    curve = prefill.uniform.limits
    default = prefill.uniform.default
    assert curve.limit[0] == 150 and curve.limit[-1] == 250
    assert len(curve.limit) <= 64 and (np.diff(curve.time) <= 1e-12).all()
    np.testing.assert_allclose(curve.time[-1], default.time.sum(), rtol=1e-9)
    mean = curve.energy / curve.time
    assert (mean <= curve.limit * GPU.values["cap_fraction"] * (1 + 1e-9)).all()


def test_clock_pairs_are_the_steps_of_the_gpu():
    pairs = clock_pairs(GPU)
    assert np.isnan(pairs[0]).all() and np.isnan(pairs[:, 1]).all()
    clocks = np.sort(pairs[1:, 0])
    np.testing.assert_allclose(np.diff(clocks), 15e6)
    assert clocks[0] == 210e6 and clocks[-1] == 1395e6
    geforce = clock_pairs(read_gpu("rtx-3080-ti"), [1500e6, 2100e6])
    assert len(geforce) == 2 + 5 * 3  # 2100 with memory left alone is "auto"


@pytest.mark.parametrize(
    ("card", "highest", "limits"),
    [
        (GPU, 213.0, [*range(150, 213), 213]), (GPU, 152.5, [150, 151, 152, 152.5]),
        (GPU, 214.0, [*range(150, 214, 2), 214]), (GPU, 100.0, [100]),
        (H200, 700.0, [*range(200, 700, 8), 700]),
    ],
)  # fmt: skip
def test_power_limits(card, highest: float, limits: list[float]):
    """From the least on by whole watts, in 64 steps at most, to the highest."""
    result = costs._limits(card, highest)
    assert result.tolist() == limits and len(result) <= 64


def test_points_of_one_setting_for_all():
    """The default, the settings, then the clocks left alone under each limit."""
    settings = np.array([[NAN, NAN], [1e9, 5.001e9]])
    limits = np.array([100.0, 200.0, 300.0])
    for temperature in (None, 70.0):
        result = costs._points(GEFORCE, settings, limits, 320.0, temperature)
        assert result.sm_clock.tolist() == [2.1e9, 2.1e9, 1e9, 2.1e9, 2.1e9, 2.1e9]
        assert result.mem_clock.tolist() == [9.501e9, 9.501e9, 5.001e9] + [9.501e9] * 3
        assert result.power_cap.tolist() == [320, 320, 320, 100, 200, 300]
        expected = [NAN if temperature is None else temperature] * 6
        assert np.array_equal(result.temperature, expected, equal_nan=True)
        assert result.mem_locked.tolist() == [0, 0, 1, 0, 0, 0]


def test_points_of_every_kernel():
    """At each setting, then at the clocks that the limiter holds."""
    settings = np.array([[NAN, NAN], [1e9, 5.001e9]])
    result = _modelled._points(GEFORCE, settings, np.array([1.8e9, 1.9e9]))
    assert result.sm_clock.tolist() == [[2.1e9] * 2, [1e9] * 2, [1.8e9, 1.9e9]]
    assert result.mem_clock.tolist() == [[9.501e9] * 2, [5.001e9] * 2, [9.501e9] * 2]
    assert result.mem_locked.tolist() == [[0, 0], [1, 1], [0, 0]]
