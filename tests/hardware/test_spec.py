"""Voltage and idle power: check values, measured tables, shape, gradients."""

import dataclasses
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from diffenergy.hardware import (
    GpuSpec,
    OperatingPoint,
    gpu_names,
    idle_power,
    load_gpu,
    read_gpu,
    relative_voltage,
    voltage,
    with_fields,
)
from diffenergy.units import GHz, MHz

# Clock (GHz), voltage (V) and idle power (W) of the A100-PCIe-40GB by hand from its
# constants; the table reads 67.34 W at 1.41 GHz.
A100 = [
    (0.51, 0.69375, 45.49), (0.96, 0.69477, 47.90), (1.02, 0.69941, 48.48),
    (1.20, 0.75991, 53.44), (1.41, 0.89434, 67.47),
]  # fmt: skip


@pytest.mark.parametrize(("clock", "volts", "watts"), A100)
def test_a100_check_values(clock: float, volts: float, watts: float):
    gpu = load_gpu("a100-pcie-40gb")
    assert voltage(gpu, jnp.asarray(clock * GHz)) == pytest.approx(volts, abs=6e-6)
    assert idle_power(gpu, jnp.asarray(clock * GHz)) == pytest.approx(watts, abs=6e-3)


@pytest.mark.parametrize("name", ["h100-sxm", "h100-pcie", "gh200", "h200-sxm"])
def test_hopper_reaches_the_assumed_top_voltage(name: str):
    volts = voltage(load_gpu(name), jnp.asarray(1.86 * GHz))
    assert volts == pytest.approx(1.035, abs=2e-3)


@pytest.mark.parametrize(
    ("name", "clock", "ratio"),
    [
        ("v100-pcie-16gb", 1.38, 1.22), ("quadro-rtx-8000", 1.305, 1.19),
        ("quadro-rtx-8000", 1.605, 1.39), ("quadro-rtx-8000", 1.71, 1.48),
        ("rtx-3080-ti", 1.86, 1.24), ("titan-x-maxwell", 1.164, 1.14),
        ("titan-xp", 1.911, 1.42), ("a100-sxm-80gb", 1.41, 1.235),
        ("b200-sxm", 1.965, 1.25), ("rtx-4090", 3.105, 1.40),
    ],
)  # fmt: skip
def test_relative_voltage(name: str, clock: float, ratio: float):
    got = relative_voltage(load_gpu(name), jnp.asarray(clock * GHz))
    assert got == pytest.approx(ratio, abs=0.015)


def test_memory_clock_left_alone_raises_the_voltage_above_the_knee():
    gpu, flat = load_gpu("rtx-3080-ti"), load_gpu("a100-pcie-40gb")
    for clock, more in ((1.86 * GHz, 0.22 * (1.86 - 1.555)), (1.2 * GHz, 0.0)):
        at = jnp.asarray(clock)
        assert voltage(gpu, at, 0.0) - voltage(gpu, at) == pytest.approx(more, abs=1e-4)
        assert voltage(flat, at, 0.0) == voltage(flat, at)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "table", "lowest", "highest", "limit"),
    [
        ("a100-pcie-40gb", "a100_pcie_40gb", 210, 1410, 0.4),
        ("a100-sxm-80gb", "a100_sxm_80gb", 210, 1410, 0.4),
        # The 345 MHz row reads 117 W; above 1860 MHz the idle clock no longer rises.
        ("h100-sxm", "h100_sxm_80gb", 420, 1860, 1.2),
    ],
)
def test_idle_tables(
    shared: Path, name: str, table: str, lowest: float, highest: float, limit: float
):
    rows = pd.read_csv(shared / "data" / "energaizer" / f"{table}_dvfs.csv")
    rows = rows[rows.sm_clock_mhz.between(lowest, highest)]
    clock = jnp.asarray(rows.sm_clock_mhz.to_numpy() * MHz)
    error = np.asarray(idle_power(load_gpu(name), clock)) - rows.idle_power_w
    assert np.sqrt(np.mean(error**2)) < limit


@pytest.mark.shared_data
@pytest.mark.parametrize("table", ["a100_pcie_40gb", "a100_sxm_80gb"])
def test_voltage_tables(shared: Path, table: str):
    rows = pd.read_csv(shared / "data" / "energaizer" / f"{table}_dvfs.csv")
    clock = jnp.asarray(rows.sm_clock_mhz.to_numpy() * MHz)
    got = voltage(load_gpu(table.replace("_", "-")), clock)
    error = np.asarray(got) - rows.voltage_mv / 1000
    assert np.sqrt(np.mean(error**2)) < 2.5e-3


@pytest.mark.parametrize("name", gpu_names())
def test_voltage_and_idle_rise_with_the_clock(name: str):
    gpu = load_gpu(name)
    clock = jnp.linspace(float(gpu.sm_clock_min), float(gpu.sm_clock_max), 200)
    volts, watts = voltage(gpu, clock), idle_power(gpu, clock)
    assert jnp.all(jnp.diff(volts) >= 0) and jnp.all(jnp.diff(watts) > 0)
    assert volts[0] == pytest.approx(float(gpu.vf_floor_voltage), rel=1e-3)
    assert 1 < volts[-1] / volts[0] < 1.6
    assert 0.1 < watts[-1] / gpu.tdp < 0.55


def test_gradients_agree_with_differences():
    gpu = load_gpu("h100-sxm")
    for clock in (0.6 * GHz, 1.11 * GHz, 1.8 * GHz):
        slope = jax.grad(lambda f: idle_power(gpu, f))(jnp.asarray(clock))
        step = 1 * MHz
        up, down = (idle_power(gpu, jnp.asarray(clock + s)) for s in (step, -step))
        assert slope == pytest.approx(float((up - down) / (2 * step)), rel=1e-3)


def test_gradient_reaches_every_idle_and_voltage_field():
    gpu = load_gpu("a100-pcie-40gb")
    slopes = jax.grad(lambda g: idle_power(g, jnp.asarray(1.3 * GHz)))(gpu)
    touched = {
        field.name
        for field in dataclasses.fields(GpuSpec)
        if any(jnp.any(x != 0) for x in jax.tree.leaves(getattr(slopes, field.name)))
    }
    assert touched == {
        "vf_floor_voltage",
        "vf_knee_clock",
        "vf_slope",
        "vf_curvature",
        "idle_constant",
        "idle_clock",
        "idle_leakage",
    }


def test_gpus_stack_into_one_batch():
    specs = [load_gpu(name) for name in gpu_names()]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *specs)
    watts = jax.vmap(lambda gpu: idle_power(gpu, gpu.sm_clock_max))(batch)
    alone = idle_power(specs[0], specs[0].sm_clock_max)
    assert watts.shape == (len(specs),) and watts[0] == alone


def test_points_take_what_is_not_known():
    """Tracers, no limit, and NaN: not given."""
    traced = jax.vmap(jax.grad(lambda x: OperatingPoint(x, 1e9, x).sm_clock))
    assert (traced(jnp.array([1.0, 2.0])) == 1).all()
    free = OperatingPoint([math.nan, 1e9], [1e9, math.nan], [math.inf, 1e6])
    assert np.isnan(free.sm_clock[0])


def test_a_card_first_used_inside_a_jit_keeps_no_tracer():
    card = with_fields(read_gpu("a10"), {"tdp": 149.0})  # nobody has asked for it yet
    assert jax.jit(lambda x: x * card.spec.tdp)(2.0) == 298
    assert float(card.spec.tdp) == 149
