"""The shipped corrections against measured passes (their rows were fitted)."""

import numpy as np
import pytest

from diffenergy.corrections import prior_file, read_corrections
from diffenergy.fitting.predict import predict
from diffenergy.measurements import grouped, read_measurements
from diffenergy.workload.listing import read_listings

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def passes(shared):
    folder = shared / "data" / "energaizer"
    files = ("workloads.jsonl", "workloads_derived.jsonl")
    listings = {x.name: [x] for file in files for x in read_listings(folder / file)}
    table = read_measurements([str(folder / "measurements.csv")], workloads=listings)
    return table, listings


def errors(passes, corrections):
    table, listings = passes
    groups = grouped(table, predict(table, listings, corrections), ["gpu"])
    return {
        group["gpu"]: (group["time_mape_pct"], group["power_mape_pct"])
        for group in groups
    }


def test_shipped_corrections_are_level_with_energaizer(passes):
    found = errors(passes, read_corrections())
    assert found["A100-PCIE-40GB"][0] < 11.0
    assert found["A100-PCIE-40GB"][1] < 8.0
    assert found["A10"][0] < 8.8
    assert found["A10"][1] < 8.2


def test_priors_alone_stay_within_a_tenth_of_the_passes_time(passes):
    for time, power in errors(passes, prior_file()).values():
        assert time < 12.0
        assert power < 12.0


def test_the_start_of_the_window_is_part_of_the_reading(passes):
    table, listings = passes
    with_start = predict(table, listings, prior_file())
    bare = prior_file()
    bare.instruments.clear()
    without = predict(table, listings, bare)
    extra = with_start.time_s - without.time_s
    a100 = table.gpu == "a100-pcie-40gb"
    assert np.allclose(extra[a100] * table.iterations[a100], 1.65)
