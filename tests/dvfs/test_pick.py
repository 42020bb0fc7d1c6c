"""The best of some plans, and the least on a line, by hand and by trying all."""

import numpy as np
import pytest

from diffenergy.dvfs import Objective
from diffenergy.dvfs._hulls import Line
from diffenergy.dvfs._pick import least_value
from diffenergy.dvfs._problem import Total

LINE = Line(np.array([1.0, 2.0, 4.0]), np.array([10.0, 4.0, 2.0]))
DEFAULT = Total(np.asarray(2.0), np.asarray(6.0))


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
