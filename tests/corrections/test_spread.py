"""Intervals: widths of left-out rows cover others; grades fall back to wider ones."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from diffenergy.corrections import (
    Trust,
    prior_file,
    read_corrections,
    write_corrections,
)
from diffenergy.corrections._spread import (
    DURATIONS,
    GRADES,
    QUANTITIES,
    Spread,
    trust,
    widths,
)
from diffenergy.hardware import read_gpu

TIMES = (10e-6, 50e-6, 200e-6, 1e-3)
"""A time in each class of duration."""


def same(time: float, power: float, energy: float) -> dict[str, list[float]]:
    """Widths that are equal in all classes of duration."""
    sizes = zip(QUANTITIES, (time, power, energy), strict=True)
    return {quantity: [size] * len(TIMES) for quantity, size in sizes}


# --- widths

ONE, THREE = 1.2362, 1.0825
"""How much wider one group makes it, and three: exp(0.4 x 1.28 (sqrt(1 + 1/n) - 1))."""

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
    many = np.arange(int(half.sum())) % 100
    result = Trust({}, widths(time[half], {"time": ratio[half]}, many))
    inside = np.abs(ratio) <= result.half_width("time", time)
    for each in TIMES:
        assert 0.85 < inside[~half & (time == each)].mean() < 0.95
    assert 0.87 < inside[~half].mean() < 0.93


def test_widths_by_hand():
    """|ratio| of 0.01 to 1: 90 % lie below 0.901 (linear between rows)."""
    ratio = np.linspace(0.01, 1.0, 100) * np.where(np.arange(100) % 2, 1, -1)
    ratios = {"time": ratio, "power": ratio[::-1] / 2}
    result = widths(np.full(100, 1e-3), ratios, np.zeros(100))
    assert result["time"] == pytest.approx(
        [0.901 * ONE] * 4, abs=1e-4
    )  # no class has rows of its own
    assert result["power"] == pytest.approx([0.4505 * ONE] * 4, abs=2e-4)


def test_few_rows_of_a_class_take_the_width_of_all():
    time = np.concatenate([np.full(100, 1e-3), np.full(29, 10e-6), np.full(30, 50e-6)])
    ratio = np.concatenate([np.full(100, 0.1), np.full(29, 0.9), np.full(30, 0.5)])
    (result,) = widths(time, {"time": ratio}, np.zeros(159)).values()
    whole = np.quantile(ratio, 0.9)
    wider = np.array([whole, 0.5, whole, 0.1]) * ONE
    assert result == pytest.approx(wider.tolist(), abs=1e-4)


def test_too_few_rows_have_no_width():
    """A quantity that was hardly read; NaN rows do not count."""
    time, one = np.full(100, 1e-3), np.zeros(100)
    rare = np.where(np.arange(100) < 29, 0.1, np.nan)
    result = widths(time, {"time": np.full(100, 0.2), "power": rare}, one)
    assert result.keys() == {"time"}
    assert result["time"] == pytest.approx([0.2 * ONE] * 4, abs=1e-4)
    thirty = np.where(np.arange(100) < 30, 0.1, np.nan)
    assert widths(time, {"power": thirty}, one).keys() == {"power"}


def test_groups_that_differ_widen():
    """Of three groups whose errors are 0.1, 0.2 and 0.4 throughout, the others' 90 % is
    0.4, 0.4 and 0.2: the last needs twice that; groups that are alike need no more."""
    time, groups = np.full(120, 1e-3), np.repeat(["a", "b", "c"], 40)
    apart = widths(time, {"time": np.repeat([0.1, 0.2, 0.4], 40)}, groups)
    assert apart["time"] == pytest.approx([0.8 * THREE] * 4, abs=2e-4)
    alike = widths(time, {"time": np.full(120, 0.3)}, groups)
    assert alike["time"] == pytest.approx([0.3 * THREE] * 4, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_that_nobody_saw_is_covered(seed: int):
    """Seven groups, each with a bias of its own: of an eighth, 85 to 97 % (drawn 200
    times; pooled quantiles alone cover 5 points less)."""
    rng = np.random.default_rng(seed)
    inside = []
    for _ in range(200):
        bias = 0.1 * rng.normal(size=8)
        ratio = (bias[:, None] + 0.05 * rng.normal(size=(8, 40))).ravel()
        groups, time = np.repeat(np.arange(8), 40), np.full(320, 1e-3)
        seen = groups < 7
        result = widths(time[seen], {"time": ratio[seen]}, groups[seen])["time"][-1]
        inside.append(np.mean(np.abs(ratio[~seen]) <= result))
    assert 0.85 < np.mean(inside) < 0.97


def test_classes_that_were_left_out_stand_for_unknown_ones():
    """Instead of an assumed width; passes and classes with rows keep their own."""
    wide = same(0.9, 0.8, 1.1)
    spread = {"class:forecast": wide, "gemm:forecast": same(0.3, 0.3, 0.3)}
    assert alike(spread, "my_own_kernel", "forecast").widths == wide
    assert alike(spread, "gemm", "forecast").widths == same(0.3, 0.3, 0.3)
    for kind, grade in (("workload", "forecast"), ("my_own_kernel", "transferred")):
        known = alike({}, kind, grade).widths
        assert alike(spread, kind, grade).widths == known


# --- trust

SPREADS: dict[str, Spread] = {
    "nothing": {},
    "calibrated": {"gemm:calibrated": same(0.1, 0.08, 0.15)},
    "wide calibrated": {"gemm:calibrated": same(0.9, 0.8, 1.1)},
    "transferred": {"gemm:transferred": same(0.2, 0.15, 0.25)},
    "forecast": {"gemm:forecast": same(0.2, 0.15, 0.3)},
    "wide forecast": {
        "gemm:calibrated": same(0.1, 0.08, 0.15),
        "gemm:forecast": same(0.8, 0.7, 1.0),
    },
    "time alone": {"gemm:calibrated": {"time": [0.3, 0.2, 0.15, 0.1]}},
}


def alike(spread: Spread, kind: str, grade: str, *beyond: str, gpu: str = "") -> Trust:
    """Trust of one grade in all quantities."""
    return trust(spread, kind, dict.fromkeys(QUANTITIES, grade), gpu, beyond)


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("kind", ["gemm", "moe"])
def test_a_worse_grade_is_never_narrower(name: str, kind: str):
    assert GRADES == ("calibrated", "transferred", "forecast", "datasheet")
    by_grade = [alike(SPREADS[name], kind, grade) for grade in GRADES]
    assert [x.grade for x in by_grade] == [*GRADES]
    for quantity in QUANTITIES:
        sizes = np.array([x.half_width(quantity, TIMES) for x in by_grade])
        assert sizes.shape == (4, 4) and np.all(sizes > 0)
        if name not in GRADES[1:] or kind != "gemm":  # measured: as wide as it was seen
            assert np.all(np.diff(sizes, axis=0) >= 0), quantity


def test_each_quantity_has_the_width_of_its_grade():
    """And the whole is no better than the least of them."""
    spread = {
        f"gemm:{x}": same(0.1 * i, 0.2 * i, 0.3 * i) for i, x in enumerate(GRADES, 1)
    }
    grades = {"time": "calibrated", "power": "datasheet", "energy": "forecast"}
    result = trust(spread, "gemm", grades, "a10")
    for quantity, size in (("time", 0.1), ("power", 0.8), ("energy", 0.9)):
        assert result.widths[quantity] == pytest.approx([size] * 4)
    assert result.grade == "datasheet"
    assert result.to_json() == {"grade": "datasheet", "grades": grades}


def test_forecasts_are_never_narrow():
    """GPUs that were left out have close relatives among the fitted ones."""
    spread = {f"gemm:{grade}": same(0.05, 0.3, 0.05) for grade in GRADES}
    assert alike(spread, "gemm", "forecast").widths == same(0.2, 0.3, 0.25)
    for grade in ("calibrated", "transferred"):
        assert alike(spread, "gemm", grade).widths == same(0.05, 0.3, 0.05)
    # of passes two architectures alone were left out
    spread = {f"workload:{grade}": same(0.05, 0.5, 0.05) for grade in GRADES}
    assert alike(spread, "workload", "forecast").widths == same(0.4, 0.5, 0.45)


def test_grades_without_left_out_rows_take_the_wider():
    """Of the better grades' widths and the general ones of the grade."""
    general = {grade: alike({}, "gemm", grade) for grade in GRADES}
    narrow = alike(SPREADS["calibrated"], "gemm", "forecast")
    assert narrow.widths == general["forecast"].widths
    wide = alike(SPREADS["wide calibrated"], "gemm", "forecast")
    assert wide.widths == same(0.9, 0.8, 1.1)
    other = alike(SPREADS["wide calibrated"], "moe", "calibrated")  # another kind
    assert other.widths == general["calibrated"].widths
    part = alike(SPREADS["time alone"], "gemm", "calibrated")
    assert part.half_width("time", TIMES).tolist() == [0.3, 0.2, 0.15, 0.1]
    assert part.half_width("power", 1.0) == general["calibrated"].half_width(
        "power", 1.0
    )


