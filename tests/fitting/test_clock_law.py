"""Laws of kernels at other clocks: limits of the formula, what a fit makes small, and
fits of made readings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.fitting import Readings, fit_table, law_table
from diffenergy.fitting._clock_fit import ClockFit, LawProblem, fit_law
from diffenergy.fitting._clock_law import (
    Cells,
    ClockLaw,
    cells,
    compiled_cells,
    governed,
    kernel_demand,
    law_corrections,
    log_costs,
    points,
)
from diffenergy.fitting._clock_model import (
    GPU_WIDTHS,
    PLAIN,
    KernelPriors,
    Kind,
    base_of,
    law_of,
    plain_priors,
)
from diffenergy.hardware import load_gpu
from diffenergy.records import as_float
from diffenergy.smooth import robust
from diffenergy.units import GHz, MHz

GPU = load_gpu("rtx-3080-ti")
CYCLES = np.array([1.8e7, 4e6, 9e6])  # 10 ms at 1.8 GHz; streaming; mixed
BYTES = np.array([1e8, 7e9, 4e9])
ENERGY = np.array([1.2, 0.5, 0.6])  # J at V0
SM = (420.0, 840.0, 1260.0, 1470.0, 1680.0, 1800.0, np.nan)
MEM = (5001.0, 9501.0, np.nan)
SETTINGS = np.array([(sm, mem) for mem in MEM for sm in SM]) * MHz
TOP = 1.8606e9
"""Highest applied clock of the file, Hz."""


def law(cap: float = 350.0) -> ClockLaw:
    """Three made kernels without launch cost."""
    c = law_corrections(GPU.corrections)
    zero = as_float(0.0)
    c = dataclasses.replace(c, launch_seconds=zero, launch_cycles=zero)
    flow, p = np.full(3, 33.0), np.full(3, 8.0)
    arrays = (as_float(x) for x in (CYCLES, BYTES, ENERGY, flow, p))
    kernels = kernel_demand(GPU, *arrays)
    return ClockLaw(GPU, c, kernels, as_float(1.0), as_float(cap))


def cells_at(law: ClockLaw, settings: np.ndarray, limit: float = np.inf) -> Cells:
    """Cells at up to as many settings as `SETTINGS` has, whose program serves all;
    `limit`: of the core clock at the first of them (Hz)."""
    rows = np.resize(settings, SETTINGS.shape)
    limits = np.where(np.arange(len(rows)) > 0, np.inf, limit)
    every = compiled_cells()(law, points(GPU, rows, limits))
    return jax.tree.map(lambda x: np.asarray(x)[:, : len(settings)], every)


@pytest.mark.slow
def test_core_work_follows_the_clock_and_bytes_the_memory():
    free = law(cap=1e4)
    time, energy = law_table(free, SETTINGS)
    at = {tuple(x): i for i, x in enumerate(SETTINGS / MHz)}
    slow, fast = at[(420.0, 9501.0)], at[(1680.0, 9501.0)]
    assert time[0, slow] == pytest.approx(CYCLES[0] / 420e6, rel=1e-3)
    assert time[0, fast] == pytest.approx(CYCLES[0] / 1680e6, rel=1e-3)
    rate = float(GPU.dram_bandwidth * free.corrections.dram_efficiency)
    half = at[(1680.0, 5001.0)]
    assert time[1, half] == pytest.approx(BYTES[1] / rate * 9501 / 5001, rel=1e-2)
    high = np.array([(1890.0, 9501.0), (2100.0, 9501.0), (np.nan, 9501.0)]) * MHz
    result = cells_at(free, high)
    assert result.clock == pytest.approx(TOP, rel=1e-3)
    np.testing.assert_allclose(result.energy[:, 1:], result.energy[:, :1].repeat(2, 1))
    low = np.array([(1260.0, 405.0), (420.0, 405.0)]) * MHz
    time = cells_at(law(), low, limit=420e6).time
    np.testing.assert_allclose(time[:, 0], time[:, 1])


@pytest.mark.slow
def test_core_energy_is_dearer_while_the_memory_clock_is_left_alone():
    result = cells_at(law(cap=1e4), np.array([(1.8, 9.501), (1.8, np.nan)]) * GHz)
    assert (result.time[:, 0] == result.time[:, 1]).all()
    knee, slope, curve = 1.555, 0.74, 0.15  # of the file
    h = 1.8 - knee
    locked, free = (1 + s * h + curve * h**2 for s in (slope, slope + 0.22))
    more = result.energy[:, 1] - result.energy[:, 0]
    core = ENERGY * (free**2 - locked**2)
    clock_tree = 7.4 * 1.8 * (free**2 - locked**2) * result.time[:, 0]
    leakage = 18 * (free**4 - locked**4) * result.time[:, 0]
    np.testing.assert_allclose(more, core + clock_tree + leakage, rtol=2e-3)


@pytest.mark.slow
def test_the_limiter_holds_the_mean_power_and_has_a_gradient():
    point, limited = points(GPU, SETTINGS[-1:]), law(cap=250.0)
    result = cells_at(limited, SETTINGS[-1:])
    power = (result.energy / result.time)[:, 0]
    assert power[0] == pytest.approx(250 * 0.967, rel=1e-3)
    assert (power <= 250 * 0.967 * 1.001).all()

    @functools.partial(jax.jit, compiler_options=compiler_options(once=True))
    def run(cap: jax.Array) -> tuple[jax.Array, jax.Array]:
        def time(cap: jax.Array) -> jax.Array:
            return cells(dataclasses.replace(limited, power_cap=cap), point).time[0, 0]

        return jax.jvp(time, (cap,), (jnp.ones_like(cap),))

    step = 0.5
    (up, _), (_, slope), (down, _) = (
        run(as_float(250.0 + s)) for s in (step, 0.0, -step)
    )
    assert float(slope) == pytest.approx(float(up - down) / (2 * step), rel=1e-2)


@pytest.mark.slow
def test_the_clock_of_the_limiter_in_closed_form():
    """P = 100 W (f/GHz)^2 meets 200 W x the limiter's fraction at one clock; where the
    highest clock is the same, the corner takes 0.003 ln 2 of it away."""
    limit = np.log(1e9) + 0.5 * np.log(200 * 0.967 / 100)

    def run(x: jax.Array) -> jax.Array:
        return jnp.stack([2.0 - x, jnp.log(100.0) + 2 * (x - jnp.log(1e9))])

    top = limit + np.array([0.0, -0.02, 0.04, 0.5])
    (time, power), clock = governed(run, run, law(cap=200.0), jnp.asarray(top))
    expected = limit - 0.003 * np.log1p(np.exp((limit - top) / 0.003))
    assert np.asarray(clock) == pytest.approx(expected, abs=1e-9)
    assert np.asarray(time) == pytest.approx(2.0 - expected, abs=1e-9)
    assert float(power[3]) == pytest.approx(np.log(200 * 0.967), abs=1e-9)
    assert limit - float(clock[0]) == pytest.approx(0.003 * np.log(2), abs=1e-9)


@pytest.mark.slow
def test_idle_states_of_the_memory_keep_a_share_of_its_rate():
    """Below a fifth of the default memory clock, beyond what the clock takes."""
    streaming = jax.tree.map(lambda x: x[1], law(1e4).kernels)
    clocks = np.array([(1.2, 9.501), (1.2, 0.21 * 9.501), (1.2, 0.19 * 9.501)]) * GHz

    def times(share: float) -> np.ndarray:
        at = dataclasses.replace(law(1e4), slow_memory=as_float(share))
        each = jax.vmap(lambda p: log_costs(at, streaming, jnp.log(1.2e9), p)[0])
        return np.exp(np.asarray(each(points(GPU, clocks))))

    full, half = times(1.0), times(0.5)
    assert half / full == pytest.approx(np.array([1.0, 1.0, 2.0]), rel=0.01)
    rate = float(GPU.dram_bandwidth * GPU.corrections.dram_efficiency)
    assert full[0] == pytest.approx(BYTES[1] / rate, rel=0.01)


def test_what_a_law_does_not_price():
    """Core energy is in the kernels; a memory clock may limit the core clock."""
    result, c = law_corrections(GPU.corrections), GPU.corrections
    for name in ("dynamic_energy", "core_energy", "idle_scale"):
        assert float(getattr(result, name)) == 1
    for name in ("sm_clock_energy", "energy_launch", "energy_tile", "leakage"):
        assert float(getattr(result, name)) == 0
    for name in ("energy_dram", "dram_efficiency", "launch_seconds", "memory_idle"):
        assert float(getattr(result, name)) == float(getattr(c, name))
    settings = np.array([(9e8, np.nan), (np.nan, 8e8), (9e8, 8e8)])
    limited = points(GPU, settings, np.array([np.inf, 5e8, 1e9]))
    assert limited.sm_clock.tolist() == [9e8, 5e8, 9e8]
    assert limited.mem_clock.tolist() == [float(GPU.mem_clock), 8e8, 8e8]
    assert limited.mem_locked.tolist() == [0, 1, 1]


# what a fit knows and makes small: two kernels of an A100

A100 = load_gpu("a100-pcie-40gb")
HIGHEST = float(A100.sm_clock_applied_max)
OTHER = Kind((0.5, 0.6, 0.7), (0.2, 0.25, 0.35), 6.0, 0.1)
THREE = np.array([(np.nan, np.nan), (9e8, np.nan), (6e8, np.nan)])
NAN = np.nan
READ = Readings(
    np.array([[0.012, 0.019, 0.03], [0.03, 0.031, NAN]]),
    np.array([[2.0, NAN, 1.5], [5.0, 4.0, 4.5]]),
    0.03,
    0.05,
)


@pytest.fixture(scope="module")
def problem() -> LawProblem:
    """Two kernels, the first of the second kind, some cells of them not read."""
    time, ones = np.array([0.01, 0.03]), np.ones(2)
    cycles, moved = 0.8 * time * HIGHEST, 0.4 * time * float(A100.dram_bandwidth)
    of_cycle, of_byte = 75 / HIGHEST * ones, np.array([1e-11, 2e-11])
    kinds = (PLAIN, OTHER)
    priors = KernelPriors(kinds, np.array([1, 0]), cycles, moved, of_cycle, of_byte)
    base = base_of(A100, A100.corrections, priors, 200.0, 50.0, 0.5)
    return LawProblem(base, points(A100, THREE), READ, kinds)


def test_a_law_of_its_unknowns(problem: LawProblem):
    """Every number times e to its unknown; a kernel's own and its kind's add up."""
    base, c, flat = problem.base, A100.corrections, problem.flat
    z = np.random.default_rng(0).normal(0, 0.1, flat.size)
    law = jax.device_get(ClockFit(base, flat, z, 0.0).law)
    for name, x in zip(GPU_WIDTHS, z, strict=False):
        known = float(getattr(A100, name)) * np.exp(x)
        assert float(getattr(law.gpu, name)) == pytest.approx(known), name
    memory, dram, flow, slow = np.exp(z[9:13])
    for value, expected in (
        (law.corrections.memory_idle, c.memory_idle * memory),
        (law.corrections.energy_dram, c.energy_dram * dram),
        (law.slow_memory, 0.5 * slow), (law.power_cap, 200.0),
    ):  # fmt: skip
        assert float(value) == pytest.approx(float(expected))
    kind = z[13:21].reshape(2, 4)[[1, 0]]
    own = np.exp(z[21:].reshape(2, 3) + kind[:, :3]).T
    cycles, moved = np.asarray(base.cycles) * own[0], np.asarray(base.dram) * own[1]
    joules = np.asarray(base.energy_cycle) * cycles
    joules = (joules + np.asarray(base.energy_byte) * moved) * own[2]
    result = law.kernels
    for got, expected in [
        (result.path_cycles, cycles), (result.dram, moved),
        (result.other_energy, joules),
        (result.flow, 50 * flow * np.ones(2)),
        (result.sharpness_memory, np.array([6.0, 4.0]) * np.exp(kind[:, 3])),
    ]:  # fmt: skip
        assert np.asarray(got) == pytest.approx(expected, rel=1e-9)
    assert (np.asarray(result.ctas) == float(A100.num_sms)).all()


@pytest.mark.slow
def test_residuals_are_those_of_readings_then_of_priors(problem: LawProblem):
    """The Jacobian is that of differences."""
    widths = [0.1, 0.4, 0.5, 0.4, 0.2, 0.4, 0.5, 0.01, 0.015, 0.1, 0.3, 0.3, 0.1]
    widths += [0.3, 0.3, 0.3, 0.4, 0.2, 0.25, 0.35, 0.1]
    widths += [0.5, 0.6, 0.7, 1.0, 1.0, 0.7]
    assert problem.width.tolist() == widths
    z = np.random.default_rng(0).normal(0, 0.1, len(widths))
    result = problem.residuals(z)
    assert len(result) == 10 + len(z)
    assert result[10:] == pytest.approx(z / widths)
    law = ClockFit(problem.base, problem.flat, z, 0.0).law
    time, energy = law_table(law, THREE)
    miss = np.concatenate(
        [np.log(time / READ.time) / 0.03, np.log(energy / READ.energy) / 0.05], 1
    )
    expected = np.asarray(robust(jnp.asarray(miss[np.isfinite(miss)])))
    assert result[:10] == pytest.approx(expected, rel=1e-6)
    slopes, step = problem.jacobian(z), 1e-6
    for i, slope in enumerate(slopes.T):
        ahead, behind = (
            problem.residuals(z + s * np.eye(len(z))[i]) for s in (step, -step)
        )
        expected = (ahead - behind) / (2 * step)
        assert slope == pytest.approx(expected, rel=1e-4, abs=1e-4), i
    assert (np.abs(slopes[:10]).max(0) > 1e-3).sum() > 15  # most of them do something


# fits


@pytest.mark.slow
def test_a_fit_finds_the_law_of_exact_readings():
    """Two kernels, one of core work and one of bytes, at seven clocks, the last unread:
    it is met to 1 %, and so are core work and bytes. DRAM was at its full rate from 0.4
    of the highest clock on. A time alone says 0.8 of core work, 0.4 of bytes, at three
    tenths of the board's power."""
    c, spans = A100.corrections, np.array([0.01, 0.03])
    priors = plain_priors(A100, spans)
    assert priors.cycles == pytest.approx(0.8 * spans * HIGHEST)
    assert priors.dram == pytest.approx(0.4 * spans * float(A100.dram_bandwidth))
    power = 0.3 * float(A100.tdp)
    assert priors.energy_cycle == pytest.approx(power / HIGHEST * np.ones(2))
    base = base_of(A100, c, priors, 250.0, 50.0)
    begin = LawProblem(base, points(A100, THREE), READ, (PLAIN,))
    shared, _, _ = begin.flat.split(jnp.zeros(begin.flat.size))
    latents = jnp.asarray([[0.2, -1.5, 0.5], [-1.5, 0.8, -0.5]])
    true = law_of(base, shared, latents, jnp.arange(2))
    clocks = np.array([*np.linspace(0.4, 1.0, 6) * HIGHEST, 0.65 * HIGHEST])
    settings = np.stack([clocks, np.full(7, np.nan)], axis=1)
    time, energy = law_table(true, settings)
    timed, drawn = (np.where(np.arange(7) < 6, x, np.nan) for x in (time, energy))
    fit = fit_table(A100, c, settings, Readings(timed, drawn), 250.0)
    result = law_table(fit.law, settings)
    assert np.log(result[0] / time) == pytest.approx(np.zeros((2, 7)), abs=0.01)
    assert np.log(result[1] / energy) == pytest.approx(np.zeros((2, 7)), abs=0.01)
    fitted, known = (jax.device_get(x.kernels) for x in (fit.law, true))
    assert fitted.path_cycles[0] == pytest.approx(known.path_cycles[0], rel=0.02)
    assert fitted.dram[1] == pytest.approx(known.dram[1], rel=0.05)
    assert fit.cost < 5 and len(fit.z) == begin.flat.size
    full = float(A100.dram_bandwidth) / (float(A100.num_sms) * 0.4 * HIGHEST)
    assert float(fit.base.flow) == pytest.approx(full)
    again = LawProblem(
        fit.base, points(A100, settings), Readings(timed, drawn), (PLAIN,)
    )
    assert fit_law(again, fit.z, 3).cost <= fit.cost * (1 + 1e-9)
