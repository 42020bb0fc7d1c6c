"""The best of some plans, and the least on a line, by hand and by trying all."""

import numpy as np
import pytest

from diffenergy.dvfs import Objective
from diffenergy.dvfs._hulls import Line
from diffenergy.dvfs._pick import best, infeasible, least_value
from diffenergy.dvfs._problem import Total

LINE = Line(np.array([1.0, 2.0, 4.0]), np.array([10.0, 4.0, 2.0]))
DEFAULT = Total(np.asarray(2.0), np.asarray(6.0))
NONE = Total(np.empty(0), np.empty(0))


def totals(*pairs: tuple[float, float]) -> Total:
    return Total(*np.array(pairs).T)


@pytest.mark.parametrize(
    ("objective", "least"),
    [
        (Objective(), 2),
        (Objective(max_slowdown=50.0), 3),  # at 3 s, between 4 and 2 J
        (Objective(max_slowdown=-25.0), 7),
        (Objective(max_slowdown=-50.0), 10),
        (Objective(max_slowdown=-51.0), np.inf),
        (Objective(max_slowdown=100.0), 2),
        (Objective("edp"), 8),
        (Objective("edp", -25.0), 10),
        (Objective("ed2p"), 10),
        (Objective("time"), 1),
        # 16 - 6 x = 3 x; 6 - x = 3 x is left of the piece
        (Objective("time", power_cap=3.0), 16 / 9),
        (Objective("time", power_cap=1.0), 3),
        (Objective("time", -20.0, 3.0), np.inf),
        (Objective("time", 100.0, 0.4), np.inf),
    ],
)
def test_the_least_on_a_line(objective: Objective, least: float):
    assert least_value(LINE, objective, DEFAULT) == pytest.approx(least)
    nothing = Line(np.empty(0), np.empty(0))
    assert np.isinf(least_value(nothing, objective, DEFAULT))


def test_the_best_plan_or_the_default():
    plans = totals((1.9, 7.0), (2.1, 3.0), (2.0, 5.0), (2.0, 4.5), (4.0, 1.0))
    found = best(plans, Objective(max_slowdown=0.0), DEFAULT)
    assert found is not None and (found.plan, found.value) == (3, 4.5)
    assert found.total == (2.0, 4.5)
    found = best(totals((1.9, 6.5)), Objective(max_slowdown=0.0), DEFAULT)
    assert found is not None and (found.plan, found.value) == (-1, 6.0)
    assert found.total is DEFAULT
    found = best(totals((1.9, 6.0)), Objective(max_slowdown=0.0), DEFAULT)
    assert found is not None and found.plan == 0  # as good as the default
    found = best(NONE, Objective(), DEFAULT)
    assert found is not None and found.plan == -1
    faster = Objective(max_slowdown=-5.0)
    assert best(NONE, faster, DEFAULT) is None
    assert best(totals((2.0, 1.0)), faster, DEFAULT) is None
    found = best(totals((2.0, 1.0), (1.9, 9.0)), faster, DEFAULT)
    assert found is not None and (found.plan, found.value) == (1, 9)


def test_what_could_be_had():
    """Of plans and the default: 1.5 s at 6 W, 2 s at 3 W, 4 s at 0.5 W."""
    plans = totals((1.5, 9.0), (4.0, 2.0))
    late = infeasible(plans, Objective(max_slowdown=-30.0), DEFAULT)
    assert late.least == {"max_slowdown": -25.0, "power_limit": 0.5}
    assert "slowdown of -30 %; the least reachable is -25.00 %" in str(late)
    just = infeasible(totals((1.9999, 9.0)), Objective(max_slowdown=-30.0), DEFAULT)
    assert "the least reachable is 0.00 %" in str(just)
    cool = infeasible(plans, Objective(max_slowdown=-10.0, power_cap=3.0), DEFAULT)
    assert cool.least["max_slowdown"] == 0
    hot = infeasible(plans, Objective(power_cap=0.4), DEFAULT)
    assert hot.least == {"max_slowdown": -25.0, "power_limit": 0.5}
    assert "draws 0.4 W or less; the least mean power is 0.50 W" in str(hot)
    odd = infeasible(totals((1.99999, 9.0)), Objective(max_slowdown=-9.0), DEFAULT)
    assert odd.least["max_slowdown"] == pytest.approx(-5e-4)
    assert "reachable is -0.00 %" in str(odd) or "reachable is 0.00 %" in str(odd)
    up = infeasible(totals((2.10002, 1.0)), Objective("time", power_cap=1.0), DEFAULT)
    assert "reachable is 5.01 %" in str(up)
