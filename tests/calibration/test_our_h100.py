"""Our own measurements of an H100 (`calibration/measurements`): what they say by
arithmetic, and how near the shipped constants, which no row of them moved, come."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diffenergy import fitting, measurements
from diffenergy.hardware import load_gpu

FOLDER = Path(__file__).parents[2] / "calibration" / "measurements"
KERNELS, PASSES = FOLDER / "h100_kernels.csv", FOLDER / "h100_passes.csv"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.read_csv(KERNELS)


def test_large_products_reach_nine_tenths_of_the_peak_at_their_clock(rows):
    """Of random numbers and of zeros, in every type: the clock is what differs."""
    large = rows[(rows.op == "gemm") & (rows.m == 8192) & (rows.k == 8192)]
    gpu = load_gpu("h100-sxm")
    for _, row in large.iterrows():
        peak = float(getattr(gpu, f"tensor_flop_per_cycle_{row['dtype']}"))
        peak *= float(gpu.num_sms) * row.sm_clock_mhz_avg * 1e6
        assert 2 * 8192**3 / (1e-6 * row.time_us) == pytest.approx(
            0.92 * peak, rel=0.02
        )
    clocks = large.groupby(["dtype", "contents"]).sm_clock_mhz_avg.mean()
    assert set(large["dtype"]) == {"bf16", "fp16", "fp8", "tf32"}
    assert clocks["bf16", "zeros"] > 1.15 * clocks["bf16", "random"]


def test_energy_is_power_times_time_and_a_counter_read_it(rows):
    assert (rows.power_source == "counter").all() and not rows.shared_gpu.any()
    energy = rows.avg_power_w * rows.time_us * 1e-6
    assert np.asarray(rows.energy_j) == pytest.approx(np.asarray(energy), rel=1e-6)
    assert rows.window_s.between(2.0, 2.5).all()
    window = rows.time_us * rows.iterations * 1e-6
    assert np.asarray(rows.window_s) == pytest.approx(np.asarray(window), rel=1e-6)


@pytest.fixture(scope="module")
def predicted() -> pd.DataFrame:
    return fitting.evaluate(measurements.read([str(KERNELS)])).rows()


@pytest.mark.slow
def test_shipped_constants_on_kernels_of_another_board_and_library(predicted):
    """Mean errors in %."""
    result = predicted
    result = result[(result.contents == "random") & (result.time_s > 5e-6)]
    error = {
        name: 100 * np.abs(result[f"{name}_pred"] / result[name] - 1)
        for name in ("time_s", "avg_power_w", "energy_j")
    }
    kind = result["class"]
    assert error["avg_power_w"][kind == "decode"].mean() < 5
    assert error["energy_j"][kind == "dram"].mean() < 6
    assert error["energy_j"][kind == "prefill"].mean() < 15
    assert error["time_s"][kind == "decode"].mean() < 19
    half = result[(result["class"] == "gemm") & result["dtype"].isin(["bf16", "fp16"])]
    assert np.abs(half.energy_j_pred / half.energy_j - 1).mean() < 0.1


@pytest.mark.slow
def test_zeros_of_16_bits_save_what_was_read(predicted):
    """Power within 10 %; with random operands it would be 80 % more."""
    result = predicted
    zeros = result[
        (result.contents == "zeros") & result["dtype"].isin(["bf16", "fp16"])
    ]
    assert len(zeros) == 6
    assert np.abs(zeros.avg_power_w_pred / zeros.avg_power_w - 1).max() < 0.1


@pytest.mark.slow
def test_busy_passes():
    result = fitting.evaluate(measurements.read([str(PASSES)])).rows()
    busy = result[result.avg_power_w > 500]
    assert len(busy) == 13
    time, energy = (
        np.abs(busy[f"{x}_pred"] / busy[x] - 1) for x in ("time_s", "energy_j")
    )
    assert time.mean() < 0.08 and energy.mean() < 0.08


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "whole"),
    [
        ("bert-large-8x512", 0.05),
        ("gpt2-8x1024", 0.05),
        ("opt-1.3b-1x2048", 0.1),
        ("qwen2-1.5b-1x2048", 0.1),
    ],
)
def test_traces(trace: str, whole: float):
    """Kernel time as a whole, and of products."""
    result = measurements.evaluate_trace(str(FOLDER / f"h100_{trace}.trace.json.gz"))
    assert result.summary["whole_ratio"] == pytest.approx(1, abs=whole)
    products = [x for x in result.kernels if x["op"] == "gemm"]
    traced = sum(x["traced_total_us"] for x in products)
    ours = sum(x["predicted_us"] * x["count"] for x in products)
    assert ours == pytest.approx(traced, rel=0.12)
