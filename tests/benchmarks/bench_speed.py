"""Speed of compiled estimates in single width.

    pytest tests/benchmarks -o python_files='bench_*.py' -o addopts=''

Without the type-check hook (it slows tracing) and with all optimisations, which is how
the library compiles by default.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import GpuSpec, OperatingPoint, load_gpu
from diffenergy.records import as_float
from diffenergy.workload import (
    Listing,
    OpRows,
    PhaseColumns,
    Workload,
    assemble,
    build_workload,
    normalise_kernel,
)

TILED, CHOSEN, POINTS = 2**20, 2**17, 10_000
OPTIONS = estimator.compiler_options()


@pytest.fixture(autouse=True)
def single_width() -> Iterator[None]:
    with jax.enable_x64(False):
        yield


def gpu() -> GpuSpec:
    """An H100 in single width."""
    return jax.tree.map(as_float, load_gpu("h100-sxm"))


def products(count: int, tile: float) -> Workload:
    """`count` random bf16 matrix products in one phase; tile 0: chosen by the model."""
    rng = np.random.default_rng(0)

    def sizes() -> np.ndarray:
        return np.round(np.exp(rng.uniform(np.log(64), np.log(8192), count)))

    zero, one = np.zeros(count), np.ones(count)
    zeros = ("tile_k", "stages", "split_k", "warps", "threads", "zero_share")
    fields: dict[str, Any] = dict.fromkeys(zeros, zero) | {
        "batch": one, "m": sizes(), "n": sizes(), "k": sizes(), "count": one,
        "dtype": np.full(count, 2), "out_dtype": np.full(count, 2),
        "tensor_core": one > 0, "listed": one > 0, "tile_m": tile * one,
        "tile_n": tile * one, "slices": one,
    }  # fmt: skip
    for name in ("weights", "layout", "family", "framework"):
        fields[name] = np.full(count, "b" * (name == "weights"), dtype=object)
    rows = np.arange(count)
    part = OpRows("gemm", fields, rows, np.zeros(count, int))
    return build_workload([part], PhaseColumns.single(1))


def model() -> Workload:
    """A decoder's prefill: 32 layers in ten rows."""
    tokens, hidden, inner, layers = 512, 4096, 14336, 32
    matrices = (6144, hidden), (hidden, hidden), (2 * inner, hidden), (hidden, inner)
    rows = [
        dict(op="gather", rows=tokens, cols=hidden, dtype="bf16"),
        dict(op="rmsnorm", rows=tokens, cols=hidden, dtype="bf16", count=2 * layers),
        *(
            dict(op="gemm", m=tokens, n=n, k=k, dtype="bf16", count=layers)
            for n, k in matrices
        ),
        dict(
            op="context_attention", batch=1, q_len=tokens, num_heads=32, num_kv_heads=8,
            head_dim=128, dtype="bf16", count=layers,
        ),
        dict(
            op="elementwise", fn="silu_mul", elements=tokens * inner, dtype="bf16",
            count=layers,
        ),
        dict(op="gemm", m=1, n=128_256, k=hidden, dtype="bf16"),
    ]  # fmt: skip
    kernels = tuple(normalise_kernel(row, "benchmark") for row in rows)
    return assemble([Listing("model", kernels=kernels, dispatch="graph")])


def energy(c: Corrections, work: Workload, gpu: GpuSpec) -> Array:
    """Total energy without a power limit."""
    point = OperatingPoint(gpu.sm_clock_max, gpu.mem_clock, 1e12, 60.0)
    return estimator.estimate_workload(work, gpu, point, c).energy


def run(benchmark: Any, function: Callable, *arguments: Any) -> None:
    """Time the compiled call."""
    compiled = jax.jit(function, compiler_options=OPTIONS)
    jax.block_until_ready(compiled(*arguments))
    benchmark.pedantic(
        lambda: jax.block_until_ready(compiled(*arguments)), rounds=5, warmup_rounds=1
    )


CASES = [(TILED, 128.0), (CHOSEN, 0.0)]
IDS = ["tiles given", "tiles chosen"]


@pytest.mark.parametrize(("count", "tile"), CASES, ids=IDS)
def test_forward(benchmark, count: int, tile: float):
    run(benchmark, energy, Corrections(), products(count, tile), gpu())


@pytest.mark.parametrize(("count", "tile"), CASES, ids=IDS)
def test_gradient(benchmark, count: int, tile: float):
    value_and_grad = jax.value_and_grad(energy)
    run(benchmark, value_and_grad, Corrections(), products(count, tile), gpu())


@pytest.mark.parametrize("cap", [1e9, 450.0], ids=["free", "capped"])
def test_operating_points(benchmark, cap: float):
    work, spec, c = model(), gpu(), Corrections()

    def at(clock: Array) -> Array:
        point = OperatingPoint(clock, spec.mem_clock, cap, jnp.nan)
        return estimator.estimate_workload(work, spec, point, c).energy

    clocks = jnp.linspace(0.5, 1.0, POINTS) * spec.sm_clock_max
    run(benchmark, functools.partial(jax.vmap(at)), clocks)
