"""The kernel-level DVFS study: what no fit has seen, from a fit of Figures 3 to 5."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.studies.dvfs_study import (
    campaigns,
    fitted,
    joined,
    scores,
    shapes,
    transfer,
)
from diffenergy.fitting._clock_law import (
    Cells,
    ClockLaw,
    cells,
    kernel_demand,
    law_corrections,
    points,
)
from diffenergy.hardware import load_gpu

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def study(shared: Path) -> Any:
    """Published tables."""
    return campaigns.read_study(shared / "data")


def test_bookkeeping(study: Any):
    time, energy = scores.bookkeeping(study)
    assert time == pytest.approx(0.0, abs=0.01)
    assert energy == pytest.approx(-15.64, abs=0.01)


def test_missing_data_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="holds no `kernel_dvfs`"):
        campaigns.read_study(tmp_path)
    with pytest.raises(ValueError, match="holds no `fig7_data_parallel.csv`"):
        transfer.published(tmp_path)


@pytest.fixture(scope="module")
def plain_law(study: Any) -> Any:
    """Kernels of the study at their priors, without a fit."""
    gpu = load_gpu(fitted.GPU)
    k = campaigns.kernel_priors(study, gpu)
    energy = k.energy_cycle * k.cycles + k.energy_byte * k.dram
    numbers = (k.cycles, k.dram, energy, np.full(46, 33.0), np.full(46, 6.0))
    return ClockLaw(
        gpu,
        law_corrections(fitted.prior_corrections(gpu)),
        kernel_demand(gpu, *map(jnp.asarray, numbers)),
        jnp.asarray(0.9),
        jnp.asarray(fitted.POWER_CAP),
    )


def test_extremes_as_rows():
    """Behind the readings at settings, with errors of their own; by one draw of no
    error a kernel's extremes are those of its cells."""
    nan = np.nan
    extremes = joined.Extremes(
        np.array([[1.0, nan]]), np.array([[2.0, 4.0]]), 0.03, 0.05,
        least=np.array([[5.0, 6.0]]), greatest=np.array([[7.0, 8.0]]),
        least_sd=np.array([[0.1, 0.2]]), greatest_sd=np.array([[0.3, 0.4]]),
    )  # fmt: skip
    values, sd = extremes.rows()
    assert values[0, [0, *range(2, 8)]] == pytest.approx(np.log([1, 2, *range(4, 9)]))
    assert np.isnan(values[0, 1]) and extremes.energy_noise == 0
    assert sd.tolist() == [[0.03, 0.03, 0.05, 0.05, 0.1, 0.2, 0.3, 0.4]]
    cells = Cells(*map(jnp.asarray, ([1.0, 2.0], [4.0, 3.0], [1.0, 1.0])))
    result = joined.log_extremes(cells, jnp.zeros((1, 2)))
    assert np.asarray(result) == pytest.approx(np.log([1, 2, 4, 3, 1, 3, 2, 4]))
    noise = jnp.asarray([[0.5, 0.0], [0.0, 0.5]])
    result = np.asarray(joined.log_extremes(cells, noise))
    assert result[5] == pytest.approx((np.log(3) + np.log(4)) / 2)
    assert result[7] == pytest.approx((np.log(4) + 0.5 + np.log(3) + 0.5) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [pytest.param(1e4, marks=pytest.mark.slow), 250.0])
def test_a_pass_of_one_kernel_is_its_launches(plain_law: Any, cap: float):
    """Five launches of the third kernel: five times its time and energy, and its
    clock, with a power limit or without; three kernels without one are sums. Under a
    limit the mean power of several is held, with a clock between theirs."""
    law = dataclasses.replace(
        plain_law,
        kernels=jax.tree.map(lambda x: x[:3], plain_law.kernels),
        power_cap=jnp.asarray(cap),
    )
    at = points(law.gpu, campaigns.SETTINGS[-6:])
    alone, whole = jax.jit(cells)(law, at), jax.jit(joined.together)
    result = whole(law, jnp.asarray([0.0, 0.0, 5.0]), at)
    np.testing.assert_allclose(result.time, 5 * alone.time[2], rtol=1e-6)
    np.testing.assert_allclose(result.energy, 5 * alone.energy[2], rtol=1e-6)
    np.testing.assert_allclose(result.clock, alone.clock[2], rtol=1e-6)
    counts = np.array([1.0, 2.0, 3.0])
    result = whole(law, jnp.asarray(counts), at)
    if cap == 1e4:
        np.testing.assert_allclose(result.time, counts @ alone.time, rtol=1e-6)
        np.testing.assert_allclose(result.energy, counts @ alone.energy, rtol=1e-6)
    else:
        limit = cap * float(law.gpu.cap_fraction)
        assert float((result.energy / result.time)[-1]) <= limit * 1.001
        each = np.asarray(alone.clock)[:, -1]
        assert each.min() <= float(result.clock[-1]) <= each.max()


def rows_at(*shape: Any) -> list[dict[str, Any]]:
    listings = shapes.shape_listings(shapes.Shape(*shape))
    return [row for listing in listings for row in listing.kernels]


def flops(row: dict[str, Any]) -> float:
    """FLOP of one launch, 0 of kernels without a product."""
    sizes = [row.get(x, 0) for x in ("batch", "m", "n", "k")]
    return 2.0 * float(np.prod(sizes)) if row["op"] == "gemm" else 0.0