def test_beyond_the_fitted_rows_the_wider_is_taken():
    """Of the grade's own and of left-out clocks or lengths, by quantity and class; what
    was never left out adds nothing."""
    spread = {
        "gemm:calibrated": same(0.1, 0.3, 0.2),
        "gemm:clock": {"time": [0.4, 0.05, 0.4, 0.05], "power": [0.2] * 4},
        "gemm:length": {"time": [0.2, 0.2, 0.6, 0.05], "energy": [0.5] * 4},
    }
    slow = alike(spread, "gemm", "calibrated", "clock").widths
    assert slow == same(0.1, 0.3, 0.2) | {"time": [0.4, 0.1, 0.4, 0.1]}
    both = alike(spread, "gemm", "calibrated", "clock", "length").widths
    assert both == same(0.1, 0.3, 0.5) | {"time": [0.4, 0.2, 0.6, 0.1]}
    other = alike(spread, "moe", "calibrated", "clock", "length")
    assert other.widths == alike({}, "moe", "calibrated").widths


def test_errors_are_those_of_the_gpu_or_of_all():
    """By the grade of each quantity; a table of others says over which."""
    spread = {
        "gemm:calibrated": same(0.1, 0.1, 0.1)
        | {"mape_pct": {"time": {"all": 4.0, "a10": 3.0, "l4": 9.0}}}
        | {"gpus": ["a10", "l4"]},
        "gemm:forecast": same(0.4, 0.4, 0.4)
        | {"mape_pct": {"time": {"all": 20.0}, "power": {"all": 15.0, "t4": 15.0}}}
        | {"gpus": ["t4"]},
    }
    grades = {"time": "calibrated", "power": "forecast", "energy": "forecast"}
    own = trust(spread, "gemm", grades, "a10")
    assert own.mape_pct == {"time": 3.0, "power": 15.0}
    assert own.over == {"time": ["a10"], "power": ["t4"]}
    others = trust(spread, "gemm", grades, "h100-sxm")
    assert others.mape_pct == {"time": 4.0, "power": 15.0}
    assert others.over == {"time": ["a10", "l4"], "power": ["t4"]}


