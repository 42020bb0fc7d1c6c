"""The optimizer of fits on two readings of two unknowns: closed form, interrupts."""

import numpy as np
import pytest

from diffenergy.fitting._least_squares import LeastSquares

READ = np.array([3.0, 1.0])
SLOPES = np.array([[1.0, 1.0], [0.0, 2.0]])


class Line(LeastSquares):
    """Readings `SLOPES` z, priors around 0."""

    width = np.array([2.0, 0.5])

    def residuals(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([SLOPES @ z - READ, z / self.width])

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([SLOPES, np.diag(1 / self.width)])


def test_normal_equations():
    """(A'A + 1/sd^2) z = A' y, and half of the squares there."""
    result = Line().minimise(np.zeros(2), 50, 1e-12, 1e-12)
    left = SLOPES.T @ SLOPES + np.diag(Line.width**-2.0)
    z = np.linalg.solve(left, SLOPES.T @ READ)
    assert result.z == pytest.approx(z, rel=1e-6) and not result.interrupted
    assert result.cost == pytest.approx(0.5 * (Line().residuals(z) ** 2).sum())
    assert result.information == pytest.approx(left)


@pytest.mark.parametrize("last", [1, 2])
def test_an_interrupt_keeps_the_best_point(last: int):
    seen: list[float] = []

    def stop(steps: int, cost: float) -> None:
        seen.append(cost)
        if steps == last:
            raise KeyboardInterrupt

    result = Line().minimise(np.full(2, 5.0), 50, 1e-12, 1e-12, stop)
    assert result.interrupted and result.evaluations == last
    assert result.cost == min(seen)
    assert result.cost == pytest.approx(0.5 * (Line().residuals(result.z) ** 2).sum())
    assert result.information == pytest.approx(np.diag([0.25, 4.0]))
