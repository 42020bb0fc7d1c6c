"""Whole passes of the A100 and the A10: families, workloads, clocks, the other GPU."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from diffenergy.estimator import estimate_once
from diffenergy.fitting._batches import batches
from diffenergy.fitting._calibrate import Settings, blanked, calibrate
from diffenergy.measurements import MeasurementTable, Predictions

from .base import NONE, Data, Fold, Mask, Score, Split, everything, folds_of, only

PASS_STEPS = 8
_LONG = ("gpt2model", "optmodel", "qwen2model")
"""Model families with passes of 1,024 tokens and more."""


def _source(table: MeasurementTable, *names: str) -> np.ndarray:
    return np.isin(table.frame["source"].to_numpy(), names)


def _families(data: Data) -> list[str]:
    return sorted(set(data.passes.frame["model"]))


def _pass_fold(scope: np.ndarray, left_out: np.ndarray, data: Data, seed: int) -> Fold:
    """Passes of `scope` without the readings of `held` ones."""
    table = data.passes
    return Fold(
        [only(blanked(table, left_out), scope)],
        only(table, left_out),
        Settings(seed=seed, max_steps=PASS_STEPS),
    )


def _family(*sources: str) -> Callable[[Data, int, int], Fold]:
    def fold(data: Data, i: int, seed: int) -> Fold:
        scope = _source(data.passes, *sources)
        family = data.passes.frame["model"].to_numpy() == _families(data)[i]
        return _pass_fold(scope, scope & family, data, seed)

    return fold


def _of(*sources: str) -> Mask:
    return lambda table, *_: _source(table, *sources)


def _workload_folds(data: Data, i: int, seed: int) -> Fold:
    table = data.passes
    scope = _source(table, "a100", "a10")
    names = np.unique(table.workload[scope].astype(str))
    order = names[np.random.default_rng(seed).permutation(len(names))]
    left_out = scope & (folds_of(table.workload, order, 5) == i)
    return _pass_fold(scope, left_out, data, seed)


def _from(fitted: Sequence[str], tested: str) -> Callable[[Data, int, int], Fold]:
    """Passes of some sources fitted, those of another predicted."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.passes
        return Fold(
            [only(table, _source(table, *fitted))],
            only(table, _source(table, tested)),
            Settings(seed=seed, max_steps=PASS_STEPS),
        )

    return fold


def _long(data: Data, i: int, seed: int) -> Fold:
    """Long passes of a family of which, as of long ones, no pass is fitted."""
    table = data.passes
    scope = _source(table, "a100", "a10", "a100_dvfs")
    lengths = table.frame["seq_len"].to_numpy()
    long = np.array([float(x or 0) for x in lengths]) >= 1024
    family = table.frame["model"].to_numpy() == _LONG[i]
    left_out = scope & (long | family)
    fold = _pass_fold(scope, left_out, data, seed)
    return dataclasses.replace(fold, tested=only(table, scope & long & family))


# --- throttled passes: the clock that the governor finds


def _throttled(data: Data, i: int, seed: int) -> Fold:
    """Clocks of throttled passes (in the place of times) by constants of 900 MHz."""
    fold = _from(("a100",), "a100_dvfs")(data, 0, seed)
    fitted = calibrate(fold.fitted, fold.start, fold.settings)
    table = data.passes
    throttled = table.frame["throttled"].to_numpy() == "True"
    rows = only(table, throttled & _source(table, "a100_dvfs"))
    measured, unknown = rows.sm_clock_avg, np.full(rows.num_rows, np.nan)
    at_limit = dataclasses.replace(rows, sm_clock_avg=unknown)
    clock = unknown.copy()
    for batch in batches(at_limit, fitted.corrections):
        estimate = estimate_once(
            batch.workload,
            batch.card.spec,
            batch.point,
            fitted.corrections.serve(batch.card),
        )
        real = batch.rows >= 0
        clock[batch.rows[real]] = np.asarray(estimate.phases.sm_clock)[real]
    tested = dataclasses.replace(
        rows, time_s=measured, avg_power_w=unknown, energy_j=unknown
    )
    grade = np.full(rows.num_rows, "", dtype=object)
    predicted = Predictions(clock, unknown, unknown, grade, rows.skipped)
    constants = len(fitted.fit.z)
    return Fold([], tested, fold.settings, predicted=predicted, constants=constants)


def _clock_error(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {"SM clock, %": 100 * float(np.mean(np.abs(predicted / measured - 1)))}


SPLITS = (
    Split(
        "a100-family", "workload:calibrated", "model family, A100 rows alone", 7,
        _family("a100"),
        (Score("A100 passes, 900 MHz", everything, (5, 2.5, 4.5), (4.9, 2.6, 4.7)),),
        seeded=False,
    ),
    Split(
        "family", "workload:calibrated", "model family, out of both GPUs", 7,
        _family("a100", "a10", "a100_dvfs"),
        (
            Score("A10 passes, 900 MHz", _of("a10"), (4, 4, 4.5), (3.7, 4.0, 4.7)),
            Score("A100 passes, 900 MHz", _of("a100"), NONE, (5.7, 2.7, 5.5)),
            Score("A100 passes, 510-1410 MHz", _of("a100_dvfs"), NONE,
                  (6.1, 2.9, 4.2)),
        ),
        seeded=False,
    ),
    Split(
        "a10-from-a100", "workload:transferred", "the A10", 1,
        _from(("a100", "a100_dvfs"), "a10"),
        (Score("A10 passes, 900 MHz", everything, (4, 8, None), (3.5, 8.5, 9.0)),),
        seeded=False,
    ),
    Split(
        "a100-from-a10", "workload:transferred", "the A100", 1,
        _from(("a10",), "a100"),
        (Score("A100 passes, 900 MHz", everything, NONE, (5.1, 7.2, 7.0)),),
        seeded=False,
    ),
    Split(
        "workloads", "workload:calibrated", "five folds by workload", 5,
        _workload_folds,
        (Score("A100 and A10 passes, 900 MHz", everything, (4, 2.5, 4),
               (4.0, 2.8, 4.0)),),
    ),
    Split(
        "clocks", "workload:clock", "every clock but 900 MHz", 1,
        _from(("a100",), "a100_dvfs"),
        (Score("A100 passes, 510-1410 MHz", everything, (5, 3, 4), (5.7, 2.9, 3.9)),),
        seeded=False,
    ),
    Split(
        "lengths", "workload:length", "1,024 tokens and more, and the model family", 3,
        _long,
        (Score("A100 and A10 passes, 1,024 tokens and more", everything, NONE, NONE),),
        seeded=False,
    ),
    Split(
        "throttled", "", "every clock but 900 MHz", 1, _throttled,
        (Score("A100 passes at the power limit", everything, "1.5", "1.7", ("time",),
               _clock_error),),
        seeded=False,
    ),
)  # fmt: skip