def test_independent_errors_add_as_squares():
    """3 and 4 are 5."""
    result = alike({"gemm:calibrated": same(0.3, 0.3, 0.3)}, "gemm", "calibrated")
    more = result.widened({"time": 0.4, "power": 0.0})
    for quantity, size in (("time", 0.5), ("power", 0.3), ("energy", 0.3)):
        assert more.widths[quantity] == pytest.approx([size] * 4)
    assert more.grades == result.grades


def test_intervals_have_the_width_of_their_duration():
    """In the logarithm."""
    result = Trust({}, {"time": (0.4, 0.3, 0.2, 0.1)})
    just = [x * s for x in DURATIONS for s in (1 - 1e-9, 1 + 1e-9)]
    ratio = np.exp([0.4, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1])
    low, high = result.interval("time", 5.0, [0.0, *just, 9.0])
    assert low == pytest.approx(5 / ratio) and high == pytest.approx(5 * ratio)


# --- grades of a corrections file


@pytest.fixture
def file():
    """Fitted on GEMMs of the H200, whose power was read, passes of the A10 (GEMMs and
    softmax) and attention of the A100, timed alone."""
    rows = {
        "h200-sxm:gemm": {"time": 100, "power": 60},
        "a10:workload": {"time": 50, "power": 50, "ops": ["gemm", "softmax"]},
        "a100-pcie-40gb:context_attention": {"time": 40, "power": 0},
    }
    known = {"h200-sxm": "Hopper", "a10": "Ampere", "a100-pcie-40gb": "Ampere"}
    on = {
        "rows": rows,
        "architectures": {gpu: f"architecture:{x}" for gpu, x in known.items()},
    }
    spread = {
        f"{kind}:{grade}": same(*(scale * x for x in (0.1, 0.08, 0.15)))
        for kind in ("gemm", "workload")
        for grade, scale in zip(GRADES[:3], (1.0, 2.0, 5.0), strict=True)
    }
    return dataclasses.replace(prior_file(), fitted_on=on, spread=spread)


