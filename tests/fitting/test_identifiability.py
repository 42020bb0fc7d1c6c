"""What a fit has learnt: cases whose answer follows from their design."""

import json

import numpy as np
import pytest
from json_keys import check_part

from diffenergy.corrections import CONSTANTS, prior_file
from diffenergy.fitting import _identifiability as identifiability
from diffenergy.fitting._identifiability import report

from .builders import NUMBERS, Parameter, Parameters

L2, DRAM, ISSUE = "energy_l2", "energy_dram", "energy_issue"
CLOCK, LEAKAGE, FMA = "sm_clock_energy", "leakage", "energy_fma"
NAMES = (L2, DRAM, ISSUE, CLOCK, LEAKAGE, FMA)
STRONG = 20.0
"""Prior over expected error of a reading."""


def learnt(readings, names=NAMES, factors=None, moved=None):
    """Report on readings, each a mapping from a constant to how much one prior sd of it
    moves the reading, in expected errors; `moved`: shifts of the mode in prior sds."""
    levels = {"global": names} | (factors or {})
    free = [Parameter(x, y, NUMBERS.get(y)) for x in levels for y in levels[x]]
    parameters = Parameters(tuple(free), prior_file().levels)

    def row(values) -> list[float]:
        whole = {x if "/" in x else f"global/{x}": y for x, y in values.items()}
        return [whole.get(str(p), 0.0) for p in free]

    jacobian = np.array([row(x) for x in readings]).reshape(-1, len(free))
    shift, sd = np.array(row(moved or {})), parameters.sd()
    jacobian = jacobian / sd
    covariance = np.linalg.inv(jacobian.T @ jacobian + np.diag(1 / sd**2))
    return report(parameters, parameters.centre() + shift * sd, covariance)


def equal(*names, by=STRONG):
    """A reading that holds the sum of constants."""
    return dict.fromkeys(names, by)


def named(result):
    """Members of each open combination."""
    return [{p.constant for p in d.parameters} for d in result.directions]


def constant(result, name):
    """Report on one global constant."""
    return next(c for c in result.constants if str(c.parameter) == f"global/{name}")


def test_two_constants_that_enter_as_a_sum_are_one_open_direction():
    result = learnt([equal(L2, DRAM), equal(L2, DRAM)])
    assert named(result) == [{L2, DRAM}]
    (direction,) = result.directions
    assert direction.weights == pytest.approx((0.5**0.5, -(0.5**0.5)), abs=1e-3)
    assert direction.ratio == pytest.approx(1, abs=1e-3)
    # half the variance of each goes with the sum, which the data hold
    assert constant(result, L2).ratio == pytest.approx(0.5**0.5, abs=1e-3)
    line = next(line for line in result.lines() if line.startswith("not told apart"))
    assert "(energy_l2) against" in line and "(energy_dram): the data hold" in line
    assert line.endswith(f"their sum; {CONSTANTS[L2].closes} would close it")


