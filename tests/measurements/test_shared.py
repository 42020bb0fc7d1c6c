"""What the shared measurement tables hold."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibration.importers import neusight
from calibration.splits.base import as_table
from diffenergy import measurements


@pytest.mark.shared_data
def test_energaizer_passes(shared: Path):
    folder = shared / "data" / "energaizer"
    listings = {
        json.loads(line)["name"]: []
        for name in ("workloads.jsonl", "workloads_derived.jsonl")
        for line in (folder / name).read_text().splitlines()
    }
    table = measurements.read([str(folder / "measurements.csv")], workloads=listings)
    assert table.num_rows == 364 and set(table.gpu) == {"a10", "a100-pcie-40gb"}
    assert table.time_s[0] == pytest.approx(12.80e-3, rel=1e-3)
    assert table.avg_power_w[0] == pytest.approx(67.1, rel=1e-3)
    np.testing.assert_allclose(
        table.energy_j, table.time_s * table.avg_power_w, rtol=2e-4
    )
    slower = table.sm_clock_avg < table.sm_clock_set - 5e6
    np.testing.assert_array_equal(slower, table.frame["throttled"] == "True")


ROWS = {
    "gemm": {"h200_sxm_power": 11_969, "a100_sxm": 6_000, "l40s": 6_000},
    "context_attention": {"h200_sxm_power": 5_996, "a100_sxm": 5_627},
    "generation_attention": {"h200_sxm_power": 5_901, "a100_sxm": 5_093},
    "moe": {"h200_sxm_power": 6_746},
}
"""Rows of each table of AIConfigurator."""


@pytest.mark.shared_data
@pytest.mark.parametrize("op, table", [(op, x) for op in ROWS for x in ROWS[op]])
def test_aiconfigurator_kernels(shared: Path, op: str, table: str):
    gpu, powered, _ = table.partition("_power")
    file = f"{gpu}_{op}_{'power' if powered else 'latency'}.csv.gz"
    read = measurements.read([f"{op}={shared / 'data' / 'aiconfigurator' / file}"])
    assert read.num_rows == ROWS[op][table] and list(read.fields) == [op]
    assert read.ignored_columns == () and read.notes == ()
    assert np.isfinite(read.avg_power_w).all() == bool(powered)
    assert (read.time_s > 5e-7).all() and (read.time_s < 10).all()


@pytest.mark.slow
@pytest.mark.shared_data
def test_neusight_tiles_explain_the_grid(shared: Path):
    """ceil(n / tile_n) = grid_x, ceil(m / tile_m) = grid_y of nn.Linear on the T4."""
    file = shared / "data" / "neusight" / "gemm_fp32.csv.gz"
    table = as_table(neusight.translated(file))
    shape, frame = table.fields["gemm"].values, table.frame
    rows = (table.gpu == "t4") & (frame["family"] == "linear").to_numpy()
    for size, tile, grid in (("n", "tile_n", "grid_x"), ("m", "tile_m", "grid_y")):
        tiles = np.ceil(shape[size] / shape[tile])[rows]
        np.testing.assert_array_equal(tiles, frame[grid][rows].astype(float))


@pytest.mark.shared_data
def test_activity_tables(shared: Path):
    file = shared / "data" / "gpmtool" / "microbenchmark_power.csv.gz"
    table = measurements.read([f"activity={file}"])
    assert table.num_rows == 6_911
    assert (table.skipped != "").sum() == 20  # K40c: negative counters in the source


@pytest.mark.shared_data
def test_layer_names_of_vidur_are_no_ops(shared: Path):
    file = shared / "data" / "vidur" / "transformer_ops.csv.gz"
    with pytest.raises(ValueError, match="line 2: `op` is 'add'; allowed are .*--op"):
        measurements.read([str(file)])
