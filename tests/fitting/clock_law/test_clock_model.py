"""What a fit of a clock law knows and seeks, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.fitting._clock_fit import fit_table
from diffenergy.fitting._clock_law import (
    ClockLaw,
    law_corrections,
    law_table,
    points,
)
from diffenergy.fitting._clock_model import (
    GPU_WIDTHS,
    LAW_WIDTHS,
    PLAIN,
    Flat,
    Kind,
    Readings,
    base_of,
    law_of,
    plain_priors,
)
from diffenergy.hardware import load_gpu
from diffenergy.smooth import robust

GPU = load_gpu("a100-pcie-40gb")
C = GPU.corrections
TOP = float(GPU.sm_clock_applied_max)
TIME = np.array([0.01, 0.03])
ONCE = compiler_options(once=True)
ONES = (1.0, 1.0, 1.0)


def test_priors_of_kernels_known_by_a_time_alone():
    """0.8 of it core work, 0.4 bytes, at three tenths of the board's power."""
    found = plain_priors(GPU, TIME)
    assert found.cycles == pytest.approx(0.8 * TIME * TOP)
    assert found.dram == pytest.approx(0.4 * TIME * float(GPU.dram_bandwidth))
    assert found.energy_cycle == pytest.approx(0.3 * float(GPU.tdp) / TOP * np.ones(2))
    assert found.kind.tolist() == [0, 0] and found.energy_byte.tolist() == [0, 0]
    assert found.kinds == (PLAIN,)
    assert PLAIN == Kind((1.0, 1.0, 0.7), (0.3, 0.3, 0.3), 4.0, 0.4)
    assert Kind(ONES, ONES) == Kind(ONES, ONES, 6.0, 0.3)


def test_unknowns_in_one_vector():
    """9 of the GPU, 4 of the law, 4 of each of 2 kinds, 3 of each of 5 kernels."""
    flat = Flat((9, 4, 8), 5)
    assert flat.size == 9 + 4 + 8 + 15
    split = jax.jit(flat.split, compiler_options=ONCE)
    shared, latents, others = jax.device_get(split(jnp.arange(flat.size + 2.0)))
    assert shared.gpu.tolist() == list(range(9))
    assert shared.law.tolist() == [9, 10, 11, 12]
    assert shared.kinds.tolist() == [[13, 14, 15, 16], [17, 18, 19, 20]]
    assert latents.tolist() == [[21.0 + 3 * k + i for i in range(3)] for k in range(5)]
    assert others.tolist() == [36, 37]
    assert (len(GPU_WIDTHS), len(LAW_WIDTHS)) == (9, 4)


def test_a_law_of_its_unknowns():
    """Every number times e to its unknown; a kernel's own and its kind's add up."""
    plain = plain_priors(GPU, TIME)
    kinds = (PLAIN, Kind(ONES, ONES, 7.0))
    priors = dataclasses.replace(
        plain, kinds=kinds, kind=np.array([1, 0]), energy_byte=np.array([1e-11, 2e-11])
    )
    base = base_of(GPU, C, priors, 200.0, 33.0, 0.5)
    flat = Flat((9, 4, 8), 2)
    z = np.random.default_rng(0).normal(0, 0.1, flat.size)

    def made(z: jax.Array) -> ClockLaw:
        shared, latents, _ = flat.split(z)
        return law_of(base, shared, latents, jnp.arange(2))

    law = jax.device_get(jax.jit(made, compiler_options=ONCE)(jnp.asarray(z)))
    for name, x in zip(GPU_WIDTHS, z, strict=False):
        known = float(getattr(GPU, name)) * np.exp(x)
        assert float(getattr(law.gpu, name)) == pytest.approx(known), name
    memory, dram, flow, slow = np.exp(z[9:13])
    assert float(law.corrections.memory_idle) == pytest.approx(
        float(C.memory_idle) * memory
    )
    assert float(law.corrections.energy_dram) == pytest.approx(
        float(C.energy_dram) * dram
    )
    assert float(law.slow_memory) == pytest.approx(0.5 * slow)
    assert float(law.power_cap) == 200
    kind = z[13:21].reshape(2, 4)[[1, 0]]
    own = np.exp(z[21:].reshape(2, 3) + kind[:, :3]).T
    cycles, moved = priors.cycles * own[0], priors.dram * own[1]
    joules = (priors.energy_cycle * cycles + priors.energy_byte * moved) * own[2]
    found = law.kernels
    for got, expected in [
        (found.path_cycles, cycles), (found.dram, moved), (found.other_energy, joules),
        (found.flow, 33 * flow * np.ones(2)),
        (found.sharpness_memory, np.array([7.0, 4.0]) * np.exp(kind[:, 3])),
    ]:  # fmt: skip
        assert np.asarray(got) == pytest.approx(expected, rel=1e-9)
    assert (np.asarray(found.ctas) == float(GPU.num_sms)).all()


