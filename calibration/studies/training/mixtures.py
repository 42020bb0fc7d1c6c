"""Training steps of mixtures of experts by what their recipes ran: overlap of the
experts' exchange, graphs of whole iterations, the dispatcher.

    python calibration/studies/training/mixtures.py ../shared/data

The shipped constants predict every row. They were fitted to rows of Qwen3-30B-A3B and
Mixtral among others, composed without what the recipes say; DeepSeek-V3 and
gpt-oss-120b were in no fit.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pandas as pd
from left_out import rows_of

from diffenergy.corrections import read_corrections
from diffenergy.fitting import predict

_BROKEN: Final = ("218", "219", "414", "415", "445", "451")
"""Rows of a regression that its page names, and of a container in which the same plans
took two to three times as long as in the next."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    jax.config.update("jax_enable_x64", True)
    table = rows_of(folder)
    frame = pd.DataFrame(table.frame[["model", "graphs", "row"]])
    broken = np.isin(frame["row"].to_numpy(), _BROKEN)
    judged = (frame["graphs"] != "").to_numpy() & ~broken
    skipped = np.where(judged, table.skipped, "no mixture with a recipe")
    table = dataclasses.replace(table, skipped=skipped)
    error = 100 * (predict(table, read_corrections(None)).time_s / table.time_s - 1)
    rows = frame.assign(error=error, size=np.abs(error)).loc[table.skipped == ""]
    for by in (["model", "graphs"], ["model"], ["graphs"], []):
        groups = rows.groupby(by) if by else [("all", rows)]
        for name, group in groups:
            _say(name, group)


def _say(name: object, group: Any):
    words = " ".join(name) if isinstance(name, tuple) else str(name)
    print(
        f"{words:20s} {len(group):3d} rows {group['size'].mean():6.1f} % "
        f"({group['error'].mean():+.1f})"
    )


if __name__ == "__main__":
    main()
