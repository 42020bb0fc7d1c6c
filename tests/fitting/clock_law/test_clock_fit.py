"""What a fit of a clock law makes small: by hand, and its Jacobian by differences."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.fitting import _clock_fit as clock_fit
from diffenergy.fitting._clock_fit import LawProblem, fit_table
from diffenergy.fitting._clock_law import cells, points
from diffenergy.fitting._clock_model import (
    GPU_WIDTHS,
    LAW_WIDTHS,
    PLAIN,
    KernelPriors,
    Kind,
    Readings,
    base_of,
    law_of,
)
from diffenergy.fitting._least_squares import Minimum
from diffenergy.hardware import load_gpu
from diffenergy.smooth import robust

GPU = load_gpu("a100-pcie-40gb")
TOP = float(GPU.sm_clock_applied_max)
OTHER = Kind((0.5, 0.6, 0.7), (0.2, 0.25, 0.35), 6.0, 0.1)
SETTINGS = np.array([(np.nan, np.nan), (9e8, np.nan), (6e8, np.nan)])
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
    cycles, moved = 0.8 * time * TOP, 0.4 * time * float(GPU.dram_bandwidth)
    of_cycle, of_byte = 75 / TOP * ones, np.array([1e-11, 2e-11])
    kinds = (PLAIN, OTHER)
    priors = KernelPriors(kinds, np.array([1, 0]), cycles, moved, of_cycle, of_byte)
    base = base_of(GPU, GPU.corrections, priors, 200.0, 50.0, 0.5)
    return LawProblem(base, points(GPU, SETTINGS), READ, kinds)


@pytest.mark.slow
def test_residuals_are_those_of_readings_then_of_priors(problem: LawProblem):
    """Of the ten cells that were read: ln of time and of energy, kernel by kernel."""
    widths = [0.1, 0.4, 0.5, 0.4, 0.2, 0.4, 0.5, 0.01, 0.015, 0.1, 0.3, 0.3, 0.1]
    widths += [0.3, 0.3, 0.3, 0.4, 0.2, 0.25, 0.35, 0.1]
    widths += [0.5, 0.6, 0.7, 1.0, 1.0, 0.7]
    assert problem.width.tolist() == widths
    z = np.random.default_rng(0).normal(0, 0.1, len(widths))
    found = problem.residuals(z)
    assert len(found) == 10 + len(z)
    assert found[10:] == pytest.approx(z / widths)

    @functools.partial(jax.jit, compiler_options=compiler_options(once=True))
    def made(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        shared, latents, _ = problem.flat.split(z)
        law = law_of(problem.base, shared, latents, jnp.arange(2))
        run = cells(law, problem.point)
        return run.time, run.energy

    time, energy = (np.asarray(x) for x in made(jnp.asarray(z)))
    miss = np.concatenate(
        [np.log(time / READ.time) / 0.03, np.log(energy / READ.energy) / 0.05], 1
    )
    expected = np.asarray(robust(jnp.asarray(miss[np.isfinite(miss)])))
    assert found[:10] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_jacobian_is_that_of_differences(problem: LawProblem):
    z, step = np.random.default_rng(1).normal(0, 0.1, problem.width.size), 1e-6
    found = problem.jacobian(z)
    for i, slope in enumerate(found.T):
        ahead, behind = (
            problem.residuals(z + s * np.eye(len(z))[i]) for s in (step, -step)
        )
        expected = (ahead - behind) / (2 * step)
        assert slope == pytest.approx(expected, rel=1e-4, abs=1e-4), i
    assert (np.abs(found[:10]).max(0) > 1e-3).sum() > 15  # most of them do something


def test_what_is_sought_for_a_table(monkeypatch):
    """From the prior centres, with the times near the highest clocks; DRAM is at its
    full rate from 0.4 of them."""
    asked: dict[str, Any] = {}

    def minimise(problem: LawProblem, begin: np.ndarray, *limits: Any) -> Minimum:
        asked.update(begin=begin, width=problem.width, limits=limits)
        return Minimum(begin + 0.01, 3.0, 1, np.eye(len(begin)), False)

    monkeypatch.setattr(LawProblem, "minimise", minimise)
    fit = fit_table(GPU, GPU.corrections, SETTINGS, READ, 250.0)
    assert asked["begin"].tolist() == [0.0] * (9 + 4 + 4 + 2 * 3)
    assert asked["width"].tolist() == [
        *GPU_WIDTHS.values(), *LAW_WIDTHS.values(), 0.3, 0.3, 0.3, 0.4,
        *(1.0, 1.0, 0.7, 1.0, 1.0, 0.7),
    ]  # fmt: skip
    assert fit.cost == 3 and float(fit.base.power_cap) == 250
    assert fit.base.cycles.tolist() == pytest.approx(
        [0.8 * x * TOP for x in (0.012, 0.03)]
    )
    full = float(GPU.dram_bandwidth) / (float(GPU.num_sms) * 0.4 * TOP)
    assert float(fit.base.flow) == pytest.approx(full)
    assert float(fit.base.slow_memory) == 1
    # a kernel's own 0.01 and that of its kind, once more where energy goes with work
    cycles = fit.base.cycles * np.exp(0.02)
    law = fit.law
    assert law.kernels.path_cycles.tolist() == pytest.approx(cycles.tolist())
    energy = fit.base.energy_cycle * cycles * np.exp(0.02)
    assert law.kernels.other_energy.tolist() == pytest.approx(energy.tolist())
    again = clock_fit.fit_law(
        LawProblem(fit.base, points(GPU, SETTINGS), READ, (PLAIN,)), fit.z, 7, 1e-2
    )
    assert asked["begin"].tolist() == fit.z.tolist() != again.z.tolist()
    assert asked["limits"] == (7, 1e-2, 1e-2)
