"""Intervals: widths of left-out rows cover others; grades fall back to wider ones."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from diffenergy.corrections import prior_file, read_corrections, write_corrections
from diffenergy.corrections._spread import (
    DURATIONS,
    QUANTITIES,
    Spread,
    Trust,
    trust,
    widths,
)
from diffenergy.hardware import read_gpu

GRADES = ("calibrated", "forecast", "datasheet")
TIMES = (10e-6, 50e-6, 200e-6, 1e-3)
"""A time in each class of duration."""


def same(time: float, power: float, energy: float) -> dict[str, list[float]]:
    """Widths that are equal in all classes of duration."""
    sizes = zip(QUANTITIES, (time, power, energy), strict=True)
    return {quantity: [size] * len(TIMES) for quantity, size in sizes}


# --- widths

NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: 0.1 * rng.normal(size=n),
    "heavy tails": lambda rng, n: 0.05 * rng.standard_t(2, size=n),
    "biased": lambda rng, n: 0.05 + 0.1 * rng.normal(size=n),
}


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("seed", range(5))
def test_half_of_the_rows_give_intervals_for_the_other_half(kind: str, seed: int):
    """They cover 90 % of them, in every class of duration: 85 to 95 % of 1000 rows."""
    rng = np.random.default_rng(seed)
    time = np.repeat(TIMES, 2000)
    scale = np.repeat([4.0, 2.0, 1.0, 0.5], 2000)  # short kernels are known less well
    ratio = scale * NOISE[kind](rng, len(time))
    half = rng.permutation(len(time)) % 2 == 0
    found = Trust("calibrated", widths(time[half], {"time": ratio[half]}))
    inside = np.abs(ratio) <= found.half_width("time", time)
    for each in TIMES:
        assert 0.85 < inside[~half & (time == each)].mean() < 0.95
    assert 0.87 < inside[~half].mean() < 0.93


def test_widths_by_hand():
    """|ratio| of 0.01 to 1: 90 % lie below 0.901 (linear between rows)."""
    ratio = np.linspace(0.01, 1.0, 100) * np.where(np.arange(100) % 2, 1, -1)
    found = widths(np.full(100, 1e-3), {"time": ratio, "power": ratio[::-1] / 2})
    assert found["time"] == pytest.approx([0.901] * 4)  # no class has rows of its own
    assert found["power"] == pytest.approx([0.4505] * 4, abs=1e-4)


def test_few_rows_of_a_class_take_the_width_of_all():
    time = np.concatenate([np.full(100, 1e-3), np.full(29, 10e-6), np.full(30, 50e-6)])
    ratio = np.concatenate([np.full(100, 0.1), np.full(29, 0.9), np.full(30, 0.5)])
    (found,) = widths(time, {"time": ratio}).values()
    whole = np.quantile(ratio, 0.9)
    assert found == pytest.approx([whole, 0.5, whole, 0.1])


def test_too_few_rows_have_no_width():
    """A quantity that was hardly read; NaN rows do not count."""
    time = np.full(100, 1e-3)
    rare = np.where(np.arange(100) < 29, 0.1, np.nan)
    found = widths(time, {"time": np.full(100, 0.2), "power": rare})
    assert found == {"time": [0.2] * 4}
    thirty = np.where(np.arange(100) < 30, 0.1, np.nan)
    assert widths(time, {"power": thirty}) == {"power": [0.1] * 4}


# --- trust

SPREADS: dict[str, Spread] = {
    "nothing": {},
    "calibrated": {"gemm:calibrated": same(0.1, 0.08, 0.15)},
    "wide calibrated": {"gemm:calibrated": same(0.9, 0.8, 1.1)},
    "forecast": {"gemm:forecast": same(0.2, 0.15, 0.3)},
    "wide forecast": {
        "gemm:calibrated": same(0.1, 0.08, 0.15),
        "gemm:forecast": same(0.8, 0.7, 1.0),
    },
    "time alone": {"gemm:calibrated": {"time": [0.3, 0.2, 0.15, 0.1]}},
}


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("kind", ["gemm", "moe"])
def test_a_worse_grade_is_never_narrower(name: str, kind: str):
    by_grade = [trust(SPREADS[name], kind, grade) for grade in GRADES]
    assert [x.grade for x in by_grade] == [*GRADES]
    for quantity in QUANTITIES:
        sizes = np.array([x.half_width(quantity, TIMES) for x in by_grade])
        assert sizes.shape == (3, 4) and np.all(sizes > 0)
        if name != "forecast" or kind != "gemm":  # measured: as wide as it was seen
            assert np.all(np.diff(sizes, axis=0) >= 0), quantity


def test_measured_widths_are_taken_as_they_are():
    spread = SPREADS["wide forecast"]
    for grade, expected in (("calibrated", 0.1), ("forecast", 0.8)):
        assert trust(spread, "gemm", grade).half_width("time", 1e-3) == expected


def test_forecasts_are_never_narrow():
    """GPUs that were left out have close relatives among the fitted ones."""
    spread = {f"gemm:{grade}": same(0.05, 0.3, 0.05) for grade in GRADES[:2]}
    assert trust(spread, "gemm", "forecast").widths == same(0.2, 0.3, 0.25)
    assert trust(spread, "gemm", "calibrated").widths == same(0.05, 0.3, 0.05)


def test_grades_without_left_out_rows_take_the_wider():
    """Of the better grade's widths and the general ones of the grade."""
    general = {grade: trust({}, "gemm", grade) for grade in GRADES}
    narrow = trust(SPREADS["calibrated"], "gemm", "forecast")
    assert narrow.widths == general["forecast"].widths
    wide = trust(SPREADS["wide calibrated"], "gemm", "forecast")
    assert wide.widths == same(0.9, 0.8, 1.1)
    other = trust(SPREADS["wide calibrated"], "moe", "calibrated")  # another kind
    assert other.widths == general["calibrated"].widths
    part = trust(SPREADS["time alone"], "gemm", "calibrated")
    assert part.half_width("time", TIMES).tolist() == [0.3, 0.2, 0.15, 0.1]
    assert part.half_width("power", 1.0) == general["calibrated"].half_width(
        "power", 1.0
    )


