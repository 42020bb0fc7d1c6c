"""Points at which the model is asked, by hand."""

import numpy as np
import pytest

from diffenergy.dvfs import _costs as costs
from diffenergy.dvfs import _modelled as modelled
from diffenergy.hardware import read_gpu

A100 = read_gpu("a100-pcie-40gb")  # 150 to 250 W, 1410 and 1215 MHz
GEFORCE = read_gpu("rtx-3080-ti")  # from 100 W, 2100 and 9501 MHz
H200 = read_gpu("h200-sxm")  # from 200 W
NAN = np.nan


@pytest.mark.parametrize(
    ("card", "highest", "limits"),
    [
        (A100, 213.0, [*range(150, 213), 213]), (A100, 152.5, [150, 151, 152, 152.5]),
        (A100, 214.0, [*range(150, 214, 2), 214]), (A100, 100.0, [100]),
        (H200, 700.0, [*range(200, 700, 8), 700]),
    ],
)  # fmt: skip
def test_power_limits(card, highest: float, limits: list[float]):
    """From the least on by whole watts, in 64 steps at most, to the highest."""
    result = costs._limits(card, highest)
    assert result.tolist() == limits and len(result) <= 64


def test_points_of_one_setting_for_all():
    """The default, the settings, then the clocks left alone under each limit."""
    settings = np.array([[NAN, NAN], [1e9, 5.001e9]])
    limits = np.array([100.0, 200.0, 300.0])
    for temperature in (None, 70.0):
        result = costs._points(GEFORCE, settings, limits, 320.0, temperature)
        assert result.sm_clock.tolist() == [2.1e9, 2.1e9, 1e9, 2.1e9, 2.1e9, 2.1e9]
        assert result.mem_clock.tolist() == [9.501e9, 9.501e9, 5.001e9] + [9.501e9] * 3
        assert result.power_cap.tolist() == [320, 320, 320, 100, 200, 300]
        expected = [NAN if temperature is None else temperature] * 6
        assert np.array_equal(result.temperature, expected, equal_nan=True)
        assert result.mem_locked.tolist() == [0, 0, 1, 0, 0, 0]


def test_points_of_every_kernel():
    """At each setting, then at the clocks that the limiter holds."""
    settings = np.array([[NAN, NAN], [1e9, 5.001e9]])
    result = modelled._points(GEFORCE, settings, np.array([1.8e9, 1.9e9]))
    assert result.sm_clock.tolist() == [[2.1e9] * 2, [1e9] * 2, [1.8e9, 1.9e9]]
    assert result.mem_clock.tolist() == [[9.501e9] * 2, [5.001e9] * 2, [9.501e9] * 2]
    assert result.mem_locked.tolist() == [[0, 0], [1, 1], [0, 0]]
