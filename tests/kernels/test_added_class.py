"""A kernel class is one file: `added/fft.py`, put beside the others, is taken up by
listings, estimates, traces, fits, and the tests of gradients and properties."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import test_gradients
import test_properties

import diffenergy as de
from diffenergy import imports, kernels, measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting._batches import batches
from diffenergy.fitting._fit import acting_constants
from diffenergy.hardware import read_gpu
from diffenergy.imports._rows import names
from diffenergy.kernels import _registry
from diffenergy.workload import listing_lines, read_listings

N, BATCH = 4096, 65536


@pytest.fixture(scope="module", autouse=True)
def added() -> Iterator[None]:
    """The package of kernel classes with the folder `added` in it."""
    caches = (
        _registry.classes, _registry.ops, _registry.formulas, _registry.trace_classes,
        names._patterns, names.kernel_class,
    )  # fmt: skip
    patch = pytest.MonkeyPatch()
    here = str(Path(__file__).parent / "added")
    patch.setattr(kernels, "__path__", [*kernels.__path__, here])
    for cache in caches:
        cache.cache_clear()
    yield
    patch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    row = {"op": "fft", "batch": BATCH, "n": N}
    path.write_text(json.dumps({"name": "mine", "kernels": [row]}))
    return path


def test_a_listing_is_estimated(listing: Path):
    """By hand: 65,536 transforms of 4,096 numbers read and write 4.3 GB; no GPU is
    faster than its DRAM, and 60 FLOP a number hide behind that."""
    [entry] = read_listings(listing)
    assert entry.kernels == ({"op": "fft", "batch": BATCH, "n": N, "count": 1},)
    answer = de.estimate(str(listing), "h100-sxm", detail=True)
    least = 2 * 8 * BATCH * N / read_gpu("h100-sxm").values["dram_bandwidth"]
    assert least < answer.time < 1.3 * least
    assert kernels.ops()["fft"][0].model_flop(entry.kernels[0]) == 60 * BATCH * N


def test_a_trace_knows_its_kernels(tmp_path: Path):
    event = {"ph": "X", "cat": "kernel", "name": "cufft_forward_c2c", "ts": 0, "dur": 9}
    event["args"] = {"device": 0, "stream": 7, "grid": [64, 1, 1], "block": [64, 1, 1]}
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"traceEvents": [event]}))
    [entry] = imports.read(str(path)).listings
    [row] = entry.kernels
    assert (row["op"], row["class"], row["traced_us"]) == ("traced", "fft", 9)
    path.write_text(listing_lines([entry]))
    assert de.estimate(str(path), "h100-sxm").time == pytest.approx(9e-6, rel=1e-4)


def test_its_measured_rows_are_fitted(tmp_path: Path):
    """With the constants that its formula uses, and none of other classes."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "gpu,op,batch,n,time_us,avg_power_w,sm_clock_mhz_avg\n"
        f"h100-sxm,fft,{BATCH},{N},1500,400,1500\n"
    )
    (batch,) = batches(measurements.read([str(path)]), prior_file())
    assert batch.kind == "fft" and batch.ops == ("fft",) and batch.kinds == {"kernel"}
    acting = acting_constants(batch)
    assert {"dram_efficiency", "fma_efficiency", "stream_feed", "leakage"} <= acting
    assert not any(x.startswith(("moe_", "prefill_", "choice_")) for x in acting)


@pytest.mark.slow
def test_its_gradients_are_checked(sample):
    [mine] = [x for x in test_gradients.listings(sample) if x.name == "fft"]
    slopes = test_gradients.slopes([mine], relaxed=False)
    test_gradients.check_finite(slopes)
    test_gradients.check_differences(slopes, test_gradients.ROUNDED)


@pytest.mark.slow
def test_its_properties_are_checked():
    rng = np.random.default_rng(0)
    scales = [0.0] * len(test_properties.VARIED)
    every = test_properties.case("l40s", scales, 0, per_op=1)
    assert "fft" in {row["op"] for row in every.rows}
    rows = [test_properties.row("fft", i, rng) for i in range(6)]
    where = test_properties.OperatingPoint(
        [1.5e9] * 6, [9e9] * 6, [1e6] * 6, [50.0] * 6
    )
    test_properties.check(test_properties.Case(rows, every.gpu, where))