FORECAST, TRANSFERRED, CALIBRATED = "forecast", "transferred", "calibrated"


@pytest.mark.parametrize(
    ("gpu", "kind", "time", "power"),
    [
        ("h200-sxm", "gemm", CALIBRATED, CALIBRATED),
        ("h100-sxm", "gemm", TRANSFERRED, TRANSFERRED),
        ("b200-sxm", "gemm", FORECAST, FORECAST),
        ("a10", "gemm", CALIBRATED, CALIBRATED),  # inside passes
        ("a10", "softmax", CALIBRATED, CALIBRATED),
        ("h200-sxm", "softmax", FORECAST, FORECAST),  # by an Ampere alone
        ("a10", "workload", CALIBRATED, CALIBRATED),
        ("a100-sxm-80gb", "workload", TRANSFERRED, TRANSFERRED),
        ("h200-sxm", "workload", FORECAST, FORECAST),  # no such rows of it
        # timed, but its power never read
        ("a100-pcie-40gb", "context_attention", CALIBRATED, FORECAST),
        ("a10", "context_attention", TRANSFERRED, FORECAST),
        ("h200-sxm", "moe", FORECAST, FORECAST),  # nobody fitted one
        ("h200-sxm", "my_own_kernel", FORECAST, FORECAST),
    ],
)
def test_grades_by_what_was_fitted(file, gpu: str, kind: str, time: str, power: str):
    card = read_gpu(gpu)
    assert [file.grade(card, kind, x) for x in ("time", "power")] == [time, power]
    result = file.trust(card, kind)
    assert dict(result.grades) == {"time": time, "power": power, "energy": power}
    assert result.grade == power


@pytest.mark.parametrize(
    ("gpu", "kind", "new", "width"),
    [
        ("h200-sxm", "gemm", False, 0.1),
        ("h200-sxm", "gemm", True, 0.5),  # a changed GPU
        ("h100-sxm", "gemm", False, 0.2),
        ("h200-sxm", "workload", False, 0.5),  # no such rows of it
        ("a10", "workload", False, 0.1),
        ("h200-sxm", "moe", False, 0.4),  # never left out: general
    ],
)
def test_widths_by_grade(file, gpu: str, kind: str, new: bool, width: float, tmp_path):
    """Also of the file as it is written."""
    path = tmp_path / "c.json"
    path.write_text(write_corrections(file))
    assert read_corrections(path).spread == file.spread
    result = file.trust(read_gpu(gpu), kind, new)
    assert result.half_width("time", 1e-3) == pytest.approx(width)


def test_the_least_known_op_inside_decides(file):
    """For each quantity, and energy is no better known than both."""
    card = read_gpu("a10")
    assert file.trust(card, holds=["gemm", "softmax"]).grade == CALIBRATED
    timed = file.trust(card, holds=["gemm", "context_attention"])
    assert timed.grades == {
        "time": TRANSFERRED, "power": FORECAST, "energy": FORECAST
    }  # fmt: skip
    assert file.trust(card, "gemm", holds=["moe"]).grade == FORECAST


def test_files_that_count_rows_alone_tell_of_times(file):
    """As they were written before: every number is one of times."""
    on = file.fitted_on | {"rows": {"h200-sxm:gemm": 100, "a10:workload": 50}}
    earlier = dataclasses.replace(file, fitted_on=on)
    h200, h100 = read_gpu("h200-sxm"), read_gpu("h100-sxm")
    assert earlier.grade(h200, "gemm", "time") == CALIBRATED
    assert earlier.grade(h100, "gemm", "time") == TRANSFERRED
    assert earlier.grade(h200, "gemm", "power") == FORECAST
    bare = dataclasses.replace(earlier, fitted_on={"rows": on["rows"]})
    assert bare.grade(h100, "gemm", "time") == FORECAST  # no architecture is known


def test_nothing_fitted_is_a_data_sheet():
    for new in (False, True):
        result = prior_file().trust(read_gpu("h200-sxm"), "gemm", new)
        assert result.grade == "datasheet" and result.half_width("time", 1.0) == 0.6
        assert {*result.grades.values()} == {"datasheet"}
