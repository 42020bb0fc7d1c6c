"""Laws of kernels at other clocks: limits of the formula, and fits of made readings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.fitting._clock_fit import fit_table
from diffenergy.fitting._clock_law import (
    ClockLaw,
    cells,
    governed,
    kernel_demand,
    law_corrections,
    law_table,
    points,
)
from diffenergy.fitting._clock_model import Readings
from diffenergy.hardware import load_gpu
from diffenergy.records import as_float
from diffenergy.units import GHz, MHz

GPU = load_gpu("rtx-3080-ti")
CYCLES = np.array([1.8e7, 4e6, 9e6])  # 10 ms at 1.8 GHz; streaming; mixed
BYTES = np.array([1e8, 7e9, 4e9])
ENERGY = np.array([1.2, 0.5, 0.6])  # J at V0
SM = (420.0, 840.0, 1260.0, 1470.0, 1680.0, 1800.0, np.nan)
MEM = (5001.0, 9501.0, np.nan)
SETTINGS = np.array([(sm, mem) for mem in MEM for sm in SM]) * MHz
ONCE = compiler_options(once=True)
RUN = jax.jit(cells, compiler_options=ONCE)
TOP = 1.8606e9
"""Highest applied clock of the file, Hz."""


def law(cap: float = 350.0, **energy: float) -> ClockLaw:
    """Three made kernels without launch cost."""
    c = law_corrections(GPU.corrections)
    zero = as_float(0.0)
    c = dataclasses.replace(c, launch_seconds=zero, launch_cycles=zero)
    flow, p = np.full(3, 33.0), np.full(3, 8.0)
    arrays = (as_float(x) for x in (CYCLES, BYTES, ENERGY, flow, p))
    kernels = kernel_demand(GPU, *arrays)
    return ClockLaw(GPU, c, kernels, as_float(1.0), as_float(cap))


@pytest.mark.slow
def test_core_work_follows_the_clock_and_bytes_the_memory():
    free = law(cap=1e4)
    time, _ = law_table(free, SETTINGS)
    at = {tuple(x): i for i, x in enumerate(SETTINGS / MHz)}
    slow, fast = at[(420.0, 9501.0)], at[(1680.0, 9501.0)]
    assert time[0, slow] == pytest.approx(CYCLES[0] / 420e6, rel=1e-3)
    assert time[0, fast] == pytest.approx(CYCLES[0] / 1680e6, rel=1e-3)
    rate = float(GPU.dram_bandwidth * free.corrections.dram_efficiency)
    half = at[(1680.0, 5001.0)]
    assert time[1, half] == pytest.approx(BYTES[1] / rate * 9501 / 5001, rel=1e-2)


@pytest.mark.slow
def test_requests_above_the_applied_clock_change_nothing():
    asked = np.array([(1890.0, 9501.0), (2100.0, 9501.0), (np.nan, 9501.0)]) * MHz
    found = RUN(law(cap=1e4), points(GPU, asked))
    assert np.asarray(found.clock) == pytest.approx(TOP, rel=1e-3)
    np.testing.assert_allclose(found.energy[:, 1:], found.energy[:, :1].repeat(2, 1))


@pytest.mark.slow
def test_core_energy_is_dearer_while_the_memory_clock_is_left_alone():
    found = RUN(
        law(cap=1e4), points(GPU, np.array([(1.8, 9.501), (1.8, np.nan)]) * GHz)
    )
    assert (found.time[:, 0] == found.time[:, 1]).all()
    knee, slope, curve = 1.555, 0.74, 0.15  # of the file
    h = 1.8 - knee
    locked, free = (1 + s * h + curve * h**2 for s in (slope, slope + 0.22))
    more = np.asarray(found.energy[:, 1] - found.energy[:, 0])
    core = ENERGY * (free**2 - locked**2)
    clock_tree = 7.4 * 1.8 * (free**2 - locked**2) * np.asarray(found.time[:, 0])
    leakage = 18 * (free**4 - locked**4) * np.asarray(found.time[:, 0])
    np.testing.assert_allclose(more, core + clock_tree + leakage, rtol=2e-3)


@pytest.mark.slow
def test_the_limiter_holds_the_mean_power():
    limited, point = law(cap=250.0), points(GPU, SETTINGS[-1:])
    found = RUN(limited, point)
    power = np.asarray(found.energy / found.time)[:, 0]
    held = 250 * 0.967
    assert power[0] == pytest.approx(held, rel=1e-3)
    assert (power <= held * 1.001).all()


@pytest.mark.slow
def test_the_limiter_has_a_gradient():
    point = points(GPU, SETTINGS[-1:])

    @functools.partial(jax.jit, compiler_options=ONCE)
    def run(cap: jax.Array) -> tuple[jax.Array, jax.Array]:
        def time(cap: jax.Array) -> jax.Array:
            return cells(dataclasses.replace(made, power_cap=cap), point).time[0, 0]

        return jax.jvp(time, (cap,), (jnp.ones_like(cap),))

    made, step = law(), 0.5
    (up, _), (_, slope), (down, _) = (
        run(as_float(250.0 + s)) for s in (step, 0.0, -step)
    )
    assert float(slope) == pytest.approx(float(up - down) / (2 * step), rel=1e-2)


@pytest.mark.slow
def test_the_clock_of_the_limiter_in_closed_form():
    """P = 100 W (f/GHz)^2 meets 200 W x the held fraction at one clock; where the
    highest clock is the same, the corner takes 0.003 ln 2 of it away."""
    made = law(cap=200.0)
    held = np.log(1e9) + 0.5 * np.log(200 * 0.967 / 100)

    def run(x: jax.Array) -> jax.Array:
        return jnp.stack([2.0 - x, jnp.log(100.0) + 2 * (x - jnp.log(1e9))])

    top = held + np.array([0.0, -0.02, 0.04, 0.5])
    (time, power), clock = governed(run, run, made, jnp.asarray(top))
    expected = held - 0.003 * np.log1p(np.exp((held - top) / 0.003))
    assert np.asarray(clock) == pytest.approx(expected, abs=1e-9)
    assert np.asarray(time) == pytest.approx(2.0 - expected, abs=1e-9)
    assert float(power[3]) == pytest.approx(np.log(200 * 0.967), abs=1e-9)
    assert held - float(clock[0]) == pytest.approx(0.003 * np.log(2), abs=1e-9)


@pytest.mark.slow
def test_idle_states_of_the_memory_keep_a_share_of_its_rate():
    """Below a fifth of the default memory clock, beyond what the clock takes."""
    asked = np.array([(1.2, 0.21 * 9.501), (1.2, 0.19 * 9.501)]) * GHz
    full, half = (
        RUN(dataclasses.replace(law(1e4), slow_memory=as_float(x)), points(GPU, asked))
        for x in (1.0, 0.5)
    )
    times = np.asarray(half.time[1] / full.time[1])  # of the streaming kernel
    assert times == pytest.approx(np.array([1.0, 2.0]), rel=0.01)


@pytest.mark.slow
def test_a_core_limit_of_a_memory_clock():
    asked = np.array([(1260.0, 405.0), (420.0, 405.0)]) * MHz
    time, _ = law_table(law(), asked, np.array([420e6, np.inf]))
    np.testing.assert_allclose(time[:, 0], time[:, 1])


@pytest.fixture(scope="module")
def smoothed() -> tuple[np.ndarray, ...]:
    """(true time, true energy, fitted time, fitted energy) of a noisy table in which
    half of the settings were not read."""
    time, energy = law_table(law(), SETTINGS)
    rng = np.random.default_rng(3)
    read = [
        x * np.exp(sd * rng.standard_normal(x.shape))
        for x, sd in ((time, 0.01), (energy, 0.02))
    ]
    hole = np.arange(len(SETTINGS)) % 2 == 1
    for x in read:
        x[:, hole] = np.nan
    readings = Readings(read[0], read[1])
    fit = fit_table(GPU, law().corrections, SETTINGS, readings, 350.0)
    return time, energy, *law_table(fit.law, SETTINGS)


@pytest.mark.slow
def test_a_fit_smooths_a_noisy_table(smoothed: tuple[np.ndarray, ...]):
    time, energy, fitted_time, fitted_energy = smoothed
    assert np.sqrt(np.mean(np.log(fitted_time / time) ** 2)) < 0.01
    assert np.sqrt(np.mean(np.log(fitted_energy / energy) ** 2)) < 0.02


def test_a_kernel_without_readings_is_refused():
    nothing = np.full((1, len(SETTINGS)), np.nan)
    with (
        pytest.warns(RuntimeWarning, match="All-NaN"),
        pytest.raises(ValueError, match="`time` of kernel 0 holds no positive number"),
    ):
        fit_table(
            GPU,
            law().corrections,
            SETTINGS,
            Readings(nothing, nothing),
            350.0,
        )
