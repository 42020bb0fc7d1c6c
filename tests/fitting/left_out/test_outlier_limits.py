"""Each rule about readings that cannot be true, just inside and outside its limit.

Twelve products of one size on an A100 (210 to 1410 MHz, 400 W) whose readings are what
is predicted, 0.25 s, 150 W; one row is changed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from diffenergy import measurements
from diffenergy.fitting._flags import _around, _residuals, flagged, rows_of
from diffenergy.hardware import load_gpu
from diffenergy.hardware._spec import idle_power
from diffenergy.measurements import Predictions

BAD, TIME, POWER = 5, 0.25, 150.0
ROW = dict(gpu="a100-sxm-80gb", op="gemm", m=64, n=64, k=64, dtype="bf16")


@pytest.fixture
def reason(tmp_path: Path) -> Callable[..., str]:
    """`reason(changes, every, **predicted)`: why row `BAD` with the `changes` is
    flagged, "" if it is not; `every`: cells of all rows. Others never are."""

    def found(changes: dict[str, Any], every: dict[str, Any], **predicted: Any) -> str:
        cells = pd.DataFrame(
            [ROW | {"time_s": TIME, "avg_power_w": POWER} | every] * 12
        )
        for name, value in changes.items():
            column = cells[name] if name in cells else np.nan
            cells[name] = np.where(np.arange(12) == BAD, value, column)
        path = tmp_path / "runs.csv"
        cells.to_csv(path, index=False)
        table = measurements.read([str(path)])
        made = dict(time_s=TIME, avg_power_w=POWER) | predicted
        made.setdefault("energy_j", made["time_s"] * made["avg_power_w"])
        wide = {name: np.full(12, float(x)) for name, x in made.items()}
        words = dict.fromkeys(("grade", "skipped"), np.full(12, "", object))
        flags = flagged(table, Predictions(**wide, **words))
        assert {flag.index for flag in flags} <= {BAD}
        return flags[0].reason if flags else ""

    return found


@pytest.mark.parametrize(
    ("inside", "outside", "every", "says"),
    [
        # clocks: 2 % above the highest, half of the lowest, 2 % above the request
        ({"sm_clock_mhz_set": 1438}, {"sm_clock_mhz_set": 1439}, {}, "highest, 1410"),
        ({"sm_clock_mhz_set": 106}, {"sm_clock_mhz_set": 104}, {}, "GPU, 210 MHz"),
        ({"sm_clock_mhz_avg": 1438}, {"sm_clock_mhz_avg": 1439}, {}, "highest, 1410"),
        ({"sm_clock_mhz_avg": 106}, {"sm_clock_mhz_avg": 104}, {}, "GPU, 210 MHz"),
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
        ({"time_s": TIME * 2.49}, {"time_s": TIME * 2.51}, {}, "2.51 times"),
        ({"time_s": TIME / 2.49}, {"time_s": TIME / 2.51}, {}, "0.398 times"),
        ({"avg_power_w": 1.82 * POWER}, {"avg_power_w": 1.83 * POWER}, {}, "similar"),
        # near a power of a thousand, by a factor of three
        ({"time_s": TIME / 328}, {"time_s": TIME / 339}, {}, "another unit"),
    ],
)  # fmt: skip
def test_limits(reason, inside, outside, every, says: str):
    made = {"avg_power_w": every["avg_power_w"]} if "avg_power_w" in every else {}
    assert says in reason(outside, every, **made)
    assert says not in reason(inside, every, **made)


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
def test_an_idle_board_draws_so_much(reason, changes: dict, least: float):
    """Predicted is little more, so that nothing else is said."""
    below = {"avg_power_w": 0.99 * least} | changes
    assert "idle board draws at least" in reason(below, {}, avg_power_w=90.0)
    above = {"avg_power_w": 1.01 * least} | changes
    assert "idle board" not in reason(above, {}, avg_power_w=90.0)


def test_a_busy_board_draws_three_tenths_of_what_is_predicted_above_idle(reason):
    """Where that is more than twice the idle power, from 333 us on."""
    rest = 0.8 * idle(1410)
    least, every = rest + 0.3 * (350 - rest), {"avg_power_w": 350.0}
    low = {"avg_power_w": 0.99 * least}
    assert "during this work; 350 W" in reason(low, every, avg_power_w=350)
    high = {"avg_power_w": 1.01 * least}
    assert "during this work" not in reason(high, every, avg_power_w=350)
    short = every | {"time_s": 332e-6}
    assert reason(low, short, avg_power_w=350, time_s=332e-6) == ""
    longer = every | {"time_s": 334e-6}
    assert "during" in reason(low, longer, avg_power_w=350, time_s=334e-6)
    quiet = {"avg_power_w": rest * 0.9}
    for share, words in ((2.02, "during"), (1.98, "")):
        level = {"avg_power_w": share * rest}
        found = reason(quiet, level, avg_power_w=share * rest)
        assert ("during" in found) == bool(words)


SQUARE = dict(m=8192, n=8192, k=8192)
THIN = dict(m=8, n=65536, k=8192)


@pytest.mark.parametrize(
    ("gpu", "shape", "dtype", "clock", "least"),
    [
        ("a100-sxm-80gb", SQUARE, "bf16", 1410, 2 * 8192**3 / (2048 * 108 * 1.41e9)),
        ("a100-sxm-80gb", SQUARE, "bf16", 705, 2 * 8192**3 / (2048 * 108 * 0.705e9)),
        ("a100-sxm-80gb", SQUARE, "tf32", 1410, 2 * 8192**3 / (1024 * 108 * 1.41e9)),
        ("a100-sxm-80gb", SQUARE, "int8", 1410, 2 * 8192**3 / (4096 * 108 * 1.41e9)),
        # no fp8 products: as fast as the fastest type
        ("a100-sxm-80gb", SQUARE, "fp8", 1410, 2 * 8192**3 / (4096 * 108 * 1.41e9)),
        ("h200-sxm", SQUARE, "fp8_block", 1980, 2 * 8192**3 / (8192 * 132 * 1.98e9)),
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
def test_products_take_as_long_as_the_peak_rates_allow(
    reason, gpu, shape, dtype, clock, least: float
):
    """Less 5 %: clocks are nominal. Predicted is just that, so that nothing else is
    said."""
    every = shape | {"gpu": gpu, "dtype": dtype, "sm_clock_mhz_set": clock}
    every |= {"time_s": least, "avg_power_w": 250.0}
    made = dict(time_s=least, avg_power_w=250.0)
    slow = reason({"time_s": 0.952 * least}, every, **made)
    fast = reason({"time_s": 0.948 * least}, every, **made)
    assert slow == ""
    assert "that the GPU's peak rates allow" in fast


@pytest.mark.parametrize(
    ("limit", "says"), [(459, ""), (461, "above the limit, 437.5")]
)
def test_boards_of_partners_draw_a_quarter_more(reason, limit: float, says: str):
    every = {"gpu": "rtx-3080-ti", "avg_power_w": 400.0}
    assert says in reason({"avg_power_w": limit}, every, avg_power_w=400.0)
    assert bool(reason({"avg_power_w": limit}, every, avg_power_w=400.0)) == bool(says)


@pytest.mark.parametrize(
    ("column", "factor", "says"),
    [
        ("time_us", 1e-3, "probably ms"), ("time_us", 1e3, "probably ns"),
        ("time_ms", 1e-3, "probably s"), ("avg_power_w", 1e-3, "probably kW"),
        ("energy_j", 1e3, "probably mJ"), ("energy_j", 1e-3, "probably kJ"),
        ("energy_j", 1e6, "probably uJ"), ("energy_mj", 1e3, "probably uJ"),
    ],
)  # fmt: skip
def test_units(tmp_path: Path, column: str, factor: float, says: str):
    """One row in another unit of the column."""
    given = {"time_s": 0.25, "avg_power_w": 150.0, "energy_j": 37.5}
    scale = {"time_us": 1e6, "time_ms": 1e3, "energy_mj": 1e3}.get(column, 1.0)
    quantity = {"time": "time_s", "energy": "energy_j"}.get(
        column.partition("_")[0], "avg_power_w"
    )
    cells = pd.DataFrame([ROW] * 12)
    names = {"time_s": "time_s"} | {quantity: column}
    for name, own in names.items():
        cells[own] = given[name] * (scale if own == column else 1.0)
    cells.loc[BAD, column] *= factor
    cells.to_csv(tmp_path / "runs.csv", index=False)
    table = measurements.read([str(tmp_path / "runs.csv")])
    wide = {name: np.full(12, x) for name, x in given.items()}
    words = dict.fromkeys(("grade", "skipped"), np.full(12, "", object))
    (flag,) = flagged(table, Predictions(**wide, **words))
    assert (flag.row, flag.column) == (BAD, column)
    assert says in flag.reason


def test_launch_loops_are_no_outliers(reason):
    """Below 20 us the loop is timed; 100 us read are too long for it."""
    every, made = {"time_s": 19e-6}, {"time_s": 19e-6}
    assert reason({"time_s": 99e-6}, every, **made) == ""
    assert "unlike in similar rows" in reason({"time_s": 101e-6}, every, **made)
    every, made = {"time_s": 21e-6}, {"time_s": 21e-6}
    assert "unlike in similar rows" in reason({"time_s": 99e-6}, every, **made)


@pytest.mark.parametrize(("spread", "says"), [(0.195, "similar"), (0.199, "")])
def test_six_sigmas_of_the_group(tmp_path: Path, spread: float, says: str):
    """Six rows e^spread above their prediction, which is the median, and five below:
    1.4826 x spread is a sigma; the row is 1.95 = (6 x 1.4826 + 1) x 0.197 off in ln."""
    sign = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    time = TIME * np.exp(spread * sign)
    time[BAD] = TIME * np.exp(1.95)
    cells = pd.DataFrame([ROW] * 12).assign(time_s=time)
    cells.to_csv(tmp_path / "runs.csv", index=False)
    table = measurements.read([str(tmp_path / "runs.csv")])
    wide = dict(time_s=np.full(12, TIME), avg_power_w=np.full(12, POWER))
    words = dict.fromkeys(("grade", "skipped"), np.full(12, "", object))
    made = Predictions(**wide, energy_j=np.full(12, TIME * POWER), **words)
    flags = flagged(table, made)
    assert [flag.index for flag in flags] == ([BAD] if says else [])
    assert all(says in flag.reason for flag in flags)


@pytest.mark.parametrize(
    ("near", "own", "told"),
    [
        (0.0, -1.39, True), (0.0, -1.38, False),  # ln 0.25 = -1.386
        (-0.3, -1.68, False), (-0.3, -1.69, True),  # of the rows around too
        (0.3, -1.38, False), (0.3, -1.39, True),
    ],
)  # fmt: skip
def test_a_quarter_of_the_time_is_too_fast_in_any_group(
    tmp_path: Path, near: float, own: float, told: bool
):
    """One of nine small products, the eight others `near` in ln, in a group that is
    spread too wide for six sigmas (2.67); power that is off alike is not told."""
    ratio = np.array([own] + [near] * 8 + [near - 0.3, near + 0.3] * 5)
    cells = pd.DataFrame([ROW] * 9 + [ROW | {"m": 4096, "n": 4096}] * 10)
    made = TIME * np.exp(ratio)
    cells = cells.assign(time_s=made, avg_power_w=POWER * np.exp(ratio))
    cells.to_csv(tmp_path / "runs.csv", index=False)
    table = measurements.read([str(tmp_path / "runs.csv")])
    numbers = dict(time_s=TIME, avg_power_w=POWER, energy_j=TIME * POWER)
    wide = {name: np.full(19, x) for name, x in numbers.items()}
    words = dict.fromkeys(("grade", "skipped"), np.full(19, "", object))
    findings = list(_residuals(rows_of(table, Predictions(**wide, **words))))
    hit = [(x.quantity, np.flatnonzero(x.where).tolist()) for x in findings]
    assert [x for x in hit if x[1]] == ([("time_s", [0])] if told else [])
    assert ["quarter" in x.text for x in findings if x.where.any()] == [True] * told


def test_a_model_that_is_wrong_for_some_sizes_is_no_outlier(tmp_path: Path):
    """Nine small products take three times as long as predicted: each is far off, and
    so are the eight most like it; of one alone among twelve large ones it is said."""
    small = ROW | {"time_s": 3 * TIME}
    large = ROW | {"m": 4096, "n": 4096, "time_s": TIME}
    for number in (9, 1):
        cells = pd.DataFrame([small] * number + [large] * 12)
        cells.assign(avg_power_w=POWER).to_csv(tmp_path / "runs.csv", index=False)
        table = measurements.read([str(tmp_path / "runs.csv")])
        rows = table.num_rows
        words = dict.fromkeys(("grade", "skipped"), np.full(rows, "", object))
        numbers = dict(time_s=TIME, avg_power_w=POWER, energy_j=TIME * POWER)
        wide = {name: np.full(rows, x) for name, x in numbers.items()}
        flags = flagged(table, Predictions(**wide, **words))
        assert [flag.index for flag in flags] == ([0] if number == 1 else [])


@pytest.mark.parametrize(("factor", "rows"), [(98.0, 0), (102.0, 12)])
def test_a_group_in_another_unit(tmp_path: Path, factor: float, rows: int):
    """No model is wrong by a hundred in most rows."""
    cells = pd.DataFrame([ROW | {"time_s": TIME * factor, "avg_power_w": POWER}] * 12)
    cells.to_csv(tmp_path / "runs.csv", index=False)
    table = measurements.read([str(tmp_path / "runs.csv")])
    words = dict.fromkeys(("grade", "skipped"), np.full(12, "", object))
    wide = {"time_s": TIME, "avg_power_w": POWER, "energy_j": TIME * POWER}
    made = Predictions(**{x: np.full(12, y) for x, y in wide.items()}, **words)
    flags = flagged(table, made)
    assert len(flags) == rows
    assert all("as in most rows of this GPU and op" in flag.reason for flag in flags)


def test_rows_around_are_the_eight_nearest_of_one_group(tmp_path: Path):
    """Sizes of 2, 4, ... 4096 in two dtypes, which lie further apart than any of them;
    the last row alone in another file's place, with none around."""
    sizes = [2.0**i for i in range(1, 13)]
    cells = [ROW | {"m": m, "dtype": x} for x in ("bf16", "fp16") for m in sizes]
    cells.append(ROW | {"gpu": "a10"})
    cells = pd.DataFrame(cells).assign(time_s=TIME)
    cells.to_csv(tmp_path / "runs.csv", index=False)
    table = measurements.read([str(tmp_path / "runs.csv")])
    blank = np.full(25, np.nan)
    words = dict.fromkeys(("grade", "skipped"), np.full(25, "", object))
    rows = rows_of(table, Predictions(blank, blank, blank, **words))
    ratio = np.arange(25.0) ** 2
    around = _around(rows, ratio)
    assert around[0] == np.median(ratio[1:9])
    assert around[11] == np.median(ratio[3:11])
    assert around[12] == np.median(ratio[13:21])
    assert around[5] == np.median(ratio[[1, 2, 3, 4, 6, 7, 8, 9]])
    assert around[24] == 0
    some = np.where(np.arange(25) == 2, np.nan, ratio)
    assert _around(rows, some)[0] == np.median(ratio[[1, *range(3, 10)]])
    few = np.where(np.arange(25) < 3, ratio, np.nan)
    assert _around(rows, few)[:3].tolist() == [2.5, 2.0, 0.5]
