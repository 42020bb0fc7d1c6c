"""Fits recover known constants from synthetic readings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from diffenergy.corrections import (
    ACTIVITY_CONSTANTS,
    CONSTANTS,
    PRIOR_FACTORS,
    _constants,
    _levels,
    prior_file,
)
from diffenergy.fitting import _fit, _free_parameters, _parameters
from diffenergy.fitting._batches import batches
from diffenergy.fitting._calibrate import Settings, blanked, calibrate
from diffenergy.fitting._fit import fit, target
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._predict import predict

from .made import (
    ON,
    SEEN,
    TRUE,
    UNSEEN,
    free,
    noisy,
    read,
    shape,
    truth,
)


@pytest.mark.slow
@pytest.mark.parametrize("time, power", [(0.005, 0.005), (0.05, 0.03)])
def test_known_constants_come_back(exact, time: float, power: float):
    """Within 3 posterior sds; with small errors to 3 % too."""
    start, table = prior_file(), noisy(exact, time, power)
    parameters = free(start.levels, tuple(TRUE))
    targets = [target(table, b, time, power) for b in batches(table, start)]
    result = fit(parameters, targets)
    known = dataclasses.replace(parameters, start=truth().levels).centre()
    assert np.all(np.abs(result.z - known) < 3 * result.sd)
    assert np.all(result.sd < 0.5 * parameters.sd())
    if time < 0.01:
        fitted = parameters.fitted(result.z)["global"]
        assert [fitted[x] for x in TRUE] == pytest.approx([*TRUE.values()], rel=0.03)


@pytest.mark.slow
def test_posterior_sds_follow_the_errors(exact):
    """Ten times the errors: a hundredth of the information of the rows."""
    parameters = free(truth().levels, tuple(TRUE))
    information = []
    for sd in (0.005, 0.05):
        targets = [target(exact, b, sd, sd) for b in batches(exact, truth())]
        covariance = fit(parameters, targets).covariance
        information.append(np.linalg.inv(covariance) - np.diag(parameters.sd() ** -2))
    assert information[0] == pytest.approx(100 * information[1], rel=1e-3)


@pytest.mark.slow
def test_a_constant_that_no_row_moves_stays_at_its_prior(table):
    start = prior_file()
    parameters = free(start.levels, ("energy_dram", "moe_own"))
    targets = [target(table, b, 0.01, 0.01) for b in batches(table, start)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)["global"]
    assert fitted["moe_own"] == pytest.approx(start.levels["global"]["moe_own"])
    assert result.sd[1] == pytest.approx(parameters.sd()[1], rel=1e-6)


@pytest.mark.slow
def test_blanked_rows_are_predicted_but_not_fitted(table):
    held = np.arange(table.num_rows) % 2 == 0
    wrong = dataclasses.replace(table, time_s=np.where(held, 1e3, table.time_s))
    settings = Settings(max_steps=3)
    result = calibrate([blanked(wrong, held)], prior_file(), settings)
    made = predict(table, result.corrections)
    assert np.all(np.abs(np.log(made.time_s / table.time_s)) < 0.5)
    half = table.num_rows // 2
    assert result.rows == {f"{SEEN}:elementwise": {"time": half, "power": half}}
    assert result.count == half


def test_nothing_to_fit_is_an_error(table):
    nothing = dataclasses.replace(table, skipped=np.full(table.num_rows, "x", object))
    with pytest.raises(ValueError, match="no measured row"):
        calibrate([nothing], prior_file())


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_activities_tell_the_factor_on_their_gpus_dynamic_energy(programs, factor):
    """Powers of three programs, made with it, that no reference power explains; the
    factor of another GPU and the global number stay."""
    tag, made = f"gpu:{UNSEEN}", truth()
    skipped = np.where(programs.gpu == SEEN, "not read", "").astype(object)
    blank = dataclasses.replace(programs, skipped=skipped)
    table = read(blank, truth({tag: {"dynamic_energy": factor}}))
    names = ("global", f"gpu:{SEEN}", tag)
    parameters = Parameters(
        tuple(Parameter(name, "dynamic_energy") for name in names), made.levels
    )
    targets = [target(table, b, 0.005, 0.005) for b in batches(table, made)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)
    assert fitted[tag]["dynamic_energy"] == pytest.approx(factor, rel=0.05)
    assert result.z[:2] == pytest.approx(parameters.centre()[:2])


def test_intervals_are_the_half_widths_of_their_kind(exact):
    """p5 and p95 lie as far below as above in ln, by what the corrections trust."""
    file, made = truth(), predict(exact, truth())
    (batch, *_) = batches(exact, file)
    width = file.trust(batch.card, batch.kind).half_width("time", made.time_s)
    for bound, side in ((made.time_s_p95, 1), (made.time_s_p5, -1)):
        assert bound is not None
        np.testing.assert_allclose(bound, made.time_s * np.exp(side * width))
    for name in ("energy_j", "avg_power_w"):
        low, high = (getattr(made, f"{name}_{x}") for x in ("p5", "p95"))
        np.testing.assert_allclose(low * high, getattr(made, name) ** 2)
        assert np.all(high > 1.01 * low)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.2, pytest.param(0.85, marks=pytest.mark.slow)])
def test_five_power_readings_of_an_unseen_gpu(tmp_path, fitted_start, factor: float):
    """One factor on all dynamic energy is free, and found: at the least of the squares
    of readings (1 %, since no more is left) and prior (0.2), here by trying factors."""
    tag = f"gpu:{UNSEEN}"
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
        made = read(blank, truth({tag: {"dynamic_energy": np.exp(x)}})).avg_power_w
        return np.log(made / table.avg_power_w)

    tried = np.linspace(-0.3, 0.3, 25)
    miss = np.array([misses(x)[five] for x in tried])
    cost = ((miss / 0.01) ** 2).sum(1) + (tried / 0.2) ** 2
    least = np.polynomial.Polynomial.fit(tried, cost, 6)
    fine = np.linspace(-0.3, 0.3, 6001)
    expected = np.exp(fine[least(fine).argmin()])
    found = result.corrections.levels[tag]["dynamic_energy"]
    assert found == pytest.approx(expected, rel=0.002)
    assert found == pytest.approx(factor, rel=0.005)
    before, after = (np.abs(misses(x))[~five].mean() for x in (0.0, np.log(found)))
    assert after < 0.2 * before


@pytest.mark.slow
def test_a_renamed_constant_stays_in_the_fit(tmp_path, monkeypatch):
    """All constants under names without meaning, in a copy of the tables: a fit of
    three rows frees and moves the same ones to the same values."""
    blank = shape(tmp_path, SEEN, (1395,), range(26, 29))
    made = read(blank, truth())
    settings = Settings(max_steps=3)
    plain = calibrate([made], prior_file(), settings)
    names = {name: f"c{i:03}" for i, name in enumerate(CONSTANTS)}

    def renamed(table: Mapping[str, Any]) -> dict[str, Any]:
        return {names[name]: value for name, value in table.items()}

    constants, activity = renamed(CONSTANTS), renamed(ACTIVITY_CONSTANTS)
    factors = {tag: renamed(own) for tag, own in PRIOR_FACTORS.items()}
    for module in (_constants, _levels, _fit, _free_parameters, _parameters):
        monkeypatch.setattr(module, "CONSTANTS", constants)
    for module in (_levels, _parameters):
        monkeypatch.setattr(module, "PRIOR_FACTORS", factors)
    for module in (_fit, _free_parameters):
        monkeypatch.setattr(module, "ACTIVITY_CONSTANTS", activity)
    other = calibrate([made], prior_file(), settings)
    expected = {f"{p.tag}/{names[p.constant]}" for p in plain.fit.parameters.free}
    assert {str(p) for p in other.fit.parameters.free} == expected
    for tag, values in plain.corrections.levels.items():
        found = other.corrections.levels[tag]
        assert found == pytest.approx(renamed(values), rel=1e-6), tag
    moved = other.corrections.levels["global"]
    for name in ("dram_efficiency", "energy_dram", "launch_cycles"):
        centre = CONSTANTS[name].centre
        assert moved[names[name]] != pytest.approx(centre, rel=1e-5), name
