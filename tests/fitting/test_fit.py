"""Fits: known constants come back from synthetic readings; residuals and slopes by
hand, errors that a fit leaves, interrupts."""

import dataclasses

import numpy as np
import pytest

from diffenergy.corrections import CorrectionsFile, prior_file, read_corrections
from diffenergy.fitting import _calibrate, _fit, predict
from diffenergy.fitting import fit as fit_tables
from diffenergy.fitting._calibrate import blanked
from diffenergy.fitting._fit import fit
from diffenergy.measurements import MeasurementTable

from .builders import (
    ON,
    SEEN,
    TRUE,
    UNSEEN,
    Parameter,
    Parameters,
    Settings,
    batches,
    calibrate,
    free,
    free_parameters,
    noisy,
    read,
    read_rows,
    shape,
    target,
    targets_of,
    truth,
)

NAMES = (*TRUE, "moe_own")
"""Constants of a fit, of which no row moves the last."""


@pytest.mark.slow
def test_known_constants_come_back(exact):
    """Within 3 posterior sds, with small errors to 3 % too, and what no row moves stays
    at its prior. Ten times the errors: a hundredth of the information of the rows."""
    start, information = prior_file(), []
    parameters = free(start.levels, NAMES)
    known = dataclasses.replace(parameters, start=truth().levels).centre()[:3]
    prior = parameters.sd()
    for sd in (0.005, 0.05):
        table = noisy(exact, sd, sd)
        result = fit(
            parameters, [target(table, b, sd, sd) for b in batches(table, start)]
        )
        assert np.all(np.abs(result.z[:3] - known) < 3 * result.sd[:3])
        assert np.all(result.sd[:3] < 0.5 * prior[:3])
        assert result.z[3] == pytest.approx(parameters.centre()[3])
        assert result.sd[3] == pytest.approx(prior[3], rel=1e-6)
        if sd < 0.01:
            fitted = parameters.fitted(result.z)["global"]
            assert [fitted[x] for x in TRUE] == pytest.approx(
                [*TRUE.values()], rel=0.03
            )
        at_truth = dataclasses.replace(parameters, start=truth().levels)
        targets = targets_of(truth(), exact, time=sd, power=sd)
        covariance = fit(at_truth, targets).covariance
        information.append(np.linalg.inv(covariance) - np.diag(prior**-2.0))
    one, tenth = (x[:3, :3] for x in information)
    assert one == pytest.approx(100 * tenth, rel=1e-3)


@pytest.mark.slow
def test_blanked_rows_are_predicted_but_not_fitted(table):
    use = np.arange(table.num_rows) % 2 == 0
    wrong = dataclasses.replace(table, time_s=np.where(use, 1e3, table.time_s))
    settings = Settings(max_steps=3)
    result = calibrate([blanked(wrong, use)], prior_file(), settings)
    modelled = predict(table, result.corrections)
    assert np.all(np.abs(np.log(modelled.time_s / table.time_s)) < 0.5)
    half = table.num_rows // 2
    assert result.rows == {f"{SEEN}:elementwise": {"time": half, "power": half}}
    assert result.count == half


@pytest.mark.slow
def test_activities_tell_the_factor_on_their_gpus_dynamic_energy(programs):
    """The factor of another GPU and the global number stay."""
    tag, modelled, factor = f"gpu:{UNSEEN}", truth(), 1.3
    skipped = np.where(programs.gpu == SEEN, "not read", "").astype(object)
    blank = dataclasses.replace(programs, skipped=skipped)
    table = read(blank, truth({tag: {"dynamic_energy": factor}}))
    names = ("global", f"gpu:{SEEN}", tag)
    parameters = Parameters(
        tuple(Parameter(name, "dynamic_energy") for name in names), modelled.levels
    )
    targets = targets_of(modelled, table, time=0.005, power=0.005)
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)
    assert fitted[tag]["dynamic_energy"] == pytest.approx(factor, rel=0.05)
    assert result.z[:2] == pytest.approx(parameters.centre()[:2])