def test_durations_choose_the_width():
    found = Trust("calibrated", {"time": (0.4, 0.3, 0.2, 0.1)})
    just = [x * s for x in DURATIONS for s in (1 - 1e-9, 1 + 1e-9)]
    sizes = found.half_width("time", just).tolist()
    assert sizes == [0.4, 0.3, 0.3, 0.2, 0.2, 0.1]
    assert found.half_width("time", 0.0) == 0.4 and found.half_width("time", 9.0) == 0.1


@pytest.mark.parametrize("grade", GRADES)
def test_intervals_bracket_the_value(grade: str):
    found = trust({}, "workload", grade)
    values, times = np.array([1e-6, 2.0, 3e5]), np.array([1e-6, 1e-4, 1.0])
    for quantity in QUANTITIES:
        low, high = found.interval(quantity, values, times)
        assert np.all((0 < low) & (low < values) & (values < high))
        assert np.sqrt(low * high) == pytest.approx(values)  # in the logarithm
    one = found.interval("energy", 5.0, 1e-3)
    ratio = np.exp(found.half_width("energy", 1e-3))
    assert one == pytest.approx((5 / ratio, 5 * ratio))


# --- of a corrections file


@pytest.fixture
def file():
    """Fitted on GEMMs of the H200 and passes of the A10."""
    rows = {"h200-sxm:gemm": 100, "a10:workload": 50}
    spread = {
        f"{kind}:{grade}": same(*(scale * x for x in (0.1, 0.08, 0.15)))
        for kind in ("gemm", "workload")
        for grade, scale in (("calibrated", 1.0), ("forecast", 2.0))
    }
    on = {"gpus": ["a10", "h200-sxm"], "rows": rows}
    return dataclasses.replace(prior_file(), fitted_on=on, spread=spread)


@pytest.mark.parametrize(
    "gpu, kind, new, grade, width",
    [
        ("h200-sxm", "gemm", False, "calibrated", 0.1),
        ("h200-sxm", "gemm", True, "forecast", 0.2),  # a changed GPU
        ("h200-sxm", "workload", False, "calibrated", 0.2),  # no such rows of it
        ("a10", "workload", False, "calibrated", 0.1),
        ("a100-pcie-40gb", "workload", False, "forecast", 0.2),
        ("h200-sxm", "moe", False, "calibrated", 0.4),  # never left out: general
    ],
)
def test_trust_of_a_file(file, gpu: str, kind: str, new: bool, grade: str, width):
    found = file.trust(read_gpu(gpu), kind, new)
    assert found.grade == grade
    assert found.half_width("time", 1e-3) == pytest.approx(width)


def test_nothing_fitted_is_a_data_sheet():
    for new in (False, True):
        found = prior_file().trust(read_gpu("h200-sxm"), "gemm", new)
        assert found.grade == "datasheet" and found.half_width("time", 1.0) == 0.6


def test_widths_survive_writing(file, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(write_corrections(file))
    assert read_corrections(path).spread == file.spread
