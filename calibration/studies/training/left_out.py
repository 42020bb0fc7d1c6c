"""Training steps of plans, predicted by constants that were fitted without their model,
their source, their GPU.

    python calibration/studies/training/left_out.py ../shared/data [--write FILE.json]

Kernels are those of the shipped constants; what plans add to them (`training_*`,
`plan_*`) is fitted to the other rows alone: Gauss-Newton steps from the fit of all
rows, with its Jacobian and new residuals each. Predictions of what is left out are
exact. Models of `_NEW` are fitted nowhere: the shipped constants predict them.
`--write` puts the constants fitted to all rows, and the widths of intervals that follow
from the left-out ones, into a corrections file, in which all else stays.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from calibration.importers import training
from diffenergy import measurements
from diffenergy.corrections import (
    CONSTANTS,
    CorrectionsFile,
    prior_levels,
    read_corrections,
    write_corrections,
)
from diffenergy.corrections._spread import DURATIONS
from diffenergy.fitting import _fit, predict
from diffenergy.fitting._calibrate import Calibration, Settings, calibrate
from diffenergy.fitting._plan_batches import with_unplanned
from diffenergy.measurements import MeasurementTable
from diffenergy.records import as_float

_MIXTURES: Final = ("qwen3-30b-a3b", "mixtral-8x7b")
_NEW: Final = ("deepseek-v3", "gpt-oss-120b")
"""Mixtures whose training was modelled after the fit."""
_TABLES: Final = tempfile.TemporaryDirectory()
"""Where the tables lie while this runs."""
_STEPS: Final = 3
"""Gauss-Newton steps of a refit; a fourth moves no error by 0.05 points."""
_CLASSES: Final = len(DURATIONS) + 1
_HALF: Final = 0.9
"""Share of the left-out errors that an interval holds."""


def without_plans(file: CorrectionsFile) -> CorrectionsFile:
    """Constants as if no plan had been fitted."""
    names = {name for name, c in CONSTANTS.items() if "plan" in c.rows}
    levels = {
        tag: {name: value for name, value in values.items() if name not in names}
        for tag, values in file.levels.items()
    }
    for tag, values in prior_levels().items():
        begun = {name: value for name, value in values.items() if name in names}
        levels.setdefault(tag, {}).update(begun)
    rows = file.fitted_on["rows"]
    remaining = {label: x for label, x in rows.items() if not label.endswith(":plan")}
    fitted_on = {**file.fitted_on, "rows": remaining}
    return dataclasses.replace(file, levels=levels, fitted_on=fitted_on)


def rows_of(folder: Path) -> MeasurementTable:
    """Rows of training steps that can be predicted."""
    place = Path(_TABLES.name)
    for stem, table in training.read(folder / "parallel").items():
        table.to_csv(place / f"{stem}.csv", index=False)
    return with_unplanned(measurements.read([str(place / "training.csv")]))


class Refit:
    """A fit of all rows, with predictions of refits without some rows."""

    def __init__(self, table: MeasurementTable, calibration: Calibration):
        self.table, self.z = table, calibration.fit.z
        self.problem = _fit._Problem(calibration.fit.parameters, calibration.targets)
        self.slopes = self.problem.jacobian(self.z)
        rows = [
            np.where(x.batch.rows >= 0, x.batch.rows, -1) for x in calibration.targets
        ]
        self.rows = np.concatenate([np.tile(x, 2) for x in rows])  # times, then powers

    def without(self, left_out: np.ndarray) -> np.ndarray:
        """Predicted times of all rows, s, by a fit without those `held`."""
        free = np.ones(len(self.slopes))
        free[: len(self.rows)] = (self.rows >= 0) & ~left_out[self.rows]
        z = self.z.copy()
        for _ in range(_STEPS):
            left = self.problem.residuals(z) * free
            z += np.linalg.lstsq(self.slopes * free[:, None], -left, rcond=None)[0]
        return self.times(z)

    def times(self, z: np.ndarray) -> np.ndarray:
        """Predicted times of all rows, s; NaN where there are none."""
        times = np.full(self.table.num_rows, np.nan)
        for data, rows in zip(self.problem.data, self._of_targets(), strict=True):
            read = data.reading(_fit.compiled_reading, as_float(z))
            times[rows] = np.asarray(read.time)
        return times

    def _of_targets(self) -> Iterator[np.ndarray]:
        start = 0
        for data in self.problem.data:
            size = len(data.measured[0])
            yield self.rows[start : start + size]
            start += 2 * size


def left_out(refit: Refit, labels: np.ndarray, scope: np.ndarray) -> pd.DataFrame:
    """ln predicted / measured of the rows in `scope`, each with its label left out."""
    table, parts = refit.table, []
    for label in sorted(set(labels[scope].astype(str))):
        mask = scope & (labels == label)
        error = np.log(refit.without(mask)[mask] / table.time_s[mask])
        parts.append(pd.DataFrame({"label": label, "error": error}))
        print(f"  {label:18s} {mask.sum():4d} rows {_mape(error):6.1f} %", flush=True)
    return pd.concat(parts, ignore_index=True)


def _predicted(table: MeasurementTable, rows: np.ndarray, file: CorrectionsFile):
    """Prints errors of the predictions of some rows by model."""
    skipped = np.where(rows, table.skipped, "another model")
    predictions = predict(dataclasses.replace(table, skipped=skipped), file)
    error = predictions.time_s[rows] / table.time_s[rows] - 1
    models = table.frame["model"].to_numpy()[rows]
    for name in _NEW:
        own = 100 * error[models == name]
        print(
            f"{name}, not fitted: median {np.median(np.abs(own)):.1f} %, mean "
            f"{np.abs(own).mean():.1f} % (bias {own.mean():+.1f}) of {len(own)} rows"
        )


def _mape(error: Any) -> float:
    return 100 * float(np.abs(np.expm1(error)).mean())


def _summary(what: str, errors: pd.DataFrame):
    groups = errors.groupby("label").error.apply(_mape)
    inside = float(np.quantile(errors.error.abs(), _HALF))
    print(
        f"{what}: {_mape(errors.error):.1f} % of {len(errors)} rows, mean over "
        f"{len(groups)} groups {groups.mean():.1f} %, nine of ten within "
        f"{np.expm1(inside):.0%}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    every = rows_of(arguments.folder)
    shipped = read_corrections(arguments.write)
    new = np.isin(every.frame["model"].to_numpy(), _NEW) & (every.skipped == "")
    _predicted(every, new, shipped)
    skipped = np.where(new, "not fitted", every.skipped)
    table = dataclasses.replace(every, skipped=skipped)
    calibration = calibrate([table], without_plans(shipped), Settings(), begin=shipped)
    refit = Refit(table, calibration)
    usable = table.skipped == ""
    mixed = np.isin(table.frame["model"].to_numpy(), _MIXTURES)
    dense = usable & ~mixed
    fitted = np.log(refit.times(refit.z) / table.time_s)
    print(f"dense, all fitted: {_mape(fitted[dense]):.1f} % of {dense.sum()} rows")
    print(f"mixtures, all fitted: {_mape(fitted[usable & mixed]):.1f} %")
    errors = {}
    for what, labels, scope in (
        ("model", table.frame["model"].to_numpy(), dense),
        ("source", table.frame["group"].to_numpy(), dense),
        ("GPU", table.gpu, dense),
        ("mixtures, GPU", table.gpu, usable & mixed),
    ):
        errors[what] = left_out(refit, labels, scope)
        _summary(f"{what} left out", errors[what])
    none = refit.without(usable & mixed)[usable & mixed]
    error = np.log(none / table.time_s[usable & mixed])
    print(f"mixtures, all left out: {_mape(error):.1f} % of {len(error)} rows")
    if arguments.write is not None:
        widths = {
            "plan:calibrated": errors["model"].error,
            "plan:transferred": errors["source"].error,
            "plan:forecast": errors["mixtures, GPU"].error,
        }
        half = {k: float(np.quantile(np.abs(e), _HALF)) for k, e in widths.items()}
        _write(arguments.write, calibration, half)


def _write(path: Path, fitted: Calibration, widths: dict[str, float]):
    """Puts what plans add to kernels, the rows that it rests on, and half widths in ln
    of time into a corrections file."""
    file = read_corrections(path)
    names = {name for name, c in CONSTANTS.items() if "plan" in c.rows}
    levels = dict(file.levels)
    for tag, values in fitted.corrections.levels.items():
        new = {name: value for name, value in values.items() if name in names}
        if new:
            levels[tag] = {**levels.get(tag, {}), **new}
    spread = dict(file.spread)
    for kind, width in widths.items():
        spread[kind] = {**spread.get(kind, {}), "time": [round(width, 4)] * _CLASSES}
    on = file.fitted_on
    fitted_on = {
        **on,
        "rows": on["rows"] | fitted.rows,
        "sources": list(dict.fromkeys([*on["sources"], "training.csv"])),
        "apart": sorted({*on.get("apart", ()), *names}),
    }
    file = dataclasses.replace(
        file,
        levels=levels,
        spread=spread,
        fitted_on=fitted_on,
        posterior=_without(file.posterior, set(fitted_on["apart"])),
    )
    path.write_text(write_corrections(file), encoding="utf-8")


def _without(
    posterior: dict[str, Any] | None, apart: set[str]
) -> dict[str, Any] | None:
    """A posterior without the constants `own`, which its fit held: what it says of them
    is their prior."""
    if posterior is None:
        return None
    names, size = posterior["parameters"], len(posterior["parameters"])
    at = [i for i in range(size) if names[i].partition("/")[2] not in apart]
    whole = np.zeros((size, size))
    whole[np.tril_indices(size)] = posterior["correlation"]
    return {
        "parameters": [names[i] for i in at],
        "sd": [posterior["sd"][i] for i in at],
        "correlation": whole[np.ix_(at, at)][np.tril_indices(len(at))].tolist(),
    }


if __name__ == "__main__":
    main()