def test_intervals_are_the_half_widths_of_their_kind(exact):
    """p5 and p95 lie as far below as above in ln, by what the corrections trust."""
    file, modelled = truth(), predict(exact, truth())
    (batch, *_) = batches(exact, file)
    width = file.trust(batch.card, batch.kind).half_width("time", modelled.time_s)
    for bound, side in ((modelled.time_s_p95, 1), (modelled.time_s_p5, -1)):
        assert bound is not None
        np.testing.assert_allclose(bound, modelled.time_s * np.exp(side * width))
    for name in ("energy_j", "avg_power_w"):
        low, high = (getattr(modelled, f"{name}_{x}") for x in ("p5", "p95"))
        np.testing.assert_allclose(low * high, getattr(modelled, name) ** 2)
        assert np.all(high > 1.01 * low)


@pytest.mark.slow
def test_five_power_readings_of_an_unseen_gpu(tmp_path, fitted_start):
    """At the least of the squares of readings (1 %) and prior (0.2), by trying."""
    tag, factor = f"gpu:{UNSEEN}", 1.2
    blank = shape(tmp_path, UNSEEN, (1100, 1695), range(20, 28))
    table = read(blank, truth({tag: {"dynamic_energy": factor}}))
    five = np.isin(np.arange(table.num_rows), [4, 6, 7, 13, 15])
    untimed = dataclasses.replace(
        table,
        time_s=np.full(table.num_rows, np.nan),
        skipped=np.where(five, "", "not read").astype(object),
    )
    result = calibrate([untimed], fitted_start)
    assert [str(p) for p in result.fit.parameters.free] == [f"{tag}/dynamic_energy"]
    assert result.rows == {f"{UNSEEN}:elementwise": {"time": 0, "power": 5}}
    assert result.count == 5
    fitted_on = result.corrections.fitted_on
    assert fitted_on["rows"] == ON["rows"] | result.rows
    assert set(fitted_on["architectures"]) == {SEEN, UNSEEN}

    def misses(x: float) -> np.ndarray:
        modelled = read(blank, truth({tag: {"dynamic_energy": np.exp(x)}})).avg_power_w
        return np.log(modelled / table.avg_power_w)

    tried, fine = np.linspace(-0.3, 0.3, 25), np.linspace(-0.3, 0.3, 6001)
    miss = np.array([misses(x)[five] for x in tried])
    cost = ((miss / 0.01) ** 2).sum(1) + (tried / 0.2) ** 2
    least = np.polynomial.Polynomial.fit(tried, cost, 6)
    expected = np.exp(fine[least(fine).argmin()])
    actual = result.corrections.levels[tag]["dynamic_energy"]
    assert actual == pytest.approx(expected, rel=0.002)
    assert actual == pytest.approx(factor, rel=0.005)
    before, after = (np.abs(misses(x))[~five].mean() for x in (0.0, np.log(actual)))
    assert after < 0.2 * before


@pytest.mark.slow
def test_one_constant_far_off_comes_back(tmp_path):
    """0.74 times the shipped tensor efficiency: times and powers within 2 %."""
    sizes = 2 ** np.random.default_rng(0).integers([5, 9, 9], 14, (240, 3))
    head = "gpu,op,m,n,k,dtype,time_us,avg_power_w"
    lines = [f"h100-sxm,gemm,{a},{b},{c},bf16,100,300" for a, b, c in sizes]
    blank, shipped = read_rows(tmp_path, head, *lines), read_corrections()
    levels = {tag: dict(values) for tag, values in shipped.levels.items()}
    levels["global"]["tensor_efficiency"] *= 0.74
    true = read(blank, dataclasses.replace(shipped, levels=levels))

    def errors(result) -> list[float]:
        pairs = ((result.time_s, true.time_s), (result.avg_power_w, true.avg_power_w))
        return [float(np.mean(np.abs(x / y - 1))) for x, y in pairs]

    assert errors(predict(blank, shipped))[0] > 0.05
    corrections = fit_tables(noisy(true, 0.01, 0.01)).corrections
    assert max(errors(predict(blank, corrections))) < 0.02


