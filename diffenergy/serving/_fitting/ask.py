"""The public `fit`: constants of engines from tables of measured servers."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ...corrections import CorrectionsFile, prior_file, read_corrections
from ...corrections import write_corrections as _text
from ...hardware import read_gpu
from ...results import Result, written
from .._engine import constants, levels
from .fit import QUANTITIES, Served, as_arrays, fitted, read_serving, served


@dataclasses.dataclass(frozen=True, repr=False)
class EngineFit(Result):
    """Constants of engines that a fit found.

    `summary`: rows, and by engine and GPU the constants that moved, with mean absolute
    errors before and after, %; `corrections`: the start file with them (`engines`).
    """

    view: ClassVar[str] = "accuracy.engine_fit"
    summary: dict[str, Any]
    corrections: CorrectionsFile

    def write(self, path: str | Path) -> str:
        """Writes the corrections; whole or not at all."""
        return written(_text(self.corrections), str(path))


def fit(
    tables: str | Path | pd.DataFrame | Sequence[str | Path],
    start: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EngineFit:
    """Fits the constants of serving engines to measured servers.

    Least robust squares with priors: the shipped constants of an engine on a GPU's host
    are the centres, the shipped widths their sd.

    Args:
        tables: files of servers (`docs/reference/formats.md`), one, or such a table.
        start: corrections to which the constants are added [the shipped ones].
        progress: called with the tables of steps priced so far, and all of them.

    Returns:
        The constants by engine and GPU, errors before and after, and corrections.

    Raises:
        ValueError: for what cannot be read, in one sentence.
    """
    single = isinstance(tables, str | Path | pd.DataFrame)
    each: list[Any] = [tables] if single else list(tables)
    rows = [row for path in each for row in read_serving(path)]
    unread = [row.place for row in rows if not row.measured]
    if unread:
        raise ValueError(
            f"{unread[0]}: there is no measured figure; give one of `tpot_s`, "
            "`ttft_s`, `avg_power_w`, `energy_j_per_output_token`."
        )
    file = prior_file() if start == "none" else read_corrections(start)
    served_rows = served(rows, progress)
    hosts: dict[str, dict[str, float]] = {}
    groups = []
    for host in dict.fromkeys(served_rows.hosts):
        engine, _, gpu = host.partition(":")
        use = np.array([x == host for x in served_rows.hosts])
        before = levels(engine, read_gpu(gpu), file.engines)
        moved = fitted(served_rows, use, before)
        hosts[host] = moved
        groups.append(
            {
                "engine": engine,
                "gpu": gpu,
                "rows": int(use.sum()),
                "before": _errors(served_rows, before, use),
                "after": _errors(served_rows, before | moved, use),
                "constants": {
                    name: {"value": value, "before": before[name], "unit": x.unit}
                    for name, x in constants().items()
                    if (value := moved.get(name)) is not None
                },
            }
        )
    old = file.engines
    engines = {**old, "host": {**old.get("host", {}), **hosts}}
    corrections = dataclasses.replace(file, engines=engines)
    return EngineFit({"rows": len(rows), "groups": groups}, corrections)


def _errors(
    served_rows: Served, values: dict[str, float], use: np.ndarray
) -> dict[str, float | None]:
    """Mean absolute errors, %, by quantity; None where nothing was read."""
    miss = (
        100
        * np.abs(np.expm1(served_rows.predict(as_arrays(values)) - served_rows.read))[
            use
        ]
    )
    valid = np.isfinite(miss)
    return {
        f"{name}_mape_pct": float(miss[valid[:, i], i].mean())
        if valid[:, i].any()
        else None
        for i, name in enumerate(QUANTITIES)
    }
