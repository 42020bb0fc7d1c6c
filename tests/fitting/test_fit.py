"""Fits recover known constants from synthetic readings."""

import dataclasses

import numpy as np
import pytest

from diffenergy.corrections import prior_file
from diffenergy.fitting.batches import batches
from diffenergy.fitting.calibrate import blanked, calibrate
from diffenergy.fitting.fit import fit, target
from diffenergy.fitting.parameters import select
from diffenergy.fitting.predict import predict
from diffenergy.measurements import read_measurements

TRUE = {"energy_dram": 6e-11, "dram_efficiency": 0.8, "launch_cycles": 4000.0}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Copies of growing size at two clocks, with the readings of known constants."""
    path = tmp_path_factory.mktemp("fit") / "streams.csv"
    lines = ["gpu,op,fn,elements,dtype,sm_clock_mhz,time_us,avg_power_w"]
    for clock in (900, 1410):
        for power in range(12, 28):
            elements = 2**power
            lines.append(f"a100-sxm-80gb,elementwise,copy,{elements},bf16,{clock},1,1")
    path.write_text("\n".join(lines))
    blank = read_measurements([str(path)])
    truth = prior_file()
    truth.levels["global"].update(TRUE)
    read = predict(blank, {}, truth)
    noise = np.exp(0.005 * np.random.default_rng(0).normal(size=(2, blank.num_rows)))
    return dataclasses.replace(
        blank, time_s=read.time_s * noise[0], avg_power_w=read.avg_power_w * noise[1]
    )


def test_known_constants_come_back(table):
    start = prior_file()
    parameters = select(start.levels, tuple(TRUE), {})
    targets = [target(table, b, 0.01, 0.01) for b in batches(table, {}, start)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)["global"]
    for name, value in TRUE.items():
        assert fitted[name] == pytest.approx(value, rel=0.03)


def test_a_constant_that_no_row_moves_stays_at_its_prior(table):
    start = prior_file()
    parameters = select(start.levels, ("energy_dram", "moe_own"), {})
    targets = [target(table, b, 0.01, 0.01) for b in batches(table, {}, start)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)["global"]
    assert fitted["moe_own"] == pytest.approx(start.levels["global"]["moe_own"])
    assert result.sd[1] == pytest.approx(parameters.sd()[1], rel=1e-6)


def test_blanked_rows_are_predicted_but_not_fitted(table):
    held = np.arange(table.num_rows) % 2 == 0
    wrong = dataclasses.replace(table, time_s=np.where(held, 1e3, table.time_s))
    result = calibrate([blanked(wrong, held)], {}, prior_file(), max_steps=3)
    read = predict(table, {}, result.corrections)
    assert np.all(np.abs(np.log(read.time_s / table.time_s)) < 0.5)


def test_nothing_to_fit_is_an_error(table):
    nothing = dataclasses.replace(table, skipped=np.full(table.num_rows, "x", object))
    with pytest.raises(ValueError, match="no measured row"):
        calibrate([nothing], {}, prior_file())
