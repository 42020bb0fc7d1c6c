"""Readings of known constants, and where fits of them start."""

import dataclasses
import itertools

import pytest

from diffenergy import measurements
from diffenergy.measurements import MeasurementTable

from .builders import ON, SEEN, UNSEEN, noisy, read, shape, truth


@pytest.fixture(scope="session")
def exact(tmp_path_factory):
    """Readings of known constants, without errors."""
    folder = tmp_path_factory.mktemp("fit")
    return read(shape(folder, SEEN, (900, 1410), range(12, 28)), truth())


@pytest.fixture(scope="session")
def table(exact):
    """The same with errors of half a percent."""
    return noisy(exact, 0.005, 0.005)


@pytest.fixture(scope="session")
def fitted_start():
    """Corrections that rows of one GPU were fitted on."""
    return dataclasses.replace(truth(), fitted_on=ON)


@pytest.fixture
def programs(tmp_path) -> MeasurementTable:
    """Activities of three programs at two clocks of two GPUs."""
    path = tmp_path / "activity.csv"
    shares = ("0.5,0.1,0.2", "0.1,0.7,0.1", "0.8,0.3,0.5")
    rows = itertools.product((UNSEEN, SEEN), shares, (1100, 1395))
    head = "gpu,avg_power_w,util_fp32_fma,util_dram,util_int,sm_clock_mhz"
    path.write_text("\n".join([head, *(f"{x},100,{y},{z}" for x, y, z in rows)]))
    return measurements.read([f"activity={path}"])
