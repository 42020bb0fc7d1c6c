"""What every kernel class owes: found by itself, finite, exact in batches, linear."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import estimator, kernels
from diffenergy.corrections import Corrections
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.kernels import REQUIRED
from diffenergy.records import as_float
from diffenergy.workload import Listing, Workload, assemble

DTYPES = ("bf16", "fp32", "fp8")


@pytest.fixture(scope="module")
def rows(sample) -> list[dict[str, Any]]:
    """Rows of every op: its dtypes, a given tile, its smallest shape."""
    result = []
    for name, (op, _) in kernels.ops().items():
        fields = {field.name: field for field in op.fields}
        # CUDA cores' tiles are of their default type alone
        of_any_type = "dtype" in fields and fields["dtype"].default != "fp32"
        types = [{"dtype": dtype} for dtype in DTYPES] if of_any_type else [{}]
        result += [sample(name, **kind) for kind in types]
        result.append(sample(name, tile_m=64, tile_n=64, zero_share=0.3))
        sizes = {
            field.name: max(1, field.minimum)
            for field in op.fields
            if field.kind == "size" and field.default is REQUIRED
        }
        result.append(sample(name, **sizes | {"num_kv_heads": 1, "head_dim": 64}))
    return result


def workload(rows: list[dict[str, Any]], repeat: int = 1) -> Workload:
    """One phase a row; `repeat` passes of it."""
    listings = [
        Listing(
            f"row {i}",
            kernels=({**row, "count": repeat},),
            passes=repeat,
            dispatch="graph",
        )
        for i, row in enumerate(rows)
    ]
    return assemble(listings)


def run(work: Workload) -> estimator.Estimate:
    """Estimate at full clock without a limit, 50 C."""
    gpu = jax.tree.map(as_float, load_gpu("a10"))  # of the width in force
    point = OperatingPoint(gpu.sm_clock_max, gpu.mem_clock, 1e9, 50.0)
    return estimator.estimate_once(work, gpu, point, Corrections())


@pytest.fixture(scope="module")
def results(rows) -> estimator.Estimate:
    return run(workload(rows))


def test_finite_and_positive(results):
    for leaf in jax.tree.leaves(results):
        assert jnp.all(jnp.isfinite(leaf))
    got = results.phases
    assert jnp.all(got.time > 0) and jnp.all(got.feasible)
    assert jnp.all(got.components >= 0)
    idle_alone = got.components[:, -3] / got.time
    assert jnp.all(got.power >= idle_alone)
    used = results.kernels.utilization
    assert jnp.all((used >= 0) & (used <= 1))


@pytest.mark.slow
def test_single_width_is_close(rows, results):
    with jax.enable_x64(False):
        single = run(workload(rows))
        assert single.time.dtype == jnp.float32
    for name in ("time", "energy", "power", "sm_clock"):
        wide = np.asarray(getattr(results.phases, name))
        got = np.asarray(getattr(single.phases, name))
        assert got == pytest.approx(wide, rel=1e-3), name


def test_other_rows_do_not_matter(rows, results):
    order = np.random.default_rng(3).permutation(len(rows))
    shuffled = run(workload([rows[i] for i in order]))
    for name in ("time", "energy"):
        alone = np.asarray(getattr(results.phases, name))[order]
        got = np.asarray(getattr(shuffled.phases, name))
        assert got == pytest.approx(alone, rel=1e-9), name


def test_counts_scale_linearly(rows, results):
    three = run(workload(rows, repeat=3))
    for name in ("time", "energy"):
        once = np.asarray(getattr(results.phases, name))
        got = np.asarray(getattr(three.phases, name))
        assert got == pytest.approx(3 * once, rel=1e-9), name