@pytest.mark.parametrize(
    "readings, expected",
    [
        ([], []),
        ([equal(name) for name in NAMES], []),
        ([equal(L2), equal(L2, DRAM)], []),
        # nearly one constant, which 0.3 prior sds measure
        ([{L2: STRONG, DRAM: 0.32 * STRONG}], [{L2, DRAM}]),
        ([{L2: STRONG, DRAM: 0.31 * STRONG}], []),
        # a sum of slope s leaves 1 / (1 + 2 s^2) of its variance: known to 0.3 sds
        ([equal(L2, DRAM, by=2.25)], [{L2, DRAM}]),
        ([equal(L2, DRAM, by=2.2)], []),
        # own readings t leave 1 / (1 + t^2) of the difference: open from a half on, as
        # long as the other doubles a variance, 1 / (1 - r^2)
        ([equal(L2, DRAM), {L2: 0.98}, {DRAM: 0.98}], [{L2, DRAM}]),
        ([equal(L2, DRAM), {L2: 1.02}, {DRAM: 1.02}], []),
        ([equal(L2, DRAM, by=2.184), {L2: 0.976}, {DRAM: 0.976}], [{L2, DRAM}]),
        ([equal(L2, DRAM, by=2.169), {L2: 0.976}, {DRAM: 0.976}], []),
        ([equal(L2, DRAM, ISSUE, CLOCK)], [{L2, DRAM, ISSUE, CLOCK}]),
        ([equal(L2, DRAM, ISSUE, CLOCK, LEAKAGE)], []),  # of five: too many
        ([equal(L2, DRAM), equal(L2, ISSUE)], [{L2, DRAM, ISSUE}]),
        ([equal(L2, DRAM), equal(ISSUE, CLOCK)], [{L2, DRAM}, {ISSUE, CLOCK}]),
        ([equal(L2, DRAM, ISSUE), equal(ISSUE)], [{L2, DRAM}]),
        ([equal(L2, DRAM), equal(DRAM, ISSUE, CLOCK)], [{L2, DRAM, ISSUE, CLOCK}]),
    ],
)
def test_open_directions_are_the_trade_offs_of_the_design(readings, expected):
    """Whatever the order of constants."""
    assert named(learnt(readings)) == expected
    backward = named(learnt(readings, NAMES[::-1]))
    assert sorted(map(sorted, backward)) == sorted(map(sorted, expected))


def test_the_line_of_what_the_others_blur_most():
    """A strong sum u of three leaves 1 - u u^T of the variance: the row of the greatest
    part of u, of which least is left alone (1 / (1 - u^2) of inflation)."""
    reading = {L2: 0.6 * STRONG, DRAM: 0.7 * STRONG, ISSUE: 0.4 * STRONG}
    (direction,) = learnt([reading]).directions
    u = np.array([0.6, 0.7, 0.4]) / np.linalg.norm([0.6, 0.7, 0.4])
    row = np.eye(3)[1] - u[1] * u
    row = -row / np.linalg.norm(row)  # the first is positive
    assert direction.weights == pytest.approx(tuple(row), abs=0.01)
    assert direction.ratio == pytest.approx(1, abs=0.01)
    assert direction.text.endswith("sum")
    some = {L2: 0.3 * STRONG, DRAM: 0.9 * STRONG}
    (direction,) = learnt([some]).directions
    assert direction.weights == pytest.approx((0.95, -0.316), abs=0.01)


def test_the_smallest_member_of_a_trade():
    """The line follows the row (1, c): a member of less than 0.2 is none, nor a third
    that the others blur by less than half of its variance."""
    for c, traded in ((0.21, True), (0.195, False)):
        block = np.array([[1.0, -c], [-c, 0.06]])
        assert identifiability._traded(block) is traded
    third = np.array([[1.0, -0.95, 0.3], [-0.95, 1.0, -0.3], [0.3, -0.3, 1.0]])
    assert not identifiability._traded(third)


def test_constants_of_a_meter_say_how_was_read():
    tag = "sensor:ours/1:moe"
    result = learnt([], names=(FMA,), factors={tag: ("hot_share",), "gpu:a10": (FMA,)})
    actual = {c.parameter.tag: c for c in result.constants}
    own = actual[tag]
    assert own.measurement.endswith(", as ours/1:moe was read")
    assert own.measurement.startswith(own.parameter.row.closes)
    assert own.unit == own.parameter.row.unit != "x"
    assert actual["gpu:a10"].unit == "x"
    assert actual["gpu:a10"].measurement.endswith(", on a GPU of gpu:a10")
    assert actual["global"].measurement == CONSTANTS[FMA].closes
    (line,) = (x for x in result.lines() if "(hot_share, as ours/1:moe was read)" in x)
    assert line.startswith("left at the prior: ") and line.endswith("close it")
    what, _, _ = CONSTANTS[FMA].what.partition(";")
    named = f"energy per FLOP: {what} (energy_fma, factor of gpu:a10)"
    assert any(named in x for x in result.lines())


def test_names_of_one_measurement_share_a_line():
    result = learnt([], names=(L2, DRAM, FMA))
    counts, *lines = result.lines()
    assert counts == "constants: 0 measured, 0 partly, 3 open"
    closes = [CONSTANTS[name].closes for name in (L2, DRAM, FMA)]
    assert len(lines) == len(set(closes))
    for line, end in ((x, "them" if "; " in x else "it") for x in lines):
        assert line.endswith(f"would close {end}")


