"""The scripts of calibration/, as modules."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def accuracy() -> Iterator[Any]:
    """`calibration/accuracy.py`, a script beside the package."""
    folder = Path(__file__).parents[2] / "calibration"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("accuracy")
    for name in [
        x for x in sys.modules if x.partition(".")[0] in ("accuracy", "splits")
    ]:
        del sys.modules[name]
