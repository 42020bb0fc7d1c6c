"""Cold blocks of a power campaign: injected by its sensor model, found in readings."""

import dataclasses

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting._calibrate import with_cold_blocks
from diffenergy.fitting._predict import predict
from diffenergy.fitting._series import Block, cold_blocks, in_blocks
from diffenergy.measurements import MeasurementTable

CAMPAIGN = "vllm/0.22.0"
COLUMNS = [512 * i for i in range(2, 34)]
ROWS = [64, 1024, 4096, 8192]
BLOCKS: list[Block] = [(1024.0, 8192.0, 16384.0), (4096.0, 4096.0, 8192.0)]


def campaign(blocks: list[Block]) -> CorrectionsFile:
    """Priors of a campaign with these cold blocks."""
    file = prior_file()
    file.instruments[f"{CAMPAIGN}:gemm"]["cold_blocks"] = blocks
    return file


@pytest.fixture(scope="module")
def blank(tmp_path_factory):
    """GEMMs of many shapes in two dtypes, nothing read yet."""
    path = tmp_path_factory.mktemp("series") / "gemm.csv"
    lines = [
        f"h200-sxm,{CAMPAIGN},{dtype},{m},{n},{k},1,1"
        for dtype in ("bf16", "fp8_block")
        for m in ROWS
        for n in COLUMNS
        for k in (2048, 4096, 8192)
    ]
    head = "gpu,framework,dtype,m,n,k,avg_power_w,time_us"
    path.write_text("\n".join([head, *lines]))
    table = measurements.read([f"gemm={path}"])
    assert set(table.campaign) == {CAMPAIGN} and set(table.skipped) == {""}
    return table


@pytest.fixture(scope="module")
def readings(blank):
    """`readings(blocks)`: the campaign with 5 % errors of time and 3 % of power."""

    def readings(blocks: list[Block]) -> MeasurementTable:
        made = predict(blank, campaign(blocks))
        noise = np.random.default_rng(0).normal(size=(2, blank.num_rows))
        return dataclasses.replace(
            blank,
            time_s=made.time_s * np.exp(0.05 * noise[0]),
            avg_power_w=made.avg_power_w * np.exp(0.03 * noise[1]),
        )

    return readings


@pytest.mark.parametrize("blocks", [BLOCKS, BLOCKS[:1], []])
def test_injected_blocks_are_found(readings, blank, blocks: list[Block]):
    """And none in a clean campaign."""
    table = readings(blocks)
    assert cold_blocks(table, np.arange(blank.num_rows)) == blocks


def test_readings_of_a_cold_board_are_lower(readings):
    """What tells the blocks: rows in them, and no others, show less power."""
    shapes = readings([]).fields["gemm"].values
    cold = in_blocks(BLOCKS, shapes["m"], shapes["n"]) > 0
    share = readings(BLOCKS).avg_power_w / readings([]).avg_power_w
    assert share[~cold] == pytest.approx(np.ones((~cold).sum()))
    assert np.median(share[cold]) < 0.9 and np.all(share[cold] < 1 + 1e-9)


def test_rows_without_a_reading_say_nothing(readings, blank):
    """Half of the rows show the same blocks, to a column; none shows none."""
    table = readings(BLOCKS)
    half = np.arange(blank.num_rows) % 2 == 0
    few = dataclasses.replace(
        table, avg_power_w=np.where(half, table.avg_power_w, np.nan)
    )
    found = cold_blocks(few, np.arange(blank.num_rows))
    assert found == cold_blocks(table, np.flatnonzero(half))
    assert np.array(found) == pytest.approx(np.array(BLOCKS), abs=512)
    none = dataclasses.replace(table, avg_power_w=np.full(blank.num_rows, np.nan))
    assert cold_blocks(none, np.arange(blank.num_rows)) == []


def test_one_low_reading_is_no_block(readings, blank):
    table = readings([])
    shapes = table.fields["gemm"].values
    one = (shapes["m"] == 4096) & (shapes["n"] == 8192) & (shapes["k"] == 4096)
    low = dataclasses.replace(
        table, avg_power_w=np.where(one, 200.0, table.avg_power_w)
    )
    assert cold_blocks(low, np.arange(blank.num_rows)) == []


def test_a_fit_starts_with_the_blocks_of_its_tables(readings, blank):
    start = with_cold_blocks(prior_file(), [readings(BLOCKS)])
    assert start.instruments[f"{CAMPAIGN}:gemm"]["cold_blocks"] == BLOCKS
    assert "cold_blocks" not in prior_file().instruments[f"{CAMPAIGN}:gemm"]
    other = dataclasses.replace(
        readings(BLOCKS), campaign=np.full(blank.num_rows, "vllm/0.24.0", object)
    )  # a campaign whose sensor knows no series
    untouched = prior_file().instruments
    assert with_cold_blocks(prior_file(), [other]).instruments == untouched


def test_shapes_in_blocks():
    m = np.array([1024.0, 1024, 1024, 1024, 4096, 64])
    n = np.array([8191.0, 8192, 16384, 16385, 8192, 8192])
    assert in_blocks(BLOCKS, m, n).tolist() == [0, 1, 1, 0, 1, 0]
    assert in_blocks([], m, n).tolist() == [0] * 6
