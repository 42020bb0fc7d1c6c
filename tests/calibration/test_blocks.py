"""Cold blocks of a power campaign: injected by its sensor model, found in readings."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.campaigns import meter, model_of
from calibration.campaigns.blocks import (
    Block,
    _evidence,
    _segments,
    cold_blocks,
)
from calibration.campaigns.formulas import hot_share, replayed_seconds
from diffenergy import measurements
from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting import predict
from diffenergy.hardware import read_gpu
from diffenergy.measurements import MeasurementTable

H200 = read_gpu("h200-sxm")
CAMPAIGN = "vllm/0.22.0"
COLUMNS = [512 * i for i in range(2, 34)]
ROWS = [64, 1024, 4096, 8192]
BLOCKS: list[Block] = [(1024.0, 8192.0, 16384.0), (4096.0, 4096.0, 8192.0)]


def campaign(blocks: list[Block]) -> CorrectionsFile:
    """Priors of a campaign with these cold blocks."""
    file = prior_file()
    own = file.instruments.setdefault(f"{CAMPAIGN}:gemm@h200-sxm", {})
    own["cold_blocks"] = blocks
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
    table = measurements.read([f"gemm={path}"], meter=meter)
    assert set(table.campaign) == {CAMPAIGN} and set(table.skipped) == {""}
    return table


@pytest.fixture(scope="module")
def readings(blank):
    """`readings(blocks)`: the campaign with 5 % errors of time and 3 % of power."""

    def readings(blocks: list[Block]) -> MeasurementTable:
        predictions = predict(blank, campaign(blocks))
        noise = np.random.default_rng(0).normal(size=(2, blank.num_rows))
        return dataclasses.replace(
            blank,
            time_s=predictions.time_s * np.exp(0.05 * noise[0]),
            avg_power_w=predictions.avg_power_w * np.exp(0.03 * noise[1]),
        )

    return readings


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [BLOCKS, BLOCKS[:1], []])
def test_injected_blocks_are_found(readings, blank, blocks: list[Block]):
    """And none in a clean campaign."""
    table = readings(blocks)
    assert cold_blocks(table, np.arange(blank.num_rows), H200) == blocks


@pytest.mark.slow
def test_rows_without_a_reading_say_nothing(readings, blank):
    """Half of the rows show the same blocks, to a column; none shows none."""
    table = readings(BLOCKS)
    half = np.arange(blank.num_rows) % 2 == 0
    few = dataclasses.replace(
        table, avg_power_w=np.where(half, table.avg_power_w, np.nan)
    )
    result = cold_blocks(few, np.arange(blank.num_rows), H200)
    assert result == cold_blocks(table, np.flatnonzero(half), H200)
    assert np.array(result) == pytest.approx(np.array(BLOCKS), abs=512)
    none = dataclasses.replace(table, avg_power_w=np.full(blank.num_rows, np.nan))
    assert cold_blocks(none, np.arange(blank.num_rows), H200) == []


@pytest.mark.slow
def test_a_fit_starts_with_the_blocks_of_its_tables(readings, blank):
    """Those of the GPU, whose rows of one campaign are a series of their own."""
    start = meter.begin(readings(BLOCKS), prior_file())
    own = start.instruments[f"{CAMPAIGN}:gemm@h200-sxm"]
    assert own == {"cold_blocks": BLOCKS}
    assert model_of(start, CAMPAIGN, "gemm", "h200-sxm")["cold_blocks"] == BLOCKS
    assert "cold_blocks" not in model_of(start, CAMPAIGN, "gemm", "b200-sxm")
    other = dataclasses.replace(
        readings(BLOCKS), campaign=np.full(blank.num_rows, "vllm/0.24.0", object)
    )  # a campaign whose sensor knows no series
    assert meter.begin(other, prior_file()).instruments == {}


@pytest.mark.parametrize("seed", range(12))
def test_segments_are_the_most_likely_path(seed: int):
    """Of all paths of warm and cold: half of the evidence for or against each, less 6
    for every change, so that one reading (4 at most) is none."""
    assert _segments(np.array([-4.0, 4.0, -4.0])) == []
    score = np.random.default_rng(seed).normal(0, 8, 9)
    paths = np.array(list(itertools.product((0, 1), repeat=9)))
    value = (paths - 0.5) @ score - 6 * (np.diff(paths) != 0).sum(1)
    best = paths[value.argmax()]
    cold = np.zeros(9, int)
    for first, last in _segments(score):
        assert cold[max(first - 1, 0) : last + 2].sum() == 0  # apart
        cold[first : last + 1] = 1
    assert cold.tolist() == best.tolist()


def evidence(
    blank: MeasurementTable, dtype: str, m: float, time: float, power: float
) -> float:
    """Evidence of the row m x 8192 x 4096 where that is read of it."""
    shapes = blank.fields["gemm"].values
    want = dict(m=m, n=8192.0, k=4096.0, dtype=dtype)
    (row,) = np.flatnonzero(np.all([shapes[x] == y for x, y in want.items()], axis=0))
    times, powers = blank.time_s.copy(), blank.avg_power_w.copy()
    times[row], powers[row] = time, power
    table = dataclasses.replace(blank, time_s=times, avg_power_w=powers)
    *shape, result = _evidence(table, np.array([row]), H200)
    assert [float(x[0]) for x in shape] == [m, 8192.0]
    return float(result[0])


@pytest.mark.parametrize(
    ("dtype", "m"),
    [("bf16", 64.0), ("bf16", 1024.0), ("bf16", 8192.0), ("fp8_block", 8192.0)],
)
def test_evidence_by_hand(blank, dtype: str, m: float):
    """Squares of what is read off the shares of a cold and a warm board over twice
    their variance, 4 at most. A fully loaded H200 reaches 83 % of 4.8 TB/s, 65 % of
    1,071 bf16 and 51 % of 2,141 fp8 TFLOP/s, and 98.5 % of 700 W; idle, a fifth."""
    n, k = 8192.0, 4096.0
    narrow = dtype != "bf16"
    peak = 132 * 1.98e9 * 4096
    size, flops = (1, 0.51 * 2 * peak) if narrow else (2, 0.65 * peak)
    work = ((m + n) * k * size + 2 * m * n) / (0.83 * 4.8e12) + 2 * m * n * k / flops

    def read(time: float, power: float) -> float:
        return evidence(blank, dtype, m, time, power)

    time = work / 0.9
    loop = (1.0, 70e-6) if narrow else (6.0, 270e-6)
    length = float(replayed_seconds(*map(jnp.asarray, (time, *loop))))
    few = min(1.0, m / 128) ** 0.4
    cold = 0.04 if narrow else min(0.8, 0.26 * time * 1e6 / 60 * few)
    colder = float(hot_share(jnp.asarray(length), jnp.asarray(cold)))
    window = min(1.0, length + 0.22)
    warm = float(hot_share(jnp.asarray(length), jnp.asarray(window)))
    warm = 1.0 if narrow else warm
    assert 0.02 < warm - colder
    for seen in (colder, 0.5 * (colder + warm) + 0.02, warm - 0.01, warm, 0.2):
        ratio = ((seen - warm) ** 2 - (seen - colder) ** 2) / 0.02
        result = read(time, 140 + 0.9 * (0.985 * 700 - 140) * seen)
        assert result == pytest.approx(np.clip(ratio, -4, 4), abs=1e-6)
    least = 0.85 if narrow else 0.7
    assert np.isnan(read(work / (least - 0.01), 300.0))
    assert np.isfinite(read(work / (least + 0.01), 300.0))
    assert np.isnan(read(time, np.nan))


def test_short_narrow_products_are_told_by_their_power(blank):
    """From 50 to 100 us with a quarter of the load: below 330 W the board was cold."""
    result = [
        evidence(blank, "fp8_block", 1024.0, 1e-6 * time, power)
        for time, power in ((51, 329), (51, 331), (99, 329), (49, 329))
    ]
    assert result[:3] == [3, -3, 3] and np.isnan(result[3])
