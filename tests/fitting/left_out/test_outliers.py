"""Corrupted rows are found with file, row, column and value; true ones are left."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibration.campaigns import meter
from calibration.listings import completed_listings
from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting._flags import Flag, flagged
from diffenergy.fitting._predict import predict
from diffenergy.measurements import MeasurementTable, Predictions

GPU = "a100-sxm-80gb"  # 108 SMs, 1.41 GHz at most, 400 W
BAD = 7
pytestmark = pytest.mark.slow

SIZES = (2048.0, 3072.0, 4096.0, 6144.0, 8192.0)


def read(cells: pd.DataFrame, folder: Path) -> tuple[str, MeasurementTable]:
    path = str(folder / "runs.csv")
    cells.to_csv(path, index=False)
    return path, measurements.read([path])


def found(cells: pd.DataFrame, folder: Path) -> list[Flag]:
    _, table = read(cells, folder)
    return flagged(table, predict(table, prior_file()))


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> pd.DataFrame:
    """Runs of 30 s of square-ish GEMMs at two clocks, read with 3 % noise."""
    shapes = [(m, n, clock) for clock in (900, 1050) for m in SIZES for n in SIZES]
    cells = pd.DataFrame(shapes, columns=["m", "n", "sm_clock_mhz_set"])
    cells.insert(0, "op", "gemm")
    cells.insert(0, "gpu", GPU)
    cells = cells.assign(k=8192, dtype="bf16", sm_clock_mhz_avg=cells.sm_clock_mhz_set)
    cells = cells.assign(time_us=1.0, avg_power_w=1.0)
    _, table = read(cells, tmp_path_factory.mktemp("outliers"))
    true = predict(table, prior_file())
    noise = np.exp(0.03 * np.random.default_rng(0).normal(size=(2, len(cells))))
    time, power = true.time_s * noise[0], true.avg_power_w * noise[1]
    return cells.assign(
        time_us=time * 1e6,
        avg_power_w=power,
        energy_j=time * power,
        iterations=np.round(30 / time),
        window_s=np.round(30 / time) * time,
    )


def scaled(**factors: float) -> Callable[[Mapping[str, Any]], dict[str, float]]:
    return lambda row: {name: row[name] * factor for name, factor in factors.items()}


def drawing(power: float) -> Callable[[Mapping[str, Any]], dict[str, float]]:
    """Run at `power`, W, with the energy to it."""
    return lambda row: {"avg_power_w": power, "energy_j": power * row["time_us"] / 1e6}


def stretched(factor: float) -> Callable[[Mapping[str, Any]], dict[str, float]]:
    """Run of another length whose cells agree with each other."""
    return scaled(time_us=factor, energy_j=factor, window_s=factor)


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        (scaled(avg_power_w=1e-3), "avg_power_w", "probably kW"),
        (scaled(avg_power_w=1e3), "avg_power_w", "probably mW"),
        (scaled(energy_j=1e3), "energy_j", "probably mJ"),
        (scaled(time_us=1e-3), "time_us", "probably ms"),
        (stretched(0.05), "window_s", "the run died"),
        (drawing(20.0), "avg_power_w", "idle board"),
        (drawing(75.0), "avg_power_w", "during this work"),
        (drawing(430.0), "avg_power_w", "above the limit, 400 W"),
        (lambda row: {"avg_power_w": 0.0}, "avg_power_w", "no meter"),
        (lambda row: {"energy_j": 0}, "energy_j", "no meter"),
        (stretched(0.45), "time_us", "peak rates"),
        (stretched(6.0), "time_us", "unlike in similar rows"),
        (lambda row: {"sm_clock_mhz_avg": 820}, "sm_clock_mhz_avg", "3 % below"),
        (lambda row: {"sm_clock_mhz_avg": 940}, "sm_clock_mhz_avg", "2 % above"),
        (lambda row: {"sm_clock_mhz_avg": 1.41}, "sm_clock_mhz_avg", "below half"),
        (lambda row: {"sm_clock_mhz_set": 1500}, "sm_clock_mhz_set", "highest, 1410"),
        (scaled(energy_j=1.2), "energy_j", "do not fit"),
        (scaled(window_s=0.5), "window_s", "shorter than its iterations"),
    ],
)
def test_a_corrupted_row_is_found(clean, tmp_path, change, column, reason):
    cells = clean.astype({"sm_clock_mhz_avg": float})
    for name, value in change(cells.iloc[BAD]).items():
        cells.loc[BAD, name] = value
    path, _ = read(cells, tmp_path)
    (flag,) = found(cells, tmp_path)
    assert (flag.file, flag.row, flag.index, flag.column) == (path, BAD, BAD, column)
    assert flag.value == pytest.approx(cells.loc[BAD, column])
    assert reason in flag.reason


def test_clean_rows_are_left(clean, tmp_path):
    assert found(clean, tmp_path) == []


def test_throttling_at_the_power_limit_is_left(clean, tmp_path):
    cells = clean.astype({"sm_clock_mhz_avg": float})
    cells = cells.assign(power_limit_w=400.0)
    cells.loc[BAD, "sm_clock_mhz_avg"] = 820
    cells.loc[BAD, "power_limit_w"] = 1.05 * cells.loc[BAD, "avg_power_w"]
    assert found(cells, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "factor", "unit"),
    [("avg_power_w", 1e-3, "kW"), ("time_us", 1e-3, "ms"), ("time_us", 1e-6, "s")],
)
def test_a_whole_file_in_another_unit(clean, tmp_path, name, factor, unit):
    cells = clean[["gpu", "op", "m", "n", "k", "dtype", "time_us", "avg_power_w"]]
    flags = found(cells.assign(**{name: factor * cells[name]}), tmp_path)
    assert [flag.row for flag in flags] == list(range(len(cells)))
    for flag in flags:
        assert flag.column == name
        assert f"probably {unit}, as in most rows" in flag.reason


def test_a_wrong_model_is_no_outlier(clean, tmp_path):
    """All rows three times as long as predicted: nothing tells them from each other."""
    cells = clean.drop(columns=["iterations", "window_s", "energy_j"])
    assert found(cells.assign(time_us=3 * cells.time_us), tmp_path) == []


def test_power_that_follows_from_energy_names_its_column(clean, tmp_path):
    cells = clean.drop(columns=["avg_power_w", "iterations", "window_s"])
    cells.loc[BAD, "energy_j"] = 20e-6 * cells.loc[BAD, "time_us"]
    (flag,) = found(cells, tmp_path)
    assert (flag.row, flag.column) == (BAD, "energy_j")
    assert flag.reason.startswith("a power of 20 W is below")


def test_a_flag_names_the_cell_that_was_read(clean, tmp_path):
    """Energy where the cell of the power is blank; the first of two columns of time,
    whatever the second says."""
    cells = clean.drop(columns=["iterations", "window_s"]).assign(time_ms=1.0)
    cells.loc[BAD, "energy_j"] = 20e-6 * cells.loc[BAD, "time_us"]
    cells.loc[BAD, "avg_power_w"] = np.nan
    cells.loc[BAD + 1, ["time_us", "energy_j"]] *= 6.0
    dark, long = found(cells, tmp_path)
    assert (dark.row, dark.column) == (BAD, "energy_j")
    assert (long.row, long.column) == (BAD + 1, "time_us")
    assert dark.value == pytest.approx(cells.loc[BAD, "energy_j"])
    assert long.value == pytest.approx(cells.loc[BAD + 1, "time_us"])


def test_a_file_without_a_meter_is_left(clean, tmp_path):
    assert found(clean.assign(avg_power_w=0.0, energy_j=0.0), tmp_path) == []


def test_rows_count_from_the_start_of_their_file(clean, tmp_path):
    wrong = clean.copy()
    wrong.loc[25 + BAD, "avg_power_w"] *= 1e-3
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    for file, cells in zip(files, (wrong[:25], wrong[25:]), strict=True):
        cells.to_csv(file, index=False)
    table = measurements.read(files)
    (flag,) = flagged(table, predict(table, prior_file()))
    assert (flag.file, flag.row, flag.index) == (files[1], BAD, 25 + BAD)


@pytest.fixture(scope="module")
def passes(shared) -> tuple[MeasurementTable, MeasurementTable, Predictions]:
    """EnergAIzer files: good and dead runs together, dead ones alone; predictions of
    the former."""
    folder = shared / "data" / "energaizer"
    listings = {x.name: [x] for x in completed_listings(folder)}
    good, dead = (str(folder / f"measurements{end}.csv") for end in ("", "_excluded"))
    both = measurements.read([good, dead], workloads=listings, meter=meter)
    alone = measurements.read([dead], workloads=listings, meter=meter)
    return both, alone, predict(both, prior_file())


@pytest.mark.slow
@pytest.mark.shared_data
def test_dead_runs_are_found_among_good_ones(passes):
    both, _, predicted = passes
    flags = flagged(both, predicted)
    assert [flag.index for flag in flags] == list(range(364, 377))
    assert [flag.row for flag in flags] == list(range(13))
    assert {flag.column for flag in flags} == {"window_s"}
    assert flags[0].value == 1.514


@pytest.mark.slow
@pytest.mark.shared_data
def test_dead_runs_are_found_alone(passes):
    _, alone, predicted = passes
    names = ("time_s", "energy_j", "avg_power_w", "grade", "skipped")
    flags = flagged(
        alone, Predictions(**{name: getattr(predicted, name)[364:] for name in names})
    )
    assert [flag.row for flag in flags] == list(range(13))
    assert all("the run died" in flag.reason for flag in flags)


@pytest.mark.slow
@pytest.mark.shared_data
def test_busy_layers_that_read_little_power(shared):
    """21 of 3,253 MoE rows longer than 333 us read below 200 W; few others are off."""
    folder = shared / "data" / "aiconfigurator"
    table = measurements.read([f"moe={folder}/h200_sxm_moe_power.csv.gz"], meter=meter)
    flags = flagged(table, predict(table, prior_file()))
    dark = np.flatnonzero((table.avg_power_w < 200) & (table.time_s >= 333e-6))
    assert len(dark) == 21
    assert {flag.index for flag in flags}.issuperset(dark.tolist())
    assert len(flags) <= 0.01 * table.num_rows