@pytest.mark.parametrize(
    ("ratio", "status"),
    [(0.05, "measured"), (0.295, "measured"), (0.305, "partly"), (0.795, "partly"),
     (0.805, "open"), (1.0, "open")],
)  # fmt: skip
def test_status_follows_what_the_data_add(ratio: float, status: str):
    """A reading of slope s leaves 1 / sqrt(1 + s^2) of the prior sd, here of 0.3; a
    constant that is open and in no combination is named with what would close it."""
    result = learnt([{FMA: (ratio**-2 - 1) ** 0.5}])
    actual = constant(result, FMA)
    assert actual.status == status
    assert actual.ratio == pytest.approx(ratio)
    assert actual.posterior_sd == pytest.approx(ratio * 0.3)
    closes = CONSTANTS[FMA].closes
    named = any(FMA in line and closes in line for line in result.lines())
    assert named == (status == "open")


@pytest.mark.parametrize("sds, left", [(3.05, True), (-3.05, True), (2.95, False)])
def test_values_beyond_three_prior_sds_are_flagged(sds, left):
    result = learnt([equal(FMA)], moved={FMA: sds})
    report_on = constant(result, FMA)
    assert report_on.shift == pytest.approx(sds)
    assert report_on.left_prior is left
    assert report_on.value == pytest.approx(5e-12 * np.exp(0.3 * sds))
    side = "above" if sds > 0 else "below"
    flagged = [line for line in result.lines() if "left its prior" in line]
    assert len(flagged) == left
    assert all(f"3.0 prior sds {side}" in line for line in flagged)


def test_values_are_in_natural_units():
    both = ("dram_efficiency", DRAM)
    result = learnt([], names=both, factors={"memory:HBM3": both})
    values = {str(c.parameter): (c.value, c.unit) for c in result.constants}
    assert values == {
        "global/dram_efficiency": (pytest.approx(0.92), "-"),
        "global/energy_dram": (pytest.approx(75e-12), "J/B"),
        "memory:HBM3/dram_efficiency": (pytest.approx(1.0), "x"),
        "memory:HBM3/energy_dram": (pytest.approx(0.8), "x"),
    }


def test_a_factor_and_what_it_multiplies_need_another_gpu():
    result = learnt(
        [equal(DRAM, "memory:HBM3/energy_dram")], factors={"memory:HBM3": (DRAM,)}
    )
    (direction,) = result.directions
    assert [p.tag for p in direction.parameters] == ["global", "memory:HBM3"]
    assert direction.text.endswith("the data hold their product")
    assert "not of memory:HBM3" in direction.measurement
    # a rate rises with the cost that it is read against
    reading = {"tensor_efficiency": -STRONG, "own_cycles": STRONG}
    (direction,) = learnt([reading], names=tuple(reading)).directions
    text = "more tensor_efficiency and more own_cycles give the same readings"
    assert direction.text.endswith(text)


def test_json_holds_what_the_report_holds():
    result = learnt([equal(L2, DRAM)], factors={"gpu:a10": ("core_energy",)})
    body = json.loads(json.dumps(result.to_json()))
    assert set(body) == {"constants", "open_directions"}
    assert body["constants"][0] == {
        "level": "global",
        "constant": L2,
        "value": pytest.approx(8e-12),
        "unit": "J/B",
        "prior_sd": 0.4,
        "posterior_sd": pytest.approx(0.4 * 0.5**0.5, rel=1e-2),
        "ratio": pytest.approx(0.5**0.5, rel=1e-2),
        "shift": pytest.approx(0),
        "left_prior": False,
        "status": "partly",
        "measurement": CONSTANTS[L2].closes,
    }
    assert body["constants"][-1]["level"] == "gpu:a10"
    check_part("constant", body["constants"])
    check_part("direction", body["open_directions"])
    (direction,) = body["open_directions"]
    assert direction["constants"] == ["global/energy_l2", "global/energy_dram"]
