"""Errors of left-out rows: by GPU, by kind, and what lies beyond the fitted rows."""

from typing import Any

import numpy as np
import pytest

from calibration import accuracy
from calibration.splits import SPLITS


def test_errors_by_gpu_are_of_what_was_read():
    """|predicted / read - 1|, of rows that were read; a GPU without any is absent."""
    predicted = np.array([1.1, 0.9, 1.3, 0.5, 2.0])
    read = np.array([1.0, 1.0, 1.0, np.nan, np.nan])
    gpu = np.array(["a10", "a10", "l4", "l4", "t4"], object)
    result = accuracy._by_gpu(np.log(read / predicted), gpu)
    assert result == {"all": 16.7, "a10": 10.0, "l4": 30.0}
    assert accuracy._by_gpu(np.full(5, np.nan), gpu) == {}


def done(
    split: str, gpu: str, error: float, time: float = 1e-3,
    part: str = "",
) -> Any:  # fmt: skip
    """A fold of 40 rows predicted `error` too long; their power is exact, and no energy
    was read."""
    ones = np.ones(40)
    numbers = {
        "time": time * ones, "time_pred": time * ones * (1 + error),
        "power": 100 * ones, "power_pred": 100 * ones,
        "energy": np.nan * ones, "energy_pred": ones,
    }  # fmt: skip
    names, member = np.full(40, gpu, object), np.ones((40, 1), bool)
    parts = np.full(40, part, object)
    return accuracy.Done(split, 0, 0, names, numbers, member, 5, parts)


def test_rows_of_one_kind_go_together():
    """Folds of splits that leave out the like; of rows above 100 us the errors, for
    each GPU."""
    names = {x.name: x.spread for x in SPLITS}
    assert names["clocks"] == "workload:clock"
    assert names["a10-from-a100"] == names["a100-from-a10"] == "workload:transferred"
    result = accuracy.spreads(
        [
            done("a10-from-a100", "a10", 0.1),
            done("a100-from-a10", "a100-pcie-40gb", 0.2),
            done("a100-from-a10", "a100-pcie-40gb", 0.3, time=1e-6),
            done("clocks", "a100-pcie-40gb", 0.05),
        ]
    )
    assert set(result) == {"workload:transferred", "workload:clock"}
    moved = result["workload:transferred"]
    assert moved["mape_pct"] == {
        "time": {"all": 15.0, "a10": 10.0, "a100-pcie-40gb": 20.0},
        "power": {"all": 0.0, "a10": 0.0, "a100-pcie-40gb": 0.0},
        "energy": {},
    }
    assert moved["rows"] == 120 and len(moved["left_out"]) == 2
    one, two = (np.exp(0.4 * 1.28 * (np.sqrt(1 + 1 / n) - 1)) for n in (1, 2))
    wider = two * np.log(1.3) / np.log(1.1)  # the A100 from what the A10 tells
    assert moved["time"][-1] == pytest.approx(wider * np.log(1.2), abs=1e-4)
    assert moved["time"][0] == pytest.approx(wider * np.log(1.3), abs=1e-4)
    assert moved["power"] == [0.0] * 4 and "energy" not in moved
    assert result["workload:clock"]["time"] == pytest.approx(
        [one * np.log(1.05)] * 4, abs=1e-4
    )


def test_coverage_is_of_groups_that_the_widths_did_not_see():
    """Errors of 10, 20 and 90 %: what the others differ by covers the first two; it
    does not cover the last. Two splits of a kind have a line each."""
    folds = [
        done(split, "a10", error, part=part)
        for split in ("family", "a100-family")
        for part, error in (("bert", 0.1), ("gpt2", 0.2), ("opt", 0.9))
    ]
    whole, *splits = accuracy.coverage(folds)
    assert whole == "| workload:calibrated | all | 67 / 100 / - |"
    assert [x.split(":")[0] for x in splits] == ["| | a100-family", "| | family"]
    assert accuracy.coverage(folds[:3]) == [whole]
