"""What MI300X and MI355X are priced by: the law of processes, and fitted rates."""

import pytest

from diffenergy.corrections import read_corrections
from diffenergy.hardware import read_gpu


@pytest.mark.parametrize(
    ("gpu", "core", "warned"),
    [
        ("mi300x", 0.72, "6nm/5nm was never fitted: core energies taken at 0.72 x 7nm"),
        ("mi355x", 0.60, "6nm/N3E was never fitted: core energies taken at 0.60 x 7nm"),
    ],
)
def test_core_energy_is_that_of_the_compute_dies(gpu: str, core: float, warned: str):
    """Hopper's 0.705 x exp(0.55 (-0.36 + 0.41)) and Blackwell's 0.653 x
    exp(0.55 (-0.77 + 0.61)) of 7 nm, by hand."""
    file, card = read_corrections(), read_gpu(gpu)
    served = float(file.serve(card).core_energy)
    assert served == pytest.approx(core, abs=0.005)
    (law,) = file.forecasts(card)
    assert law.factor == pytest.approx(served) and warned in law.warning


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x"])
def test_products_have_fitted_times_and_forecast_powers(gpu: str):
    file, card = read_corrections(), read_gpu(gpu)
    grades = file.trust(card, "gemm").grades
    assert (grades["time"], grades["power"]) == ("calibrated", "forecast")
    assert file.grade(card, "moe", "time") == "forecast"


def test_a_relative_shares_the_rates():
    """A chip of the same architecture has them without rows of its own."""
    levels = read_corrections().levels
    for architecture in ("CDNA3", "CDNA4"):
        result = levels[f"architecture:{architecture}"]
        assert result["fp8_block_efficiency"] < 0.8 and result["gemm_cycles"] > 3
    assert not {"gpu:mi300x", "gpu:mi355x"} & {*levels}
