"""Kernels of a stage as one, and launches in parts, by hand."""

import numpy as np
import pytest

from diffenergy.dvfs._groups import by_stage, split
from diffenergy.dvfs._problem import Loop

from .builders import random_problem


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (1, [1]), (2, [1, 1]), (3, [1, 2]), (4, [1, 2, 1]), (7, [1, 2, 4]),
        (10, [1, 2, 4, 3]), (15, [1, 2, 4, 8]), (0.5, [0.5]), (3.5, [1, 2, 0.5]),
    ],
)  # fmt: skip
def test_parts_of_launches(count: float, parts: list[float]):
    problem = random_problem(0, num_kernels=2, num_settings=2)
    counts = np.array([count, 1.0])
    problem = problem.take(np.arange(2), count=counts)
    found = split(problem)
    assert found.problem.count.tolist() == [*parts, 1]
    assert found.origin.tolist() == [0] * len(parts) + [1]
    assert found.problem.time.shape == (len(parts) + 1, 2)


def test_stages_by_hand():
    """a and b of the first stage three times, then twice c and d: the stage is turned
    to once; d cannot run at the second setting, so its stage cannot."""
    problem = random_problem(0, num_kernels=4, num_settings=2)
    inf = np.inf
    problem = problem.take(
        np.arange(4), count=np.array([3.0, 3.0, 2.0, 4.0]),
        time=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, inf]]),
        energy=np.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0], [70.0, inf]]),
        default_time=np.arange(4.0), default_energy=10 * np.arange(4.0),
        loops=(Loop((0, 1), 3), Loop((2, 3, 3), 2)),
    )  # fmt: skip
    found = by_stage(problem)
    assert found.origin.tolist() == [0, 0, 1, 1]
    stages = found.problem
    assert stages.count.tolist() == [1, 1]
    assert stages.loops == (Loop((0,), 1), Loop((1,), 1))
    assert stages.time.tolist() == [[12, 18], [38, inf]]
    assert stages.energy.tolist() == [[120, 180], [380, inf]]
    assert stages.default_time.tolist() == [3, 16]
    assert stages.default_energy.tolist() == [30, 160]
    turns = problem.take(np.arange(4), loops=(Loop((0, 2, 1, 3), 3), Loop((2,), 1)))
    again = by_stage(turns).problem
    assert again.count.tolist() == [6, 7]
    assert again.loops == (Loop((0, 1, 0, 1), 3), Loop((1,), 1))
    assert again.time[0] == pytest.approx(np.array([2.0, 3.0]))
    none = by_stage(problem.take(np.arange(4))).problem  # no launch order
    assert none.count.tolist() == [1, 1]
