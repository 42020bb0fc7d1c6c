"""Programs read at two power limits: the model's own programs are found again."""

import numpy as np
import pytest

from calibration.limits import (
    BUSY_POWER,
    BUSY_SHARE,
    at_limits,
    responses,
)
from diffenergy.corrections import prior_file
from diffenergy.hardware import read_gpu

LIMITS = (150.0, 175.0, 200.0, 225.0, 250.0)


@pytest.fixture(scope="module")
def card():
    return read_gpu("v100-pcie-32gb")


@pytest.fixture(scope="module")
def constants(card):
    return prior_file().serve(card)


@pytest.fixture(scope="module")
def grid(card, constants):
    """(time, power) of every program under each of `LIMITS`."""
    return responses(card, constants, LIMITS)


def test_a_lower_limit_takes_longer_and_draws_less(grid):
    time, power = grid
    possible = np.isfinite(power).all(-1)
    assert possible.mean() > 0.5
    assert (np.diff(time[possible], axis=-1) <= 1e-9).all()
    assert (np.diff(power[possible], axis=-1) >= -1e-6).all()


def test_mean_power_is_at_most_the_limit(grid, card):
    _, power = grid
    drawn = np.array(LIMITS) * card.values["cap_fraction"]
    assert np.nanmax(power / drawn) <= 1.005


def test_waiting_programs_read_below_their_limit(grid):
    """Half of the time idle: the mean is between idle power and the limit."""
    _, power = grid
    hot, waits = len(BUSY_POWER) - 1, int(np.argmin(np.abs(BUSY_SHARE - 0.5)))
    assert power[hot, 0, waits, -1] < 0.85 * LIMITS[-1]
    assert power[hot, 0, -1, -1] == pytest.approx(0.99 * LIMITS[-1], rel=0.02)


def error(grid, card, constants, read: list[int]) -> tuple[float, float]:
    """Mean errors of time and power at the limits between, over capped programs that
    were read at some limits."""
    misses = []
    for program in np.ndindex(2, 2, 2):
        at = tuple(
            i * step + first
            for i, step, first in zip(program, (8, 6, 9), (24, 1, 10), strict=True)
        )
        time, power = (x[at] for x in grid)
        limits = [LIMITS[i] for i in read]
        result = at_limits(
            card, constants, limits, 360 * time[read], power[read], LIMITS[1:4]
        )
        ratio = (
            np.log(result.time / (360 * time[1:4])),
            np.log(result.power / power[1:4]),
        )
        misses.append(np.abs(ratio).mean(-1))
    return tuple(np.mean(misses, axis=0))


def test_two_readings_find_programs_again(grid, card, constants):
    time, power = error(grid, card, constants, [0, -1])
    assert time < 0.01 and power < 0.01


def test_one_reading_does_not_tell_busy_from_waiting(grid, card, constants):
    (two, _), (one, _) = (error(grid, card, constants, r) for r in ([0, -1], [-1]))
    assert two < 0.7 * one


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_readings_must_be_positive(card, constants, bad):
    with pytest.raises(ValueError, match="positive numbers"):
        at_limits(card, constants, [250.0], [bad], [200.0], [200.0])
