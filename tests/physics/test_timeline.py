"""Waves, resident CTAs, memory, launch: closed forms and published check values."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from diffenergy.compiling import compiler_options
from diffenergy.corrections import Corrections
from diffenergy.hardware import load_gpu
from diffenergy.kernels import gemm, stream
from diffenergy.physics import Demand, make_demand
from diffenergy.physics import _timeline as timeline
from diffenergy.units import GHz, MHz, us


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


compiled = functools.partial(jax.jit, compiler_options=compiler_options(once=True))
cta_cycles, sm_cycles, timing = map(
    compiled, (timeline.cta_cycles, timeline.sm_cycles, timeline.timing)
)
product_demand, stream_demand = map(compiled, (gemm.demand, stream.demand))

A100 = load_gpu("a100-pcie-40gb")  # 108 SMs, 1.5552 TB/s, 1.41 GHz
SMS, CLOCK, BANDWIDTH = 108, 1.41 * GHz, 1.5552e12
IDEAL = constants(
    tensor_efficiency=1.0, operand_half_tile=0.0, fma_efficiency=1.0, misalignment=0.0,
    sharpness=300.0, sharpness_stream=300.0, sm_feed=1e9, tile_load_scale=1e9,
    l2_efficiency=1.0, dram_efficiency=1.0, stream_feed=1e9, launch_seconds=0.0,
    launch_cycles=0.0, gemm_cycles=0.0, own_cycles=0.0, step_cycles=0.0,
    store_exposed=0.0,
)  # fmt: skip
"""No losses: every unit at its data-sheet rate, perfect overlap, free launches."""


def seconds(demand: Demand, c: Corrections, clock: float = CLOCK) -> np.ndarray:
    """Time of each candidate, s."""
    full = jnp.full(demand.ctas.shape, clock)
    mem_clock = jnp.broadcast_to(A100.mem_clock, full.shape)
    return np.asarray(timing(demand, A100, c, full, mem_clock).time)


def product(**options: Any) -> gemm.Gemm:
    """One bf16 matrix product with a given tile."""
    fields: dict[str, Any] = dict.fromkeys(gemm.Gemm.__dataclass_fields__, [0.0]) | {
        "batch": [1.0],
        "dtype": [2],
        "out_dtype": [2],
        "tensor_core": [1.0],
    }
    columns = fields | {name: [x] for name, x in options.items()}
    return gemm.Gemm(**{**columns, "fixed_tile": True})


def copies(size: float, **options: float) -> stream.Stream:
    """A copy of `size` bytes: read and written once."""
    fields: dict[str, Any] = dict.fromkeys(stream.Stream.__dataclass_fields__, 0.0)
    fields["makes"] = 2  # bf16
    fields |= {"read": size, "write": size, "threads": 256.0} | options
    return stream.Stream(**{name: [x] for name, x in fields.items()})


# published GEMM geometry ---------------------------------------------------------

BATCHED = product(
    batch=128, m=1024, n=1024, k=128,
    tile_m=64, tile_n=256, tile_k=32, stages=4, threads=128,
)  # fmt: skip
SQUARE = product(
    m=4096, n=4096, k=4096,
    tile_m=128, tile_n=128, tile_k=32, stages=4, threads=128,
)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "ctas", "waves", "cycles"),
    [(BATCHED, 8192, 38, 155_648), (SQUARE, 1024, 5, 655_360)],
)
def test_published_waves(shape: gemm.Gemm, ctas: int, waves: int, cycles: int):
    demand = product_demand(shape, A100, IDEAL)
    assert demand.ctas[0, 0] == ctas and demand.resident[0, 0] == 2
    busy = demand.tensor / demand.ctas / 2048  # FLOP/cycle/SM
    got, count = sm_cycles(demand, A100, busy, jnp.zeros_like(busy))
    assert count[0, 0] == waves
    assert got[0, 0] == pytest.approx(cycles, rel=1e-12)


def test_a_gemm_that_fills_the_machine_runs_at_peak():
    # 8 tiles of 256x128 for each SM: 2 m n k = 8 x 108 x 2 x 256 x 128 x 8192
    shape = product(m=256 * 108, n=1024, k=8192, tile_m=256, tile_n=128)
    flop = 2 * 256 * 108 * 1024 * 8192
    got = seconds(product_demand(shape, A100, IDEAL), IDEAL)
    peak = flop / (2048 * SMS * CLOCK)
    # what is left over: the last wave's part of writing 56.6 MB of output
    assert peak < got[0, 0] < 1.02 * peak
    half = constants(**(vars(IDEAL) | {"tensor_efficiency": 0.5}))
    got = seconds(product_demand(shape, A100, half), half)
    assert 2 * peak < got[0, 0] < 2.02 * peak


# units, CTAs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "busy", "path"),
    [
        (dict(tensor=2048 * 300.0, tensor_peak=2048.0, smem=128 * 400.0, sharpness=2.0),
         500, 0),  # 3, 4, 5
        (dict(tensor=1e6, tensor_peak=2048.0, tensor_efficiency=0.5, fma=1e5,
              fma_peak=128.0, fma_efficiency=0.8, ctas=4.0),
         (1e6 / 1024 + 1e5 / 102.4) / 4, 0),
        (dict(path_cycles=700.0, path_seconds=1e-6), 0, 1700),
    ],
)  # fmt: skip
def test_cycles_of_a_cta(fields: dict[str, Any], busy: float, path: float):
    got = cta_cycles(make_demand(**fields), A100, jnp.asarray(1 * GHz))
    assert list(map(float, got)) == pytest.approx([busy, path])


EQUAL, TAIL = 1080 / (1080 + 108), 1 - 0.5**4
WAVES: list[tuple[dict[str, float], float, float, float]] = [
    # one launch; cycles of the path of a CTA (1,000 of work); expected cycles, waves
    ({"ctas": 1}, 0, 1000, 1),
    ({"ctas": 108}, 0, 1000, 1),
    ({"ctas": 109}, 0, 2000, 2),
    ({"ctas": 216, "resident": 2}, 0, 2000, 1),
    # one SM runs a third CTA after its first two
    ({"ctas": 217, "resident": 2}, 0, 3000, 2),
    ({"ctas": 1080, "resident": 4}, 0, 10_000, 3),  # 4 + 4 + 2
    # 1.5 waves: a share of the part-filled one is paid
    ({"ctas": 162, "quantization": 0.0}, 0, 1500, 2),
    ({"ctas": 162, "quantization": 0.3}, 0, 1650, 2),
    # neighbours hide the start, and a path nine times the work
    ({"ctas": 432, "own_cycles": 400.0}, 0, 4 * 1400, 4),
    ({"ctas": 432, "resident": 4, "own_cycles": 400.0}, 0, 4000 + 100, 1),
    ({"ctas": 108, "sharpness": 3.0}, 9000, (1 + 729) ** (1 / 3) * 1000, 1),
    ({"ctas": 432, "resident": 4, "sharpness": 3.0}, 9000,
     (64 + 729) ** (1 / 3) * 1000, 1),
    # unequal CTAs end in a tail; never shorter than the longest
    ({"ctas": 1080, "longest": 2.0, "tail": 0.4}, 0,
     10_000 + 0.4 * TAIL * 2000 * EQUAL, 10),
    ({"ctas": 10, "longest": 5.0}, 0, 5000, 1),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "path", "cycles", "waves"), WAVES)
def test_cycles_of_an_sm(fields, path: float, cycles: float, waves: float):
    demand = make_demand(**fields)
    got = sm_cycles(demand, A100, jnp.asarray(1000.0), jnp.asarray(float(path)))
    assert list(map(float, got)) == pytest.approx([cycles, waves])


# memory, store, launch ----------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_dram_and_its_clock(share: float):
    demand, clock = make_demand(dram=1e9, ctas=1e6), jnp.asarray(CLOCK)
    got = timing(demand, A100, IDEAL, clock, share * jnp.asarray(A100.mem_clock))
    assert got.time == pytest.approx(1e9 / share / BANDWIDTH, rel=1e-9)


LAUNCH = {"launch_seconds": 2 * us, "launch_cycles": 1500.0}
FLOW = 1e9 / (10 * 54 * CLOCK)
"""s of 1e9 B by 54 SMs, 10 B/cycle each: 761 GB/s, p-norm of 3 with 1,555 GB/s."""
STORE: dict[str, Any] = {"ctas": 432, "resident": 1, "store_l2": 3840 * 1e4}
"""Four waves: the last store stands alone, of the others `store_exposed`."""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (dict(dram=1e9, ctas=54, flow=10.0),
         (FLOW**3 + (1e9 / BANDWIDTH) ** 3) ** (1 / 3)),
        (dict(dram=1e9, ctas=54, flow=10 * CLOCK**-0.5, flow_rise=0.5),
         (FLOW**3 + (1e9 / BANDWIDTH) ** 3) ** (1 / 3)),
        (dict(l2=3840 * 1e5, l2_sharing=2.0, sharpness_memory=300.0), 5e4 / CLOCK),
        (STORE | {"store_exposed": 1.0}, 1e4 / CLOCK),
        (STORE | {"store_exposed": 0.0}, 0.25e4 / CLOCK),
        (STORE | {"store_exposed": 0.6}, 0.7e4 / CLOCK),
        (dict(launches=2.0, fixed_cycles=600.0, fixed_seconds=1 * us),
         600 / CLOCK + 1 * us),
    ],
)  # fmt: skip
def test_seconds_of_memory_and_launches(fields: dict[str, Any], expected: float):
    demand = make_demand(**fields)
    assert seconds(demand, IDEAL) == pytest.approx(expected, rel=1e-9)
    priced = constants(**(vars(IDEAL) | LAUNCH))
    paid = fields.get("launches", 1.0) * (2 * us + 1500 / CLOCK)
    assert seconds(demand, priced) == pytest.approx(expected + paid, rel=1e-9)


# streams ------------------------------------------------------------------------

SERIES = {510: 825e9, 705: 983e9, 900: 1152e9, 1410: 1270e9}
"""Published rates of >= 1 GB copies on an A100 by SM clock (MHz), B/s."""


@pytest.mark.parametrize(("clock", "rate"), SERIES.items())
def test_published_copy_rates(clock: int, rate: float):
    c = constants(stream_feed=18.4, dram_efficiency=0.92, sharpness_stream=2.0)
    got = seconds(stream_demand(copies(2e9), A100, c), c, clock * MHz)
    assert 4e9 / got[0, 0] == pytest.approx(rate, rel=0.04)


def test_a_small_copy_stays_in_l2():
    def dram(size: float, **options: float) -> Array:
        return stream_demand(copies(size, **options), A100, IDEAL).dram[0, 0]

    # the usable share of 41.9 MB: half of a producer's output is left at that size
    c = constants(l2_producer_share=0.4, l2_sharpness=2.5)
    half = stream_demand(copies(0.2 * 40 * 2**20), A100, c).dram[0, 0]
    assert half == pytest.approx(0.2 * 40 * 2**20, rel=1e-6)
    assert dram(1e5) < 0.01 * 2e5
    assert dram(1e5, cold=1.0) == 2e5
    assert dram(1e9) == pytest.approx(2e9, rel=1e-3)