@pytest.mark.parametrize("degree", [2, 16])
def test_ranks_share_the_layers(study: Any, degree: int):
    """Products of a layer are divided once; those of the head if it is, too."""
    whole = np.array([flops(x) for x in rows_at(40)])
    np.testing.assert_allclose(whole, study.shapes.flops, rtol=1e-5)
    part = np.array([flops(x) for x in rows_at(40, degree)])
    head = np.isin(np.arange(46), list(shapes.HEAD_SHARDED))
    np.testing.assert_array_equal(part[head], whole[head])
    np.testing.assert_array_equal(part[~head] * degree, whole[~head])
    both = np.array([flops(x) for x in rows_at(40, degree, False)])
    np.testing.assert_array_equal(both * degree, whole)


def test_norms_and_embeddings_are_whole():
    one, ranks = (rows_at(40, n) for n in (1, 8))
    same = {i for i, (a, b) in enumerate(zip(one, ranks, strict=True)) if a == b}
    head = {14, 15, 16, 17}
    norms = {1, 9, 13, 18, 28, 43}
    biases = {20, 21, 29, 30}  # of the sums over ranks
    assert same == head | norms | biases | {0, 44, 45}


@pytest.mark.slow
def test_the_shape_of_the_fit_changes_nothing(plain_law: Any):
    expected = scores.law_table(plain_law, campaigns.SETTINGS)
    result = transfer.table_at(plain_law, shapes.REFERENCE)
    np.testing.assert_allclose(result.time, expected.time, rtol=1e-12)
    np.testing.assert_allclose(result.energy, expected.energy, rtol=1e-12)


@pytest.mark.slow
def test_weight_gradients_of_few_tokens_wait_for_their_stores(
    study: Any, plain_law: Any
):
    """Their results stay as large while the work shrinks with the batch: at batch 1
    nearly all 4 bytes a weight (read and written, 2 bytes each) are exposed; other
    large products write as much per work as before."""
    works = [shapes.shape_work(shapes.Shape(n)) for n in (1, 40)]
    moved = shapes.at_shape(plain_law, *works).kernels
    exposed = np.asarray(moved.store_dram)
    up, down, head = exposed[[27, 24, 17]] / np.array(
        [2048 * 8192] * 2 + [50304 * 2048]
    )
    assert [up, down, head] == pytest.approx([4.0] * 3, rel=0.12)
    assert exposed[10] < 0.1 * exposed[27]
    total = np.asarray(moved.dram) + exposed
    ratio = works[0].dram / works[1].dram
    np.testing.assert_allclose(total, np.asarray(plain_law.kernels.dram) * ratio)


@pytest.fixture(scope="module")
def law(study: Any) -> Any:
    """The fit."""
    return fitted.fit_study(study).law


@pytest.mark.long
@pytest.mark.slow
def test_transfer(study: Any, law: Any, shared: Path):
    """Guards what is reached. Wanted: energy within 2 points, sign and order of time.
    Slowdowns come out too small, by 2.3 points (law) at degree 16 and up to 0.7
    elsewhere."""
    rows = transfer.transfer(study, law, transfer.published(shared / "data"))
    known, by_law, read, again, anew = (
        np.array([getattr(row, name) for row in rows])
        for name in ("published", "law", "read", "again", "replanned")
    )
    batch = np.array([row.shape.degree == 1 for row in rows[:-5]] + [False] * 5)
    for result in (by_law, again):
        assert (result[:, 1] < -10).all()
        assert (np.diff(result[batch, 0][:4]) < 0).all()  # batch 1 to 8
        assert (np.diff(result[~batch, 0]) > 0).all()  # degree 1 to 16
        assert np.abs(result[:-1, 0] - known[:-1, 0]).max() < 1.25
        assert result[-1, 0] == result[:, 0].max()
    assert (by_law[:, 0] > 0).all()
    assert np.abs(by_law - known)[:, 1].max() < 3.3
    assert np.abs(read - known)[:, 1].max() < 2.6
    assert np.abs(again - known)[:, 1].max() < 2.0
    assert anew[:, 0].max() < 0.01
    assert (anew[:, 1] < -10).all()
    whole, parallel, sharded = transfer.printed_sums(study, law)
    for result in (whole, parallel):
        assert result.time == pytest.approx(result.printed_time, rel=0.04)
        assert result.energy == pytest.approx(result.printed_energy, rel=0.03)
    assert sharded.energy < 0.9 * sharded.printed_energy


@pytest.mark.slow
def test_reproduction(study: Any, law: Any):
    """Guards what is reached. Wanted: frontier and local strict within 2 points, 40
    kinds of clock; the default start, at the priors, reaches the frontier, not the
    kinds. Optima of 3-6 less cost (of 219) exist that miss it by 2.5-3.7 points."""
    result = scores.score(study, law)
    known = scores.published_frontier(study)
    assert np.abs(result.frontier_measured - known).max() < 2.1
    assert np.abs(result.frontier - known).max() < 3.1
    assert result.local_measured == pytest.approx(-11.54, abs=3.3)
    assert (result.kinds == result.printed_kinds).sum() >= 34
    assert result.a4000 == pytest.approx(-9.56, abs=4.0)
    assert result.largest == pytest.approx(-36.9, abs=1.0)