def problem(table: MeasurementTable, start: CorrectionsFile) -> _fit._Problem:
    """The least squares of all that a fit of the table frees."""
    targets = targets_of(start, table, power=0.05)
    return _fit._Problem(free_parameters(start, targets), targets)


@pytest.mark.slow
def test_slopes_are_those_of_differences(table):
    """What the Jacobian leaves out moves nothing."""
    modelled = problem(table, prior_file())
    z = modelled.centre + 0.2 * modelled.width * np.random.default_rng(0).normal(
        size=len(modelled.centre)
    )
    result, rows = modelled.jacobian(z), 2 * table.num_rows
    assert result.shape == (rows + len(z), len(z))
    assert np.array_equal(result[rows:], np.diag(1 / modelled.width))
    here = modelled.residuals(z)
    for i, width in enumerate(modelled.width):
        step = 1e-5 * width
        expected = (modelled.residuals(z + step * np.eye(len(z))[i]) - here) / step
        scale = np.abs(expected).max()
        assert result[:, i] == pytest.approx(expected, abs=1e-3 * scale), i
    assert (np.abs(result[:rows]).max(0) > 0).sum() > 10


def test_residuals_by_hand(exact):
    """Twice the time and half of the power: robust ln 2 over the expected errors, then
    how far each number is from its prior centre."""
    doubled = dataclasses.replace(
        exact, time_s=exact.time_s / 2, avg_power_w=2 * exact.avg_power_w
    )
    doubled.time_s[0] = np.nan
    doubled.avg_power_w[1] = 0.0
    file = truth()
    modelled = problem(doubled, file)
    result = modelled.residuals(modelled.centre)
    rows = exact.num_rows

    def robust(r: float) -> float:
        return np.sqrt(2 * 4 * (np.sqrt(1 + (r / 2) ** 2) - 1))

    late, hot = robust(np.log(2) / 0.1), -robust(np.log(2) / 0.05)
    assert result[1:rows] == pytest.approx(np.full(rows - 1, late))
    assert result[[0, rows + 1]].tolist() == [0, 0]
    powers = np.delete(result[rows : 2 * rows], 1)
    assert powers == pytest.approx(np.full(rows - 1, hot))
    assert not result[2 * rows :].any()
    away = modelled.residuals(modelled.centre + 2 * modelled.width)[2 * rows :]
    assert away == pytest.approx(np.full(len(away), 2.0))


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

    def left(time_sd: float, power_sd: float, table=off) -> tuple[float, float]:
        item = target(table, batch, time_sd, power_sd)
        result = _fit.sharpened(parameters, item, parameters.centre())
        assert result.batch is item.batch and result.time is item.time
        return result.time_sd, result.power_sd

    robust = np.sqrt(2 * 4 * (np.sqrt(1 + (0.04 / 0.1 / 2) ** 2) - 1))
    assert left(0.1, 0.08) == pytest.approx((0.1 * robust / 0.6745, 0.01), rel=1e-4)
    assert left(0.02, 0.01) == pytest.approx((0.02, 0.01))
    nothing = dataclasses.replace(off, avg_power_w=np.full(off.num_rows, np.nan))
    assert left(0.1, 0.08, nothing)[1] == 0.08


@pytest.mark.slow
def test_clear_data_of_a_gpu_are_fitted_with_their_own_errors(table, fitted_start):
    """All rows together from priors are fitted once."""
    for file in (prior_file(), fitted_start):
        steps: list[int] = []
        settings = Settings(max_steps=2)
        calibrate([table], file, settings, progress=lambda n, _, x=steps: x.append(n))
        fits = steps.count(1)
        assert 2 <= fits <= 4 if file is fitted_start else fits == 1


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

    modelled = calibrate([table], fitted_start, Settings(max_steps=2), progress=stop)
    assert modelled.fit.interrupted and len(begun) == fits
