"""Residuals and slopes by hand, errors that a fit leaves, interrupts."""

import dataclasses

import numpy as np
import pytest

from diffenergy.corrections import (
    CorrectionsFile,
    prior_file,
)
from diffenergy.fitting import _calibrate, _fit
from diffenergy.fitting._batches import batches
from diffenergy.fitting._calibrate import Settings, calibrate
from diffenergy.fitting._fit import fit, target
from diffenergy.fitting._free_parameters import free_parameters
from diffenergy.measurements import MeasurementTable

from .made import (
    TRUE,
    free,
    truth,
)


def problem(table: MeasurementTable, start: CorrectionsFile) -> _fit._Problem:
    """The least squares of all that a fit of the table frees."""
    targets = [target(table, b, 0.1, 0.05) for b in batches(table, start)]
    return _fit._Problem(free_parameters(start, targets), targets)


@pytest.mark.slow
def test_slopes_are_those_of_differences(table):
    """Along every free number, at a point off the priors: what the Jacobian leaves out
    moves nothing."""
    made = problem(table, prior_file())
    z = made.centre + 0.2 * made.width * np.random.default_rng(0).normal(
        size=len(made.centre)
    )
    found, rows = made.jacobian(z), 2 * table.num_rows
    assert found.shape == (rows + len(z), len(z))
    assert np.array_equal(found[rows:], np.diag(1 / made.width))
    here = made.residuals(z)
    for i, width in enumerate(made.width):
        step = 1e-5 * width
        expected = (made.residuals(z + step * np.eye(len(z))[i]) - here) / step
        scale = np.abs(expected).max()
        assert found[:, i] == pytest.approx(expected, abs=1e-3 * scale), i
    assert (np.abs(found[:rows]).max(0) > 0).sum() > 10


def test_residuals_by_hand(exact):
    """Twice the time and half of the power: robust ln 2 over the expected errors, then
    how far each number is from its prior centre."""
    doubled = dataclasses.replace(
        exact, time_s=exact.time_s / 2, avg_power_w=2 * exact.avg_power_w
    )
    doubled.time_s[0] = np.nan
    doubled.avg_power_w[1] = 0.0
    file = truth()
    made = problem(doubled, file)
    found = made.residuals(made.centre)
    rows = exact.num_rows

    def robust(r: float) -> float:
        return np.sqrt(2 * 4 * (np.sqrt(1 + (r / 2) ** 2) - 1))

    late, hot = robust(np.log(2) / 0.1), -robust(np.log(2) / 0.05)
    assert found[1:rows] == pytest.approx(np.full(rows - 1, late))
    assert found[[0, rows + 1]].tolist() == [0, 0]
    powers = np.delete(found[rows : 2 * rows], 1)
    assert powers == pytest.approx(np.full(rows - 1, hot))
    assert not found[2 * rows :].any()
    away = made.residuals(made.centre + 2 * made.width)[2 * rows :]
    assert away == pytest.approx(np.full(len(away), 2.0))


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_point_and_the_priors_width(table):
    """At once: where the search begins; later: the best of what was tried."""
    start = prior_file()
    parameters = free(start.levels, tuple(TRUE))
    targets = [target(table, b, 0.05, 0.05) for b in batches(table, start)]
    for last in (1, 3):
        costs: list[float] = []

        def stop(steps: int, cost: float, last: int = last) -> None:
            costs.append(cost)  # noqa: B023
            assert steps == len(costs)  # noqa: B023
            if steps == last:
                raise KeyboardInterrupt

        begin = parameters.centre() + 0.5 * parameters.sd()
        found = fit(parameters, targets, begin=begin, progress=stop)
        assert found.interrupted and found.evaluations == last
        assert found.cost == min(costs)
        assert found.covariance == pytest.approx(np.diag(parameters.sd() ** 2))
        if last == 1:
            assert found.z == pytest.approx(begin)
        else:
            assert costs[-1] < costs[0] and not np.allclose(found.z, begin)


def test_errors_that_are_left_by_hand(exact):
    """Half of normal errors lie below 0.6745 sd: of |ln| 0.02, 0.04 and 0.06 the middle
    one, robust; never below a hundredth, never above what was expected."""
    away = np.array([0.02, 0.04, 0.06])[np.arange(exact.num_rows) % 3]
    side = np.where(np.arange(exact.num_rows) % 2, 1, -1)
    off = dataclasses.replace(
        exact,
        time_s=exact.time_s * np.exp(side * away),
        avg_power_w=exact.avg_power_w * np.exp(0.001 * side),
    )
    off.time_s[[2, 3]] = np.nan  # one of 0.06, one of 0.02
    parameters = free(truth().levels, tuple(TRUE))
    (batch,) = batches(off, truth())

    def left(time_sd: float, power_sd: float) -> tuple[float, float]:
        item = target(off, batch, time_sd, power_sd)
        found = _fit.sharpened(parameters, item, parameters.centre())
        assert found.batch is item.batch and found.time is item.time
        return found.time_sd, found.power_sd

    robust = np.sqrt(2 * 4 * (np.sqrt(1 + (0.04 / 0.1 / 2) ** 2) - 1))
    assert left(0.1, 0.08) == pytest.approx((0.1 * robust / 0.6745, 0.01), rel=1e-4)
    assert left(0.02, 0.01) == pytest.approx((0.02, 0.01))
    nothing = dataclasses.replace(off, avg_power_w=np.full(off.num_rows, np.nan))
    item = target(nothing, batch, 0.1, 0.08)
    assert _fit.sharpened(parameters, item, parameters.centre()).power_sd == 0.08


@pytest.mark.parametrize("start", ["priors", "fitted"])
@pytest.mark.slow
def test_clear_data_of_a_gpu_are_fitted_with_their_own_errors(
    table, fitted_start, start: str
):
    """From fitted corrections; all rows together from priors are fitted once, with the
    errors that were expected."""
    steps: list[int] = []

    def count(step: int, cost: float) -> None:
        steps.append(step)

    file = prior_file() if start == "priors" else fitted_start
    calibrate([table], file, Settings(max_steps=2), progress=count)
    fits = steps.count(1)
    assert fits == 1 if start == "priors" else 2 <= fits <= 4


@pytest.mark.slow
@pytest.mark.parametrize("fits", [1, 2])
def test_an_interrupt_ends_all_fits(table, fitted_start, monkeypatch, fits: int):
    """In the first, and in one that repeats it, however clear the data are."""
    monkeypatch.setattr(_calibrate, "_CLEAR", 1.0)
    begun: list[int] = []

    def stop(step: int, cost: float) -> None:
        if step == 1:
            begun.append(step)
            if len(begun) == fits:
                raise KeyboardInterrupt

    made = calibrate([table], fitted_start, Settings(max_steps=2), progress=stop)
    assert made.fit.interrupted and len(begun) == fits
