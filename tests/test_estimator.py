"""`estimate`: one trace for all numbers, maps equal loops, phases and parts add up."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from diffenergy.compiling import _programs, compiler_options
from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.estimator import estimate_once, estimate_workload
from diffenergy.hardware import GpuSpec, OperatingPoint, load_gpu
from diffenergy.records import as_float
from diffenergy.units import GHz
from diffenergy.workload import Workload


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


A100, H100 = load_gpu("a100-sxm-80gb"), load_gpu("h100-sxm")
C = Corrections()
ONCE = compiler_options(once=True)


def point(
    clock: Any = 1.2 * GHz, cap: Any = 1e4, temperature: Any = 50.0
) -> OperatingPoint:
    """Operating point of the A100."""
    return OperatingPoint(clock, A100.mem_clock, cap, temperature)


@pytest.fixture(scope="module")
def rows(sample) -> list[dict[str, Any]]:
    return [
        sample("gemm", m=3000, n=4096, k=1024, tile_m=128, tile_n=128),
        sample("gemm", m=2000, n=1000, k=1024, tile_m=128, tile_n=64, count=3),
        sample("rmsnorm", rows=3000, cols=4096),
    ]


@pytest.fixture(scope="module")
def workload(rows, phases) -> Workload:
    return phases(rows)


def test_numbers_never_recompile(rows, phases, workload):
    estimate_workload(workload, A100, point(), C)
    before = len(_programs._LOADED)

    def changed(**sizes: Any) -> Workload:
        return phases([row | sizes if "m" in row else row for row in rows])

    hot = eqx.tree_at(lambda g: g.num_sms, A100, as_float(99.0))
    for arguments in (
        (workload, A100, point(clock=int(1e9), cap=300)),
        (workload, A100, point(clock=np.float32(1e9), temperature=float("nan"))),
        (workload, H100, point()), (workload, hot, point()),
        (changed(tile_m=256), A100, point()), (changed(m=77), A100, point()),
    ):  # fmt: skip
        estimate_workload(*arguments, C)
        estimate_workload(*arguments, constants(tensor_efficiency=np.float64(0.7)))
    assert len(_programs._LOADED) == before


def test_clocks_and_tiles_do_change_the_answer(rows, phases, workload):
    base = estimate_once(workload, A100, point(), C)
    slow = estimate_once(workload, A100, point(clock=1.0 * GHz), C)
    small = phases([{**row, "tile_m": 64} if "tile_m" in row else row for row in rows])
    tiled = estimate_once(small, A100, point(), C)
    assert slow.time > base.time and tiled.time != base.time
    assert float(slow.sm_clock) == pytest.approx(1.0 * GHz, rel=1e-12)
    kernels = base.kernels
    assert base.time == pytest.approx(float(jnp.sum(kernels.time * kernels.count)))
    parts = np.asarray(base.phases.components).sum()
    assert base.energy == pytest.approx(parts, rel=1e-12)
    assert base.power == pytest.approx(float(base.energy / base.time))
    above = estimate_once(workload, A100, point(clock=9 * GHz), C)
    assert above.sm_clock == A100.sm_clock_max
    below = estimate_once(workload, A100, point(cap=40.0), C).phases  # below idle
    assert not below.feasible[0]
    assert below.sm_clock[0] == pytest.approx(float(A100.sm_clock_min))


@pytest.mark.slow
def test_padding_does_not_matter(rows, phases):
    # three products are padded to four rows; the fourth here has count 0
    last = {**rows[0], "m": 64, "count": 0}
    three = estimate_once(phases([*rows[:2], rows[1], rows[2]]), A100, point(), C)
    four = estimate_once(phases([*rows[:2], rows[1], last, rows[2]]), A100, point(), C)
    assert three.time == pytest.approx(float(four.time), rel=1e-12)
    assert three.energy == pytest.approx(float(four.energy), rel=1e-12)


@pytest.mark.slow
def test_map_over_points(workload):
    def at(clock: Array) -> Array:
        result = estimate_workload(workload, A100, point(clock, cap=250.0), C)
        return jnp.stack([result.time, result.energy])

    clocks = jnp.linspace(0.6, 1.41, 5) * GHz
    mapped = jax.jit(jax.vmap(at), compiler_options=ONCE)(clocks)
    looped = [
        estimate_once(workload, A100, point(clock, cap=250.0), C) for clock in clocks
    ]
    expected = np.stack([(x.time, x.energy) for x in looped])
    assert np.asarray(mapped) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_a_generation_is_prefill_and_decode(rows, phases):
    prefill, decode = rows, [{**row, "m": 8} if "m" in row else row for row in rows]
    both = estimate_once(phases(prefill, decode), A100, point(), C)
    first = estimate_once(phases(prefill), A100, point(), C)
    second = estimate_once(phases(decode), A100, point(), C)
    assert both.phases.time[0] == pytest.approx(float(first.time))
    assert both.phases.time[1] == pytest.approx(float(second.time))
    assert both.time == pytest.approx(float(first.time + second.time))
    assert both.energy == pytest.approx(float(first.energy + second.energy))


@pytest.mark.slow
def test_each_phase_has_a_clock_and_a_cap(rows, phases):
    # one binary for both: the second phase is capped, the first is not
    where = OperatingPoint(
        [1.41e9] * 2, [float(A100.mem_clock)] * 2, [1e4, 200.0], [50.0] * 2
    )
    got = estimate_once(phases(rows, rows), A100, where, C).phases
    assert got.sm_clock[0] == 1.41 * GHz and got.sm_clock[1] < 1.4 * GHz
    assert got.power[1] == pytest.approx(200 * float(A100.cap_fraction), rel=1e-8)
    assert got.time[1] > got.time[0]


@pytest.mark.slow
def test_the_callers_tile_wins(sample, phases):
    sizes = dict(m=4096, n=4096, k=4096)
    thin = sample("gemm", **sizes, tile_m=16, tile_n=64)
    wide = sample("gemm", **sizes, tile_m=256, tile_n=128)
    other = sample("gemm", **sizes, tile_m=128, tile_n=256)
    square = sample("gemm", **sizes, tile_m=128, tile_n=128)
    each = phases([thin], [wide], [other], [square])
    times = estimate_once(each, A100, point(), C).phases.time
    chosen = estimate_once(phases([sample("gemm", **sizes)]), A100, point(), C).time
    assert times[0] > 1.5 * times[1]
    assert times[1] == pytest.approx(float(times[2]))  # a square product, turned
    assert times[3] != pytest.approx(float(times[1]), rel=0.01)
    # between the best two
    assert times.min() * (1 - 1e-6) <= chosen < times[3]


def test_a_split_that_no_library_has_takes_no_share(sample, phases):
    """Sums over K of 8-bit products are never split, however much faster that were."""
    sizes = dict(m=128, n=256, k=32_768)
    rows = [sample("gemm", **sizes, dtype=dtype) for dtype in ("fp8", "bf16")]
    each = phases(*([row | x] for row in rows for x in ({}, {"split_k": 1})))
    time = estimate_once(each, H100, point(), C).phases.time
    assert time[0] == pytest.approx(float(time[1]), rel=1e-6)
    assert time[2] < 0.9 * time[3]


def test_a_locked_memory_clock_and_the_highest_applied_clock(workload):
    gpu, c = load_gpu("rtx-3080-ti"), Corrections()

    def run(clock: float, locked: float) -> estimator.Estimate:
        where = OperatingPoint(clock, gpu.mem_clock, 1e4, 50.0, locked)
        return estimator.estimate_once(workload, gpu, where, c)

    free, locked, above = run(1.86e9, 0.0), run(1.86e9, 1.0), run(2.1e9, 1.0)
    assert free.time == locked.time
    assert locked.energy < 0.97 * free.energy
    assert float(above.sm_clock) == pytest.approx(0.886 * 2.1e9)


@pytest.mark.slow
def test_gradient_by_the_whole_gpu_and_the_clock(workload):
    def time(gpu: GpuSpec, clock: Array) -> Array:
        return estimate_workload(workload, gpu, point(clock), C).time

    top = A100.sm_clock_max
    both = jax.value_and_grad(time, argnums=(0, 1))
    compiled = jax.jit(both, compiler_options=ONCE)
    value, slopes = compiled(A100, top)
    gpu, clock = slopes
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert gpu.dram_bandwidth < 0 and gpu.num_sms < 0
    assert gpu.tensor_flop_per_cycle_bf16 < 0 and gpu.tdp == 0

    def moved(share: float) -> float:
        gpu = eqx.tree_at(
            lambda g: g.dram_bandwidth, A100, replace_fn=lambda x: x * share
        )
        return float(estimate_once(workload, gpu, point(top), C).time)

    by_difference = (moved(1 + 1e-4) - moved(1 - 1e-4)) / 2e-4
    elasticity = float(gpu.dram_bandwidth * A100.dram_bandwidth / value)
    assert elasticity == pytest.approx(float(by_difference / value), rel=1e-5)
    # the highest clock is the default request: the slope below it, not half of it
    below = estimate_once(workload, A100, point(top * (1 - 1e-6)), C).time
    elasticity = float((value - below) / value / 1e-6)
    assert -1 < elasticity < -0.3
    assert clock * top / value == pytest.approx(elasticity, rel=1e-3)
