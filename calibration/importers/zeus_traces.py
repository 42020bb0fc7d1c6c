"""Training traces of Zeus's artifact (NSDI'23), `summary_power_<gpu>.csv`: time and
mean power of a training epoch by power limit."""

from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements import read_sheet
from diffenergy.measurements.importers.base import (
    drop,
    finish,
    name_gpus,
    number,
    pick,
    text,
)

NAME = "zeus_traces"
ABOUT = "training epochs of the Zeus artifact by power limit"

_TRACE: Final = {
    "dataset": text("dataset"),
    "network": text("network", "model"),
    "batch_size": number("batch_size", "batch"),
    "optimizer": text("optimizer"),
    "power_limit_w": number("power_limit", "power_limit_w"),
    "time_s": number("time_per_epoch", "time_per_epoch_s"),
    "avg_power_w": number("average_power", "avg_power_w"),
    "gpu": text("gpu", needed=False),
}
_BOARDS: Final = {
    "v100": "Tesla V100-PCIE-32GB",
    "p100": "Tesla P100-PCIE-16GB",
    "rtx6000": "Quadro RTX 6000",
    "a40": "NVIDIA A40",
}
"""GPU in the name of a trace; PCIe boards, by their range of limits."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """One table for every trace; other files in a folder are left."""
    files = [path] if path.is_file() else sorted(path.glob("*.csv"))
    columns = {x: read_sheet(str(x)).columns.keys() for x in files}
    traces = [file for file in files if {"optimizer", "dataset"} <= columns[file]]
    if not traces:
        raise ValueError(
            f"{path} has no power trace (`dataset`, `network`, `time_per_epoch`, ...); "
            "give the file itself."
        )
    return {f"zeus_{file.stem}": _trace(file) for file in traces}


def _trace(file: Path) -> pd.DataFrame:
    """Rows of a trace: one epoch of training under a power limit."""
    table = pick(read_sheet(str(file)), _TRACE)
    if "gpu" not in table:
        word = file.stem.rsplit("_", 1)[-1].lower()
        table["gpu"] = _BOARDS.get(word, word)
    program = table["dataset"] + "/" + table["network"] + "/" + table["optimizer"]
    table["workload"] = program + "/b" + table["batch_size"].map("{:g}".format)
    table["campaign"] = "zeus_nsdi23"
    over = table["avg_power_w"] > 1.05 * table["power_limit_w"]
    why = "more than 1.05 x the power limit, which the board cannot hold"
    return finish(name_gpus(drop(table, over, why)))
