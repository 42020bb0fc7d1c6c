"""What is asked of a plan, argument by argument, and the summary's parts, by hand."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Plan, Rules, Switching
from diffenergy.dvfs._advice import advice
from diffenergy.dvfs._costs import PowerCurve
from diffenergy.dvfs._result import _tokens, curve_rows, limited

from .builders import Total


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 8 * 512), ({"phase": "generate"}, 8 * 64), ({"batch": None}, None),
        ({"phase": "train", "accumulation": 4}, 4 * 8 * 512),
        ({"input_len": None}, None), ({"phase": "decode", "input_len": None}, 8),
        ({"accumulation": None}, 8 * 512),
    ],
)  # fmt: skip
def test_tokens_of_an_iteration(changes: dict[str, Any], tokens: float | None):
    about = {"batch": 8, "phase": "prefill", "input_len": 512, "output_len": 64}
    assert _tokens(about | changes) == tokens


CURVE = PowerCurve(
    np.array([100.0, 150.0, 200.0, 250.0]),
    np.array([4.0, 3.0, 2.2, 2.0]),
    np.array([300.0, 360.0, 400.0, 450.0]),
    np.array([6e8, 9e8, 1.2e9, 1.4e9]),
    np.array([False, True, True, True]),
)
DEFAULT = Total(np.asarray(2.0), np.asarray(450.0))


@pytest.mark.parametrize(
    ("objective", "limit"),
    [
        (Objective(), 150), (Objective(max_slowdown=10.0), 200),
        (Objective(max_slowdown=0.0), 250), (Objective("time"), 250),
        (Objective("edp"), 200), (Objective(power_cap=150.0), 150),
        (Objective("time", power_cap=200.0), 200), (Objective(max_slowdown=-5.0), None),
    ],
)  # fmt: skip
def test_the_power_limit_that_serves_best(objective: Objective, limit: float | None):
    """Of those that can be kept; 400 J x 2.2 s is the least product."""
    result = limited(CURVE, CURVE, objective, DEFAULT)
    assert (result and result["power_limit_w"]) == limit
    if result is None:
        return
    i = CURVE.limit.tolist().index(limit)
    assert (result["time_s"], result["energy_j"]) == (CURVE.time[i], CURVE.energy[i])
    assert result["time_change_pct"] == pytest.approx(50 * CURVE.time[i] - 100)


def test_rows_of_a_power_curve():
    about = {"batch": 8, "phase": "decode", "input_len": 5, "output_len": None}
    first, *rest = curve_rows(CURVE, about)
    assert first == {
        "power_limit_w": 150, "time_s": 3, "energy_j": 360, "avg_power_w": 120,
        "sm_clock_mhz": pytest.approx(900), "tokens_per_s": pytest.approx(8 / 3),
    }  # fmt: skip
    assert len(rest) == 2
    assert curve_rows(CURVE, about | {"batch": 0})[0]["tokens_per_s"] is None


def planned(saved: float) -> Plan:
    """A plan of 2 s that saves some % of 450 J."""
    energy, none = 450 * (1 - saved / 100), np.zeros(0, int)
    return Plan(
        none, none, none * 1.0, 2.0, energy, energy, energy, energy, "by hand", 0.0
    )  # fmt: skip


KERNEL, PHASE, ONE = (
    Rules(granularity=x, switching=Switching("stall", 0.01))
    for x in ("kernel", "phase", "iteration")
)


@pytest.mark.parametrize(
    ("rules", "own", "phase", "one", "stages", "reported"),
    [
        (KERNEL, 13.0, 12.8, 5.0, 2, "one clock a phase saves 12.8 of the 13.0 %: "
         "clocks per kernel are not worth it"),
        (KERNEL, 13.0, 12.9, 12.8, 2, "one clock saves 12.8 of the 13.0 %: "
         "clocks per phase or kernel are not worth it"),
        (KERNEL, 13.0, 12.9, 12.8, 1, "one clock saves 12.8 of the 13.0 %: "
         "clocks per kernel are not worth it"),
        (Rules(), 13.0, None, None, 2, "clocks per kernel save 13.0 %, one clock a "
         "phase 0.0 %, one clock 0.0 %: clocks per kernel are worth it as long as "
         "changes take no time"),
        (KERNEL, 10.0, 12.0, 8.0, 2, "one clock a phase saves 12.0 %: clocks per "
         "kernel are not worth it"),
        (PHASE, 8.0, 8.0, 5.0, 2, "one clock a phase saves 8.0 %, one clock 5.0 %: "
         "clocks per phase are worth it"),
        (ONE, 5.0, 8.0, 5.0, 2, "one clock saves 5.0 %"),
        (KERNEL, 0.0, 0.0, 0.0, 2, "no clocks help within the limits: leave them "
         "alone"),
        (KERNEL, -3.0, None, None, 2, None),
    ],
)  # fmt: skip
def test_what_would_do(rules, own: float, phase, one, stages: int, reported):
    coarse = {"iteration": one, "phase": phase}
    plans = {k: None if x is None else planned(x) for k, x in coarse.items()}
    result = advice(Objective(), rules, DEFAULT, planned(own), plans, stages)
    assert result == reported


def test_savings_are_of_what_is_to_be_small():
    """Half the energy at the same time is half of E T and of E T^2."""
    result = dataclasses.replace(planned(50.0), value=225.0 * 2)
    plans = {"iteration": result, "phase": None}
    sentence = advice(Objective("edp"), KERNEL, DEFAULT, result, plans, 1)
    assert sentence is not None
    assert sentence.startswith("one clock saves 50.0 of the 50.0 % of energy x time:")
