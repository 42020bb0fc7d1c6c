"""Serving points that somebody measured: a table, each row on every pool of its GPU."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from ...measurements import (
    NOT_NEGATIVE,
    POSITIVE,
    bad_cell,
    name_list,
    read_numbers,
    read_sheet,
    read_texts,
    require,
)
from ...units import MHz
from .._problem.problem import Rows
from .units import check_units

_NUMBERS: Final = {
    "gpus_per_replica": POSITIVE,
    "requests_per_s": POSITIVE,
    "ttft_p95_s": NOT_NEGATIVE,
    "tpot_p95_s": NOT_NEGATIVE,
    "power_w": POSITIVE,
}
_OPTIONAL: Final = ("sm_clock_mhz", "power_limit_w", "max_batch")
COLUMNS: Final = ("model", "gpu", *_NUMBERS, *_OPTIONAL)
"""Of a table of points, the optional ones last."""


def read_points(
    file: str,
    models: Sequence[Sequence[str]],
    pools: Sequence[Sequence[str]],
) -> tuple[Rows, list[str]]:
    """The points of models and pools, each of which goes by any of its names, and
    remarks about what was left out. Without objectives of latency: see `ask`.

    Raises `ValueError` in one sentence for a column that is missing or has another
    unit, a cell that cannot be, and a model without a point on any pool.
    """
    sheet = read_sheet(file)
    check_units(sheet, [*_NUMBERS, *_OPTIONAL])
    for column in ("model", "gpu", *_NUMBERS):
        require(sheet, column, f"add `{column}`")
    row = np.arange(sheet.num_rows)
    found = {x: read_numbers(sheet, x, row, y, True) for x, y in _NUMBERS.items()}
    n = found["gpus_per_replica"]
    if (n != np.round(n)).any():
        wrong = int((n != np.round(n)).argmax())
        raise bad_cell(sheet, wrong, "gpus_per_replica", "a whole number from 1 on")
    for x in _OPTIONAL:
        has = x in sheet.columns
        nothing = np.full(len(row), np.nan)
        found[x] = read_numbers(sheet, x, row, POSITIVE) if has else nothing
    point, model = _matches(read_texts(sheet, "model", row), models)
    again, pool = _matches(read_texts(sheet, "gpu", row)[point], pools)
    point, model = point[again], model[again]
    for number, names in enumerate(models):
        if not (model == number).any():
            gpus = name_list(dict.fromkeys(x for names in pools for x in names[:1]))
            raise ValueError(
                f"{file}: model `{names[0]}` has no row on a GPU of the pools "
                f"({gpus}); add its points, or leave the model out."
            )
    for number, names in enumerate(pools):
        if not (pool == number).any():
            known = name_list(dict.fromkeys(read_texts(sheet, "gpu", row)))
            raise ValueError(
                f"{file}: no row of a model of the fleet is on `gpu` '{names[0]}', "
                f"which a pool has; there are {known}; add its points, or correct or "
                "leave out the pool."
            )
    used = {x: column[point] for x, column in found.items()}
    rows = Rows(
        model, pool, used["gpus_per_replica"], used["requests_per_s"], used["power_w"],
        used["ttft_p95_s"], used["tpot_p95_s"], used["sm_clock_mhz"] * MHz,
        used["power_limit_w"], used["max_batch"], point,
    )  # fmt: skip
    left = sheet.num_rows - len(np.unique(point))
    ignored = [x for x in sheet.columns if x not in COLUMNS]
    notes = [f"{file}: columns not used: {name_list(ignored)}."] if ignored else []
    if left:
        notes.append(f"{file}: {left} rows are of no model or no pool of the fleet.")
    return rows, notes


def _matches(
    named: np.ndarray, known: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and the things that they name, one pair for each thing."""
    pairs = {(word, number) for number, names in enumerate(known) for word in names}
    things = pd.DataFrame(sorted(pairs), columns=["name", "thing"])
    rows = pd.DataFrame({"name": named, "row": np.arange(len(named))})
    found = rows.merge(things, on="name").sort_values(["row", "thing"])
    return found["row"].to_numpy(), found["thing"].to_numpy()
