"""Two folds of the accuracy table: readings of groups that a fit did not see.

`python calibration/accuracy.py DATA` makes the whole table; it takes hours.
"""

from pathlib import Path

import pytest

from calibration import accuracy

pytestmark = pytest.mark.shared_data


MOST_STEPS = 6
"""Evaluations of a fit: half of those of the table; its cost is within 5 % by then."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "split, fold, most",
    [
        ("a100-family", 0, {"time": 8, "power": 5}),  # bertmodel
        ("h200-gemm", 0, {"time": 6.5, "power": 6.5, "energy": 11}),
        ("clocks-v100-pcie-16gb", 0, {"time": 4, "power": 3, "energy": 3.5}),
        ("fp32-gemm", 0, {"time": 13}),  # P100
        ("fp32-vector", 0, {"time": 6}),  # P100, element-wise
    ],
)
def test_left_out_groups(shared: Path, split: str, fold: int, most: dict[str, float]):
    """Mean absolute errors (%) of the first score of the split."""
    done = accuracy.run_fold(str(shared / "data"), split, fold, 0, None, MOST_STEPS)
    assert done.member[:, 0].sum() > 10
    errors = {word: accuracy.mape([done], 0, word) or float("inf") for word in most}
    assert all(errors[word] < most[word] for word in most), errors


@pytest.mark.slow
def test_left_out_clocks_are_groups(shared: Path):
    name = "clocks-v100-pcie-16gb"
    done = accuracy.run_fold(str(shared / "data"), name, 0, 0, None, 1)
    clocks = (502.0, 802.0, 945.0, 1102.0)
    assert {*done.groups} == {f"v100-pcie-16gb {clock}" for clock in clocks}
