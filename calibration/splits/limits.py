"""Trainings read at two power limits: time and power at the limits between."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.importers import zeus_traces
from calibration.limits import at_limits
from diffenergy.corrections import prior_file
from diffenergy.fitting._calibrate import Settings
from diffenergy.hardware import read_gpu
from diffenergy.measurements import MeasurementTable, Predictions

from .base import Data, Fold, Score, Split, as_table, on

_LOW = 150.0
"""W; the lower of the two limits that are read. Below it the cards leave their law."""
_TRAINING = ("dataset", "network", "batch_size", "optimizer")
_GPUS = (
    ("V100 PCIe", "v100-pcie-32gb", (3.7, 3.4, 5.3)),
    ("P100 PCIe", "p100-pcie-16gb", (1.0, 1.8, 2.1)),
    ("RTX 6000", "quadro-rtx-6000", (6.7, 1.8, 7.3)),
)
"""Label, GPU, errors of the study."""


@functools.cache
def _runs(folder: Path) -> pd.DataFrame:
    """Trainings that load the GPU: more than half of TDP at the highest limit; those of
    movielens wait for the host."""
    (table,) = zeus_traces.read(folder / "zeus").values()
    table = table[~table["dataset"].str.startswith("movielens")]
    groups = table.groupby(["gpu", *_TRAINING], sort=False)
    top = table.loc[groups["power_limit_w"].idxmax()].set_index(["gpu", *_TRAINING])
    tdp = np.array(
        [read_gpu(gpu).values["tdp"] for gpu in top.index.get_level_values(0)]
    )
    busy = top.index[top["avg_power_w"] > 0.5 * tdp]
    return table.set_index(["gpu", *_TRAINING]).loc[busy].reset_index()


def _predicted(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs between the two limits of each training, with what is predicted there."""
    corrections, rows = prior_file(), []
    for gpu, mine in runs.groupby("gpu", sort=False):
        card = read_gpu(str(gpu))
        served = corrections.serve(card)
        for _, one in mine.groupby([*_TRAINING], sort=False):
            read = one[one["power_limit_w"].isin((_LOW, one["power_limit_w"].max()))]
            between = one[
                (one["power_limit_w"] > _LOW)
                & (one["power_limit_w"] < one["power_limit_w"].max())
            ]
            predicted = at_limits(
                card,
                served,
                read["power_limit_w"].tolist(),
                read["time_s"].tolist(),
                read["avg_power_w"].tolist(),
                between["power_limit_w"].tolist(),
            )
            rows.append(
                between.assign(time_pred=predicted.time, power_pred=predicted.power)
            )
    return pd.concat(rows, ignore_index=True)


def _fold(data: Data, i: int, seed: int) -> Fold:
    rows = _predicted(_runs(data.folder))
    table = _table(rows)
    time, power = rows["time_pred"].to_numpy(), rows["power_pred"].to_numpy()
    predicted = Predictions(
        grade=np.full(len(rows), "forecast", dtype=object),
        skipped=table.skipped,
        time_s=time,
        energy_j=time * power,
        avg_power_w=power,
    )
    return Fold([], table, Settings(seed=seed), predicted=predicted)


def _table(rows: pd.DataFrame) -> MeasurementTable:
    """The readings as a table; what the programs do is unknown."""
    columns = rows[["gpu", "time_s", "avg_power_w", "power_limit_w"]]
    return as_table(columns.assign(op="activity"))


SPLITS = (
    Split(
        "power-limits", "", "all, two limits read of each training", 1, _fold,
        tuple(
            Score(f"{label}, trainings from 150 W", on(gpu), (2, 3, 4), study)
            for label, gpu, study in _GPUS
        ),
        seeded=False,
    ),
)  # fmt: skip
