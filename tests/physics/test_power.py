"""Energy by unit, leakage, temperature: check values and hand iteration."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from diffenergy import estimator
from diffenergy.corrections import Corrections, read_corrections
from diffenergy.hardware import (
    OperatingPoint,
    gpu_names,
    load_gpu,
    read_gpu,
    relative_voltage,
    with_fields,
)
from diffenergy.physics import (
    COMPONENTS,
    LAUNCH_COMPONENTS,
    Demand,
    Timing,
    launch_energy,
    static_power,
    with_corrections,
)
from diffenergy.units import GHz, pJ


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


A100 = load_gpu("a100-pcie-40gb")
LOW, TOP = 0.6 * GHz, 1.41 * GHz
TOP_RATIO = 0.89434 / 0.69375  # V/V0 at 1.41 GHz


def point(temperature: float = math.nan, **options: Any) -> OperatingPoint:
    """Where the A100 runs."""
    fields = {"sm_clock": TOP, "mem_clock": A100.mem_clock, "power_cap": 250.0}
    return OperatingPoint(**(fields | options), temperature=temperature)


def core_factor(c: Corrections, clock: float) -> Array:
    """(V/V0)^2 times the factor on core energies."""
    return relative_voltage(A100, jnp.asarray(clock)) ** 2 * c.core_energy


def energies(clock: float, c: Corrections, **work: Any) -> dict[str, float]:
    """Energy of one launch of 1 ms on 50 SMs by component, J."""
    timing = Timing(*(jnp.asarray(x) for x in (1e-3, 0.0, 50.0)))
    got = launch_energy(
        Demand(**work), timing, c, jnp.asarray(clock), core_factor(c, clock)
    )
    return dict(zip(LAUNCH_COMPONENTS, map(float, got), strict=True))


PRICES = constants(
    energy_fma=5 * pJ, energy_sfu=3 * pJ, energy_issue=2 * pJ, energy_smem=1 * pJ,
    energy_l2=10 * pJ, energy_dram=75 * pJ, energy_link=60 * pJ,
    energy_launch=1e-6, energy_tile=1e-9, core_energy=1.0, sm_clock_energy=0.2e-9,
)  # fmt: skip
WORK = dict(
    tensor=1e9, tensor_energy=0.5 * pJ, fma=2e8, sfu=1e7, issue=4e8, smem=3e8,
    l2=2e8, store_l2=1e8, dram=1e8, store_dram=5e7, link=1e7, ctas=800, launches=2,
    other_energy=5e-4,
)  # fmt: skip
AT_FLOOR = {
    "tensor": 0.5e-3, "fma": 1e-3, "sfu": 3e-5, "issue": 8e-4, "smem": 3e-4,
    "l2": 3e-3, "dram": 1.125e-2, "link": 6e-4,
    "clock_tree": 0.2e-9 * 50 * 0.6e9 * 1e-3, "launch": 2e-6 + 8e-7, "other": 5e-4,
}  # fmt: skip


def test_energy_of_a_launch_at_the_floor_voltage():
    got = energies(LOW, PRICES, **WORK)
    assert got == {name: pytest.approx(x, rel=1e-4) for name, x in AT_FLOOR.items()}


def test_core_energies_follow_the_voltage():
    low, high = energies(LOW, PRICES, **WORK), energies(TOP, PRICES, **WORK)
    for name in LAUNCH_COMPONENTS:
        square = 1.0 if name in ("dram", "link") else TOP_RATIO**2
        cycles = TOP / LOW if name == "clock_tree" else 1.0
        assert high[name] / low[name] == pytest.approx(square * cycles, rel=1e-4)


def test_quiet_operands_and_other_processes():
    half = constants(**(vars(PRICES) | {"core_energy": 0.5}))
    full = energies(LOW, PRICES, **WORK)
    quiet = energies(LOW, PRICES, **WORK, activity=0.8, math_activity=0.5)
    small = energies(LOW, half, **WORK)
    for name in LAUNCH_COMPONENTS:
        switching = 1.0 if name in ("clock_tree", "launch", "other") else 0.8
        switching *= 0.5 if name in ("tensor", "fma") else 1.0  # math beyond its bytes
        core = 1.0 if name in ("dram", "link") else 0.5
        assert quiet[name] == pytest.approx(switching * full[name])
        assert small[name] == pytest.approx(core * full[name])


# leakage, temperature -----------------------------------------------------------

TABLE = 30.39 * 0.69375**4  # W: leakage of the idle table at V0
LEAKAGE = constants(leakage=2.33 / TABLE, leakage_efold=12.8, idle_scale=1.0)
"""2.33 W at 40 C and V0."""


def clock_of(volts: float) -> float:
    """Clock at which the A100 runs at `volts`, Hz."""
    h = (-2.25e-10 + math.sqrt(2.25e-10**2 + 4 * 7.16e-19 * (volts - 0.69375))) / (
        2 * 7.16e-19
    )
    return 1.015e9 + 0.03e9 * math.log(math.expm1(h / 0.03e9))


@pytest.mark.parametrize(
    ("celsius", "volts", "watts"),
    [(65, 0.69375, 16.43), (75, 0.79, 60.34), (40, 0.8, 4.120), (30, 0.8, 1.886)],
)
def test_leakage_check_values(celsius: float, volts: float, watts: float):
    clock = LOW if volts == 0.69375 else clock_of(volts)
    _, leakage, temperature = static_power(
        A100, LEAKAGE, jnp.asarray(clock), jnp.asarray(0.0), point(celsius)
    )
    assert leakage == pytest.approx(watts, rel=2e-3)
    assert temperature == celsius


@pytest.mark.parametrize("factor", [0.25, 1.0, 1.5])
def test_a_cold_board_draws_the_idle_table(factor: float):
    """Leakage is counted out of it: of 67.47 W at the top clock 30.39 V^4 are leakage,
    times its factor; the rest is idle power, whose scale is of the whole table."""
    c = constants(idle_scale=1.1, leakage=factor, leakage_efold=40.0)
    idle, leakage, _ = static_power(
        A100, c, jnp.asarray(TOP), jnp.asarray(0.0), point(40)
    )
    assert leakage == pytest.approx(factor * 30.39 * 0.89434**4, rel=1e-4)
    assert idle + leakage == pytest.approx(1.1 * 67.47, rel=2e-4)


def test_leakage_of_every_gpu_is_above_zero():
    """Cold, and at both ends of its clocks; and so is what is left of idle power."""
    file, power = read_corrections(), jax.jit(static_power)
    for name in gpu_names():
        card = read_gpu(name)
        clocks = jnp.array([card.values[f"sm_clock_{x}"] for x in ("min", "max")])
        c = file.serve(card)
        gpu = with_corrections(card.spec, c)
        where = OperatingPoint(
            clocks, *(x + 0 * clocks for x in (gpu.mem_clock, gpu.tdp, 30.0))
        )
        idle, leakage, _ = map(np.asarray, power(gpu, c, clocks, 0 * clocks, where))
        assert np.all(leakage > 0.01) and np.all(idle > 0), (name, leakage, idle)


def test_temperature_is_the_fixed_point():
    load, at_600_mhz = 120.0, 35.79 + 10.85 * 0.69375**2 * 0.6 + 30.39 * 0.69375**4
    idle, leakage, reached = static_power(
        A100, LEAKAGE, jnp.asarray(LOW), jnp.asarray(load), point()
    )
    ambient, resistance = (
        float(A100.ambient_temperature),
        float(A100.thermal_resistance),
    )
    watts, hot = 0.0, ambient
    for _ in range(100):
        hot = ambient + resistance * (load + at_600_mhz - 2.33 + watts)
        watts = 2.33 * math.exp((hot - 40) / 12.8)
    assert idle == pytest.approx(at_600_mhz - 2.33, rel=1e-5)
    assert leakage == pytest.approx(watts, rel=1e-4)  # about 19 W
    assert reached == pytest.approx(hot, rel=1e-5)
    drawn = load + float(idle) + float(leakage)
    assert reached == pytest.approx(ambient + resistance * drawn, rel=1e-5)


def test_a_given_temperature_wins_and_has_a_slope():
    def leakage(celsius: jax.Array) -> jax.Array:
        where = OperatingPoint(TOP, A100.mem_clock, 250.0, celsius)
        return static_power(A100, LEAKAGE, jnp.asarray(TOP), jnp.asarray(90.0), where)[
            1
        ]

    value, slope = jax.value_and_grad(leakage)(jnp.asarray(60.0))
    scale = 2.33 * TOP_RATIO**4
    assert value == pytest.approx(scale * math.exp(20 / 12.8), rel=1e-4)
    assert slope == pytest.approx(scale * math.exp(20 / 12.8) / 12.8, rel=1e-4)
    assert jax.grad(leakage)(jnp.asarray(jnp.nan)) == 0


# whole estimates ----------------------------------------------------------------


@pytest.fixture(scope="module")
def estimates(sample, phases):
    """Idle, a large GEMM and one under a cap of 180 W, each a phase."""
    idle = sample("activity", dram_active=0, fp32_active=0)
    product = sample("gemm", m=8192, n=8192, k=8192)
    workload = phases([idle], [product], [product])
    where = OperatingPoint(
        [TOP] * 3, [float(A100.mem_clock)] * 3, [1e4, 1e4, 180.0], [40.0] * 3
    )
    c = constants(**(vars(PRICES) | {"energy_tensor": 0.5 * pJ, "leakage": 0.008}))
    return estimator.estimate_once(workload, A100, where, c)


def test_a_program_that_does_nothing_draws_idle_power(estimates):
    parts = dict(zip(COMPONENTS, estimates.phases.components[0].tolist(), strict=True))
    tree = 0.2e-9 * 108 * TOP * TOP_RATIO**2  # SMs that hold its CTAs
    cold = 0.008 * 30.39 * 0.89434**4  # leakage at 40 C, of the idle table
    assert parts.pop("leakage") == pytest.approx(cold, rel=1e-3)
    assert parts.pop("idle") == pytest.approx(67.471 - cold, rel=1e-4)  # J in 1 s
    assert parts.pop("clock_tree") == pytest.approx(tree, rel=1e-3)
    assert parts.pop("launch") < 1e-4
    assert set(parts.values()) == {0.0}
    assert estimates.phases.temperature[0] == 40
    assert estimates.phases.power[0] == pytest.approx(67.471 + tree, rel=1e-3)


def test_components_add_up(estimates):
    got = estimates.phases
    totals = np.asarray(got.components).sum(-1)
    assert totals == pytest.approx(np.asarray(got.energy), rel=1e-12)
    assert estimates.energy == pytest.approx(totals.sum(), rel=1e-12)
    assert np.asarray(got.power * got.time) == pytest.approx(totals, rel=1e-12)
    kernels = np.asarray(estimates.kernels.energy)  # of one launch, beyond idle
    launched = np.asarray(got.components)[:, : len(LAUNCH_COMPONENTS)].sum(-1)
    order = np.asarray(estimates.kernels.phase)
    counted = np.asarray(estimates.kernels.count) * kernels
    assert np.bincount(order, counted, 3) == pytest.approx(launched, rel=1e-12)


def test_a_capped_phase_draws_the_cap_and_takes_longer(estimates):
    _, free, capped = estimates.phases.power.tolist()
    assert free > 181 and capped == pytest.approx(180 * 1.004, rel=1e-8)
    assert estimates.phases.sm_clock[2] < estimates.phases.sm_clock[1] == TOP
    assert estimates.phases.time[2] > 1.02 * estimates.phases.time[1]
    assert jnp.all(estimates.phases.feasible)


def test_the_hottest_board_stays_finite():
    hot = with_fields(read_gpu("a100-pcie-40gb"), {"thermal_resistance": 3.0}).spec
    _, leakage, reached = static_power(
        hot, LEAKAGE, jnp.asarray(TOP), jnp.asarray(400.0), point()
    )
    most = 2.33 * TOP_RATIO**4 * math.exp((95 - 40) / 12.8)
    assert leakage == pytest.approx(most, rel=1e-4)  # that of 95 C
    table = 67.471 - 2.33 * TOP_RATIO**4
    temperature = float(hot.ambient_temperature) + 3.0 * (400 + table + most)
    assert reached == pytest.approx(temperature, rel=1e-4)  # what it would reach
