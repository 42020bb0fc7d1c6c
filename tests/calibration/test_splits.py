"""Two folds of the accuracy table: readings of groups that a fit did not see.

`python calibration/accuracy.py DATA` makes the whole table; it takes hours.
"""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from diffenergy.fitting.calibrate import Settings

pytestmark = pytest.mark.shared_data


MOST_STEPS = 6
"""Evaluations of a fit: half of those of the table; its cost is within 5 % by then."""


@pytest.fixture(scope="module")
def accuracy():
    """`calibration/accuracy.py`, a script beside the package, with fewer steps."""
    folder = Path(__file__).parents[2] / "calibration"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        script, splits = map(importlib.import_module, ("accuracy", "splits"))

        def settings(**given: Any) -> Settings:
            return dataclasses.replace(Settings(**given), max_steps=MOST_STEPS)

        patch.setattr(splits, "Settings", settings)
        yield script
    for name in ("accuracy", "splits"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "split, fold, most",
    [
        ("a100-family", 0, {"time": 8, "power": 5}),  # bertmodel
        ("h200-gemm", 0, {"time": 6.5, "power": 6.5, "energy": 11}),
    ],
)
def test_left_out_groups(
    accuracy: Any, shared: Path, split: str, fold: int, most: dict[str, float]
):
    """Mean absolute errors (%) of the first score of the split."""
    done = accuracy.run_fold(str(shared / "data"), split, fold, 0)
    assert done.member[:, 0].sum() > 10
    errors = {word: accuracy.mape([done], 0, word) for word in most}
    assert all(errors[word] < most[word] for word in most), errors
