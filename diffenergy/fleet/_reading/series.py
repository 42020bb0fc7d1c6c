"""Series by slot: two columns, `slot` or `time`, then the value; and the demand."""

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from ...measurements._cells import (
    ANY,
    NOT_NEGATIVE,
    POSITIVE,
    Range,
    Sheet,
    bad_cell,
    name_list,
    numbers,
    read_sheet,
    require,
    texts,
)

ALLOWED: Final[dict[str, Range]] = {
    "power_budget_w": POSITIVE,
    "carbon": NOT_NEGATIVE,
    "price": ANY,
}
"""What values of a site may be."""
_MOST_SLOTS: Final = 100_000


@dataclasses.dataclass(frozen=True)
class Demand:
    """requests/s of every model in every slot; `times`: of the slots as text, None
    where they are numbered."""

    values: Float[np.ndarray, "slot model"]
    times: Shaped[np.ndarray, " slot"] | None


def read_demand(file: str, models: Sequence[str]) -> Demand:
    """`slot` or `time`, `model`, `requests_per_s`: every model in every slot, once.

    Raises `ValueError` in one sentence for what is missing, twice, unknown or below 0.
    """
    sheet = read_sheet(file)
    key = _key(sheet)
    for column in ("model", "requests_per_s"):
        require(sheet, column, f"add `{column}`")
    row = np.arange(sheet.num_rows)
    values = numbers(sheet, "requests_per_s", row, NOT_NEGATIVE, needed=True)
    named = texts(sheet, "model", row)
    place = pd.Index(models).get_indexer(pd.Index(named))
    if (place < 0).any():
        raise bad_cell(
            sheet, int((place < 0).argmax()), "model",
            f"the `name` of one of the [[models]]: {name_list(models)}",
        )  # fmt: skip
    slot, times = _slots(sheet, key, row)
    slots = int(slot.max()) + 1
    cell = slot * len(models) + place
    seen = np.bincount(cell, minlength=slots * len(models))
    if (seen > 1).any():
        first = int((seen > 1).argmax())
        where = _name(key, first // len(models), times)
        raise ValueError(
            f"{file}: model `{models[first % len(models)]}` has {seen[first]} rows in "
            f"{where}; give one."
        )
    if (seen == 0).any():
        first = int((seen == 0).argmax())
        where = _name(key, first // len(models), times)
        raise ValueError(
            f"{file}: model `{models[first % len(models)]}` has no row in {where}; "
            "give every model a row in every slot, 0 where nothing is asked for."
        )
    found = np.zeros(slots * len(models))
    found[cell] = values
    return Demand(found.reshape(slots, len(models)), times)


def read_series(file: str, what: str, demand: Demand) -> Float[np.ndarray, " slot"]:
    """Values of `what` (a key of `ALLOWED`) for the slots of the demand; what is longer
    is cut.

    Raises `ValueError` in one sentence if it is shorter, or no such table.
    """
    sheet = read_sheet(file)
    key = _key(sheet)
    others = [name for name in sheet.columns if name != key]
    if len(others) != 1:
        raise ValueError(
            f"{file}: there are the columns {name_list(sheet.columns)}; allowed are "
            f"two, `{key}` and the values of `{what}`; leave the others out."
        )
    row = np.arange(sheet.num_rows)
    values = numbers(sheet, others[0], row, ALLOWED[what], needed=True)
    slot, times = _slots(sheet, key, row)
    seen = np.bincount(slot)
    if (seen != 1).any():
        first = int((seen != 1).argmax())
        raise ValueError(
            f"{file}: {_name(key, first, times)} has {seen[first]} rows; give one row "
            "for every slot, from 0 on."
        )
    slots = len(demand.values)
    if len(seen) < slots:
        raise ValueError(
            f"{file}: there are {len(seen)} slots, but the demand has {slots}; give a "
            "value for every slot."
        )
    if times is not None and demand.times is not None:
        apart = np.flatnonzero(times[:slots] != demand.times)
        if len(apart):
            raise ValueError(
                f"{file}: slot {apart[0]} is at {times[apart[0]]}, but in the demand "
                f"at {demand.times[apart[0]]}; give both for the same hours, or number "
                "them with a column `slot`."
            )
    found = np.zeros(len(seen))
    found[slot] = values
    return found[:slots]


def _key(sheet: Sheet) -> str:
    """`slot` or `time`, whichever the table has."""
    both = [name for name in ("slot", "time") if name in sheet.columns]
    if len(both) == 2:
        raise ValueError(
            f"{sheet.file}: there are both `slot` and `time`; leave one of them out."
        )
    if not both:
        require(sheet, "slot", "add `slot` (from 0 on) or `time`")
    return both[0]


def _slots(
    sheet: Sheet, key: str, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Number of the slot of every row, and the times of slots if they have any."""
    if key == "time":
        named = texts(sheet, key, row)
        if (named == "").any():
            raise bad_cell(sheet, int((named == "").argmax()), key, "a time")
        times, slot = np.unique(named.astype(str), return_inverse=True)
        return slot.reshape(-1), times
    allowed = Range(f"a whole number from 0 to {_MOST_SLOTS:,}", 0.0)
    values = numbers(sheet, key, row, allowed, needed=True)
    wrong = (values != np.round(values)) | (values > _MOST_SLOTS)
    if wrong.any():
        raise bad_cell(sheet, int(wrong.argmax()), key, allowed.words)
    return values.astype(int), None


def _name(key: str, slot: int, times: np.ndarray | None) -> str:
    return f"slot {slot}" if times is None else f"{key} {times[slot]}"
