"""Readings that cannot be true: each rule just inside and just outside its limit.

Twelve products of one size on an A100 (210 to 1410 MHz, 400 W) whose readings are what
is predicted, 0.25 s, 150 W; one row is changed. At the end, real predictions and files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from calibration.campaigns import meter
from calibration.listings import completed_listings
from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting import predict
from diffenergy.fitting._flags import flagged
from diffenergy.hardware import idle_power, load_gpu
from diffenergy.measurements import MeasurementTable, Predictions

from .builders import Flag

BAD, TIME, POWER = 5, 0.25, 150.0
ROW = dict(gpu="a100-sxm-80gb", op="gemm", m=64, n=64, k=64, dtype="bf16")


def predictions(rows: int, **values: Any) -> Predictions:
    """The same prediction of every row: `TIME` and `POWER` unless `values` say
    otherwise."""
    columns = dict(time_s=TIME, avg_power_w=POWER) | values
    columns.setdefault("energy_j", columns["time_s"] * columns["avg_power_w"])
    wide = {name: np.full(rows, float(x)) for name, x in columns.items()}
    words = dict.fromkeys(("grade", "skipped"), np.full(rows, "", object))
    return Predictions(**wide, **words)


@pytest.fixture
def flags(tmp_path: Path) -> Callable[..., list[Flag]]:
    """`flags(cells, **values)`: flags of a table beside `predictions`."""

    def flags(cells: pd.DataFrame, **values: Any) -> list[Flag]:
        cells.to_csv(tmp_path / "runs.csv", index=False)
        table = measurements.read([str(tmp_path / "runs.csv")])
        return flagged(table, predictions(table.num_rows, **values))

    return flags


@pytest.fixture
def reason(flags) -> Callable[..., str]:
    """`reason(changes, every, **values)`: why row `BAD` with the `changes` is flagged,
    "" if it is not; `every`: cells of all rows. Others never are."""

    def reason(changes: dict[str, Any], every: dict[str, Any], **values: Any) -> str:
        usual = ROW | {"time_s": TIME, "avg_power_w": POWER} | every
        cells = pd.DataFrame([usual] * 12)
        for name, value in changes.items():
            column = cells[name] if name in cells else np.nan
            cells[name] = np.where(np.arange(12) == BAD, value, column)
        result = flags(cells, **values)
        assert {flag.index for flag in result} <= {BAD}
        return result[0].reason if result else ""

    return reason


@pytest.mark.parametrize(
    ("inside", "outside", "every", "says"),
    [
        # clocks: 2 % above the highest, half of the lowest, 2 % above the request
        ({"sm_clock_mhz_set": 1438}, {"sm_clock_mhz_set": 1439}, {}, "highest, 1410"),
        ({"sm_clock_mhz_set": 106}, {"sm_clock_mhz_set": 104}, {}, "GPU, 210 MHz"),
        ({"sm_clock_mhz_avg": 1438}, {"sm_clock_mhz_avg": 1439}, {}, "highest, 1410"),
        ({"sm_clock_mhz_avg": 1019}, {"sm_clock_mhz_avg": 1021},
         {"sm_clock_mhz_set": 1000}, "2 % above the 1000 MHz that were set"),
        # throttling: 3 % of the clock, 15 % of the limit, hot from 80 C
        ({"sm_clock_mhz_avg": 971}, {"sm_clock_mhz_avg": 969},
         {"sm_clock_mhz_set": 1000}, "3 % below the 1000 MHz"),
        ({"avg_power_w": 341, "sm_clock_mhz_avg": 900}, {"avg_power_w": 339,
         "sm_clock_mhz_avg": 900}, {"sm_clock_mhz_set": 1000, "avg_power_w": 330},
         "3 % below the 1000 MHz"),
        ({"power_limit_w": 176, "sm_clock_mhz_avg": 900}, {"power_limit_w": 177,
         "sm_clock_mhz_avg": 900}, {"sm_clock_mhz_set": 1000}, "15 % below its limit"),
        ({"temperature_c": 80, "sm_clock_mhz_avg": 900}, {"temperature_c": 79,
         "sm_clock_mhz_avg": 900}, {"sm_clock_mhz_set": 1000}, "15 % below its limit"),
        # power: 5 % above the limit, of the row or of the GPU
        ({"avg_power_w": 419}, {"avg_power_w": 421}, {"avg_power_w": 380},
         "5 % above the limit, 400 W"),
        ({"power_limit_w": 143}, {"power_limit_w": 142}, {}, "above the limit, 142 W"),
        # boards of partners draw a quarter more
        ({"avg_power_w": 459}, {"avg_power_w": 461}, {"gpu": "rtx-3080-ti",
         "avg_power_w": 400.0}, "above the limit, 437.5"),
        # zeros are no readings
        ({"avg_power_w": 149}, {"avg_power_w": 0}, {}, "no meter was running"),
        ({"energy_j": 37.5}, {"energy_j": 0}, {"energy_j": 37.5}, "no meter was runn"),
        # cells that contradict each other by 3 %
        ({"energy_j": 38.6}, {"energy_j": 38.7}, {"energy_j": 37.5},
         "38.7 J do not fit the other two of time, energy and power: 37.5 J"),
        ({"energy_j": 36.4}, {"energy_j": 36.3}, {"energy_j": 37.5}, "do not fit"),
        ({"window_s": 24.3}, {"window_s": 24.2}, {"window_s": 25, "iterations": 100},
         "shorter than its iterations, which take 25 s"),
        # a window below a fifth of the campaign's, in less than half of the time
        ({"window_s": 5.1, "time_s": 0.12}, {"window_s": 4.9, "time_s": 0.12},
         {"window_s": 25.0}, "the run died"),
        ({"window_s": 4.9, "time_s": 0.126}, {"window_s": 4.9, "time_s": 0.124},
         {"window_s": 25.0}, "below the 25 s of its campaign"),
        # far from prediction and neighbours: 2.5 times, and e^0.6 = 1.822

        ({"time_s": TIME / 2.49}, {"time_s": TIME / 2.51}, {}, "0.398 times"),
        ({"avg_power_w": 1.82 * POWER}, {"avg_power_w": 1.83 * POWER}, {}, "similar"),
        # near a power of a thousand, by a factor of three
        ({"time_s": TIME / 328}, {"time_s": TIME / 339}, {}, "another unit"),
    ],
)  # fmt: skip
def test_limits(reason, inside, outside, every, says: str):
    values = {"avg_power_w": every["avg_power_w"]} if "avg_power_w" in every else {}
    assert says in reason(outside, every, **values)
    assert says not in reason(inside, every, **values)


def idle(mhz: float) -> float:
    """W of the idle board at its own memory clock."""
    return float(idle_power(load_gpu("a100-sxm-80gb"), jnp.asarray(mhz * 1e6)))


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, 0.8 * idle(210)),  # of a measured idle power: at the lowest clock
        ({"sm_clock_mhz_set": 1000}, 0.8 * idle(1000)),
        ({"sm_clock_mhz_set": 1000, "sm_clock_mhz_avg": 980}, 0.8 * idle(980)),
        ({"mem_clock_mhz": 1430}, 0.6 * 0.8 * idle(210)),  # below 0.9 of 1593 MHz
        ({"mem_clock_mhz": 1440}, 0.8 * idle(210)),
    ],
)
def test_least_power_of_an_idle_board(reason, changes: dict, least: float):
    """Predicted is little more, so that nothing else is said."""
    below = {"avg_power_w": 0.99 * least} | changes
    assert "idle board draws at least" in reason(below, {}, avg_power_w=90.0)
    above = {"avg_power_w": 1.01 * least} | changes
    assert "idle board" not in reason(above, {}, avg_power_w=90.0)


def test_a_busy_board_draws_three_tenths_of_what_is_predicted_above_idle(reason):
    """Where that is more than twice the idle power, from 333 us on."""
    rest = 0.8 * idle(1410)
    least = rest + 0.3 * (350 - rest)
    for time, share, words in ((TIME, 0.99, "during this work; 350 W"),
                               (TIME, 1.01, ""), (332e-6, 0.99, ""),
                               (334e-6, 0.99, "during this work")):  # fmt: skip
        every = {"avg_power_w": 350.0, "time_s": time}
        low = {"avg_power_w": share * least}
        result = reason(low, every, avg_power_w=350, time_s=time)
        assert words in result and ("during" in result) == bool(words)
    for share, busy in ((2.02, True), (1.98, False)):
        level = {"avg_power_w": share * rest}
        result = reason({"avg_power_w": rest * 0.9}, level, **level)
        assert ("during" in result) == busy


SQUARE = dict(m=8192, n=8192, k=8192)
THIN = dict(m=8, n=65536, k=8192)


@pytest.mark.parametrize(
    ("gpu", "shape", "dtype", "clock", "least"),
    [
        ("a100-sxm-80gb", SQUARE, "bf16", 705, 2 * 8192**3 / (2048 * 108 * 0.705e9)),
        ("a100-sxm-80gb", SQUARE, "tf32", 1410, 2 * 8192**3 / (1024 * 108 * 1.41e9)),
        # no fp8 products: as fast as the fastest type
        ("a100-sxm-80gb", SQUARE, "fp8", 1410, 2 * 8192**3 / (4096 * 108 * 1.41e9)),
        ("h200-sxm", SQUARE, "fp32", 1980, 2 * 8192**3 / (256 * 132 * 1.98e9)),
        # GeForce: twice the rate, with sums in fp16
        ("rtx-3080-ti", SQUARE, "fp16", 2100, 2 * 8192**3 / (1024 * 80 * 2.1e9)),
        # bytes beyond the L2
        ("a100-sxm-80gb", THIN, "bf16", 1410,
         (2 * (8 + 65536) * 8192 + 2 * 8 * 65536 - 41943040) / 2.039e12),
        ("a100-sxm-80gb", THIN | {"weight_dtype": "int4"}, "bf16", 1410,
         ((8 + 65536) * 8192 * 33 / 64 + 2 * 8 * 65536 - 41943040) / 2.039e12),
        ("b200-sxm", SQUARE, "mxfp8", 1965, 2 * 8192**3 / (16384 * 148 * 1.965e9)),
    ],
)  # fmt: skip
def test_products_take_as_long_as_peak_rates_allow(reason, gpu, shape, dtype, clock,
                                                   least: float):  # fmt: skip
    """Less 5 %: clocks are nominal."""
    every = shape | {"gpu": gpu, "dtype": dtype, "sm_clock_mhz_set": clock}
    every |= {"time_s": least, "avg_power_w": 250.0}
    values = dict(time_s=least, avg_power_w=250.0)
    assert reason({"time_s": 0.952 * least}, every, **values) == ""
    fast = reason({"time_s": 0.948 * least}, every, **values)
    assert "that the GPU's peak rates allow" in fast


@pytest.mark.parametrize(
    ("column", "factor", "says"),
    [
        ("time_us", 1e3, "probably ns"), ("time_ms", 1e-3, "probably s"),
        ("avg_power_w", 1e-3, "probably kW"), ("energy_j", 1e6, "probably uJ"),
        ("energy_mj", 1e3, "probably uJ"),
    ],
)  # fmt: skip
def test_units(flags, column: str, factor: float, says: str):
    """One row in another unit of the column, named with the cell as read."""
    size = {"time_us": 1e6, "time_ms": 1e3, "avg_power_w": 1, "energy_mj": 1e3}
    usual = {"time": TIME, "avg": POWER, "energy": 37.5}[column.partition("_")[0]]
    cells = pd.DataFrame([ROW] * 12)
    if not column.startswith("time"):
        cells["time_s"] = TIME
    cells[column] = usual * size.get(column, 1.0)
    cells.loc[BAD, column] *= factor
    (flag,) = flags(cells)
    assert (flag.row, flag.index, flag.column) == (BAD, BAD, column)
    assert flag.value == pytest.approx(cells.loc[BAD, column])
    assert says in flag.reason


def test_launch_loops_are_no_outliers(reason):
    """Below 20 us the loop is timed; 100 us read are too long for it."""
    for predicted, read, odd in ((19, 99, False), (19, 101, True), (21, 99, True)):
        every = {"time_s": predicted * 1e-6}
        result = reason({"time_s": read * 1e-6}, every, time_s=predicted * 1e-6)
        assert ("unlike in similar rows" in result) == odd == bool(result)


@pytest.mark.parametrize(("spread", "says"), [(0.195, "similar"), (0.199, "")])
def test_six_sigmas_of_the_group(flags, spread: float, says: str):
    """Six rows e^spread above their prediction, which is the median, and five below:
    1.4826 x spread is a sigma; the row is 1.95 = (6 x 1.4826 + 1) x 0.197 off in ln."""
    sign = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    time = TIME * np.exp(spread * sign)
    time[BAD] = TIME * np.exp(1.95)
    result = flags(pd.DataFrame([ROW] * 12).assign(time_s=time))
    assert [flag.index for flag in result] == ([BAD] if says else [])
    assert all(says in flag.reason for flag in result)


@pytest.mark.parametrize(
    ("near", "own", "odd"),
    [
        (0.3, -1.38, False),
        (0.3, -1.39, True),  # ln 0.25 = -1.386
        (-0.3, -1.68, False),
        (-0.3, -1.69, True),  # of the rows around too
    ],
)
def test_a_quarter_of_the_time_is_too_fast_in_any_group(flags, near, own, odd):
    """Of nine small products eight are `near` in ln, in a group spread too wide."""
    ratio = np.array([own] + [near] * 8 + [near - 0.3, near + 0.3] * 5)
    cells = pd.DataFrame([ROW] * 9 + [ROW | {"m": 4096, "n": 4096}] * 10)
    result = flags(cells.assign(time_s=TIME * np.exp(ratio)))
    assert [flag.index for flag in result] == ([0] if odd else [])
    assert all("quarter" in flag.reason for flag in result)


@pytest.mark.parametrize("other", [{"dtype": "fp16"}, {"gpu": "a100-sxm-40gb"}])
def test_rows_around_are_the_eight_nearest_of_one_group(flags, other: dict):
    """Sizes of 2, 4, ... 4096. The smallest product takes e^1.2 times as long as
    predicted: no outlier if the eight nearest of its dtype and GPU do so, too (the
    median), whatever all others do; with four such it is one."""
    sizes = [2.0**i for i in range(1, 13)]
    for alike, odd in ((8, False), (3, True)):
        slow = [TIME * np.exp(1.2 if i <= alike else 0.0) for i in range(12)]
        cells = [ROW | {"m": m, "time_s": t} for m, t in zip(sizes, slow, strict=True)]
        cells += [ROW | other | {"m": m, "time_s": TIME} for m in sizes * 2]
        result = {flag.index for flag in flags(pd.DataFrame(cells))}
        assert (0 in result) == odd


def test_a_group_in_another_unit(flags):
    """No model is wrong by a hundred in most rows."""
    for factor, rows in ((98.0, 0), (102.0, 12)):
        cells = [ROW | {"time_s": TIME * factor, "avg_power_w": POWER}] * 12
        reported = [flag.reason for flag in flags(pd.DataFrame(cells))]
        assert len(reported) == rows
        assert all("as in most rows of this GPU and op" in x for x in reported)


def test_a_flag_names_the_file_and_the_cell(flags, tmp_path: Path):
    """Energy where the power is blank; the first of two columns of time."""
    cells = pd.DataFrame([ROW] * 12).assign(
        time_us=TIME * 1e6, time_ms=1.0, avg_power_w=POWER, energy_j=POWER * TIME
    )
    cells.loc[BAD, ["energy_j", "avg_power_w"]] = [20 * TIME, np.nan]
    cells.loc[BAD + 1, ["time_us", "energy_j"]] *= 6.0
    dark, long = flags(cells)
    assert (dark.row, dark.column, dark.value) == (BAD, "energy_j", 20 * TIME)
    assert dark.reason.startswith("a power of 20 W is below")
    assert (long.row, long.column, long.value) == (BAD + 1, "time_us", 6e6 * TIME)
    assert flags(pd.DataFrame([ROW | {"time_s": TIME, "avg_power_w": 0.0}] * 12)) == []
    # rows count from the start of their file: the second file's, and its index in both
    files = [str(tmp_path / x) for x in ("a.csv", "b.csv")]
    for file, bad in zip(files, (1.0, 1e-3), strict=True):
        cells = pd.DataFrame([ROW | {"time_s": TIME, "avg_power_w": POWER}] * 12)
        cells.loc[BAD, "avg_power_w"] *= bad
        cells.to_csv(file, index=False)
    (flag,) = flagged(measurements.read(files), predictions(24))
    assert (flag.file, flag.row, flag.index) == (files[1], BAD, 12 + BAD)


# real predictions and files


@pytest.mark.slow
def test_rows_as_predicted_are_left(tmp_path):
    """Read with 3 % noise; one that takes six times as long is found."""
    sizes = (2048.0, 3072.0, 4096.0, 6144.0, 8192.0)
    shapes = [(m, n, clock) for clock in (900, 1050) for m in sizes for n in sizes]
    cells = pd.DataFrame(shapes, columns=["m", "n", "sm_clock_mhz_set"])
    cells = cells.assign(**{x: ROW[x] for x in ("gpu", "op", "dtype")}, k=8192)

    def read(cells: pd.DataFrame) -> tuple[MeasurementTable, Predictions]:
        cells.to_csv(tmp_path / "runs.csv", index=False)
        table = measurements.read([str(tmp_path / "runs.csv")])
        return table, predict(table, prior_file())

    _, true = read(cells.assign(time_us=1.0, avg_power_w=1.0))
    noise = np.exp(0.03 * np.random.default_rng(0).normal(size=(2, len(cells))))
    time = true.time_s * noise[0]
    cells = cells.assign(
        time_us=time * 1e6, avg_power_w=true.avg_power_w * noise[1],
        iterations=np.round(30 / time), window_s=np.round(30 / time) * time,
        sm_clock_mhz_avg=cells.sm_clock_mhz_set,
    )  # fmt: skip
    assert flagged(*read(cells)) == []
    cells.loc[7, ["time_us", "window_s"]] *= 6.0
    assert [flag.row for flag in flagged(*read(cells))] == [7]


@pytest.mark.slow
@pytest.mark.shared_data
def test_dead_runs_are_found(shared):
    """EnergAIzer's: among good ones, and in a file of their own."""
    folder = shared / "data" / "energaizer"
    listings = {x.name: [x] for x in completed_listings(folder)}
    good, dead = (str(folder / f"measurements{end}.csv") for end in ("", "_excluded"))
    both = measurements.read([good, dead], workloads=listings, meter=meter)
    alone = measurements.read([dead], workloads=listings, meter=meter)
    predicted = predict(both, prior_file())
    result = flagged(both, predicted)
    assert [(x.index, x.row) for x in result] == [(364 + i, i) for i in range(13)]
    assert {flag.column for flag in result} == {"window_s"}
    assert result[0].value == 1.514
    names = ("time_s", "energy_j", "avg_power_w", "grade", "skipped")
    part = Predictions(**{name: getattr(predicted, name)[364:] for name in names})
    result = flagged(alone, part)
    assert [flag.row for flag in result] == list(range(13))
    assert all("the run died" in flag.reason for flag in result)


@pytest.mark.slow
@pytest.mark.shared_data
def test_busy_layers_that_read_little_power(shared):
    """21 of 3,253 MoE rows longer than 333 us read below 200 W; few others are off."""
    folder = shared / "data" / "aiconfigurator"
    table = measurements.read([f"moe={folder}/h200_sxm_moe_power.csv.gz"], meter=meter)
    result = flagged(table, predict(table, prior_file()))
    dark = np.flatnonzero((table.avg_power_w < 200) & (table.time_s >= 333e-6))
    assert len(dark) == 21
    assert {flag.index for flag in result}.issuperset(dark.tolist())
    assert len(result) <= 0.01 * table.num_rows
