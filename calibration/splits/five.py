"""Five power readings of a GPU that nothing is known of."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from diffenergy.corrections import CorrectionsFile
from diffenergy.fitting import predict
from diffenergy.fitting._calibrate import Settings, calibrate
from diffenergy.measurements import Predictions

from . import kernels, passes
from .base import Data, Fold, Mask, Score, Split, everything, only

_PARENTS = {split.name: split for split in (*passes.SPLITS, *kernels.SPLITS)}


@functools.cache
def _without(data: Data, name: str) -> CorrectionsFile:
    """Corrections fitted by the one fold of another split."""
    fold = _PARENTS[name].fold(data, 0, 0)
    fitted = calibrate(fold.fitted, fold.start, fold.settings)
    return fitted.corrections


def _five(split: str, rows_of: Mask) -> Callable[[Data, int, int], Fold]:
    """Five random power readings of the tested rows of `split`, then the others."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        start = _without(data, split)
        tested = _PARENTS[split].fold(data, 0, 0).tested
        predicted = _predictions(data, split)
        rows = rows_of(tested, predicted, start) & (tested.skipped == "")
        rng = np.random.default_rng([seed, i])
        five = np.zeros(tested.num_rows, bool)
        five[rng.choice(np.flatnonzero(rows), 5, replace=False)] = True
        untimed = dataclasses.replace(tested, time_s=np.full(tested.num_rows, np.nan))
        others = rows & ~five
        sample = rng.choice(np.flatnonzero(others), min(others.sum(), 256), False)
        drawn = np.isin(np.arange(tested.num_rows), sample)
        return Fold(
            [only(untimed, five)], only(tested, drawn), Settings(seed=seed), start
        )

    return fold


@functools.cache
def _predictions(data: Data, split: str) -> Predictions:
    tested = _PARENTS[split].fold(data, 0, 0).tested
    return predict(tested, _without(data, split))


SPLITS = (
    Split(
        "a10-five", "", "the A10, then five power readings (100 draws)", 100,
        _five("a10-from-a100", everything),
        (Score("A10 passes, 900 MHz", everything, (None, 4, None),
               (None, 4.1, None), ("power",)),),
        seeded=False,
    ),
    Split(
        "hopper-five", "", "Hopper, then five power readings (20 draws)", 20,
        _five("hopper", kernels.settled),
        (Score("H200 GEMM, settled, predicted < 660 W", everything, (None, 10, None),
               (None, 11.8, None), ("power",)),),
        seeded=False,
    ),
)  # fmt: skip
