"""The clock by gradient: curves between clocks, the best of all that a board has."""

import numpy as np
import pytest

from diffenergy.hardware._clocks import sm_clocks
from diffenergy.serving import Load, deploy
from diffenergy.serving._answers import optimize
from diffenergy.serving._answers.clock_curve import between


def test_cubics_are_met_exactly():
    """Values and slopes of two cubics decide them; a kink of theirs stays at its
    knot."""
    knots, at = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.3, 1.9, 2.5, 3.9, 4.0])

    def cubic(x):
        return np.stack([x**3 - 2 * x + 1, 5 - x**2], axis=-1)

    def slope(x):
        return np.stack([3 * x**2 - 2, -2 * x], axis=-1)

    found = between(knots, cubic(knots), slope(knots), at)
    assert found == pytest.approx(cubic(at), rel=1e-12)
    # beyond the ends the end
    ends = between(knots, cubic(knots), slope(knots), np.array([0.0, 9.0]))
    assert ends == pytest.approx(cubic(np.array([1.0, 4.0])))
    # a figure that is not known at one end is not known within
    spoilt = cubic(knots)
    spoilt[0, 0] = np.inf
    found = between(knots, spoilt, slope(knots), at)
    assert not np.isfinite(found[1:3, 0]).any() and np.isfinite(found[3:]).all()


@pytest.mark.long
@pytest.mark.slow
def test_it_is_the_best_of_all_clocks():
    """Against every clock of the board with every limit that is tried."""
    load, objective = Load(rate=20, slo_tpot=0.03, slo_ttft=0.1), "energy"
    found = deploy("qwen3-0.6b", "a100-sxm-80gb", load)
    told = optimize.best(found, objective)[1]["optimized"]
    steps = np.sort(np.asarray(sm_clocks(found.card), float))
    limits = optimize._limits(found)
    look = optimize._looker(found, limits, len(steps))
    scores = optimize._scores(load, objective, look(steps))
    row = int(np.abs(steps / 1e6 - told["sm_clock_mhz"]).argmin())
    column = int(np.abs(limits - told["max_batch"]).argmin())
    assert scores[row, column] == pytest.approx(scores.min(), rel=1e-12)
    assert len(steps) > 60