def test_what_a_law_does_not_price():
    """Core energy is in the kernels: factors are 1, energies of launches nothing."""
    found = law_corrections(C)
    for name in ("dynamic_energy", "core_energy", "idle_scale"):
        assert float(getattr(found, name)) == 1
    for name in ("sm_clock_energy", "energy_launch", "energy_tile", "leakage"):
        assert float(getattr(found, name)) == 0
    for name in ("energy_dram", "dram_efficiency", "launch_seconds", "memory_idle"):
        assert float(getattr(found, name)) == float(getattr(C, name))


def test_readings_as_rows():
    nan = np.nan
    time, energy = np.array([[1.0, nan]]), np.array([[2.0, 4.0]])
    values, sd = Readings(time, energy, 0.03, 0.05).rows()
    assert values[0, [0, 2, 3]] == pytest.approx(np.log([1, 2, 4]))
    assert np.isnan(values[0, 1])
    assert sd.tolist() == [[0.03, 0.03, 0.05, 0.05]]
    plain = Readings(time, energy)
    assert (plain.time_sd, plain.energy_sd) == (0.01, 0.02)


def test_far_residuals_count_linearly():
    """r^2 near 0; 2 x 2 x r far out: the root of 2 h^2 (sqrt(1 + (r/h)^2) - 1)."""
    r = np.array([-50.0, -3.0, 0.0, 0.01, 2.0, 50.0])
    squared = 2 * 4 * (np.sqrt(1 + (r / 2) ** 2) - 1)
    found = np.asarray(robust(jnp.asarray(r)))
    assert found**2 == pytest.approx(squared, rel=1e-6)
    assert (np.sign(found) == np.sign(r)).all()


def test_settings_as_a_gpu_applies_them():
    asked = np.array([(9e8, np.nan), (np.nan, 8e8), (9e8, 8e8)])
    found = points(GPU, asked)
    assert found.sm_clock.tolist() == [9e8, np.inf, 9e8]
    assert found.mem_clock.tolist() == [float(GPU.mem_clock), 8e8, 8e8]
    assert found.mem_locked.tolist() == [0, 1, 1]
    limited = points(GPU, asked, np.array([np.inf, 5e8, 1e9]))
    assert limited.sm_clock.tolist() == [9e8, 5e8, 9e8]


@pytest.mark.slow
def test_a_fit_finds_the_law_of_exact_readings():
    """Two kernels, one of core work and one of bytes, at seven clocks, the last unread:
    it is met to 1 %, and so are core work and bytes."""
    priors = plain_priors(GPU, TIME)
    base = base_of(GPU, C, priors, 250.0, 50.0)
    flat = Flat((9, 4, 4), 2)
    shared, _, _ = flat.split(jnp.zeros(flat.size))
    latents = jnp.asarray([[0.2, -1.5, 0.5], [-1.5, 0.8, -0.5]])
    true = law_of(base, shared, latents, jnp.arange(2))
    clocks = np.array([*np.linspace(0.4, 1.0, 6) * TOP, 0.65 * TOP])
    settings = np.stack([clocks, np.full(7, np.nan)], axis=1)
    time, energy = law_table(true, settings)
    timed, drawn = (np.where(np.arange(7) < 6, x, np.nan) for x in (time, energy))
    fit = fit_table(GPU, C, settings, Readings(timed, drawn), 250.0)
    got = law_table(fit.law, settings)
    assert np.log(got[0] / time) == pytest.approx(np.zeros((2, 7)), abs=0.01)
    assert np.log(got[1] / energy) == pytest.approx(np.zeros((2, 7)), abs=0.01)
    found, known = (jax.device_get(x.kernels) for x in (fit.law, true))
    assert found.path_cycles[0] == pytest.approx(known.path_cycles[0], rel=0.02)
    assert found.dram[1] == pytest.approx(known.dram[1], rel=0.05)
    assert fit.cost < 5 and len(fit.z) == flat.size
