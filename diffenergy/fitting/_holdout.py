"""Rows that a fit leaves out, to see how well it does without them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..measurements import MeasurementTable

_ARRAYS: Final = ("gpu", "op", "workload", "campaign", "file")
"""Arrays of a table that serve where its files have no such column."""
_SHOWN: Final = 8
"""Values of a column that a message names."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """Holds out the rows with `value` in `column`, or a `share` of its values."""

    text: str
    column: str
    value: str | None = None
    share: float = 0.0


def read_rule(text: str) -> Rule:
    """Parses a rule `COLUMN=VALUE` or `COLUMN:FRACTION`.

    >>> read_rule("model:0.2").share
    0.2
    """
    column, equals, value = (part.strip() for part in text.partition("="))
    if equals and column and value:
        return Rule(text, column, value=value)
    column, colon, number = (part.strip() for part in text.rpartition(":"))
    if equals or not (column and colon):
        raise ValueError(
            f"`holdout` is '{text}'; give COLUMN=VALUE, such as model=gpt2, or "
            "COLUMN:FRACTION, such as model:0.2."
        )
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(
            f"`holdout` is '{text}'; allowed are fractions above 0 and below 1."
        )
    return Rule(text, column, share=share)


def held_out(
    tables: Sequence[MeasurementTable], rules: Sequence[Rule], seed: int
) -> list[np.ndarray]:
    """Masks of the held-out rows of each table, over all rules.

    A fraction takes whole groups of rows with equal cells, drawn with `seed`: as many
    as it takes to reach it, at least one and never all. Raises `ValueError` for a
    column that no file has, a rule that holds no row, and if no row is left.
    """
    masks = [np.zeros(table.num_rows, dtype=bool) for table in tables]
    for rule in rules:
        cells = [_cells(table, rule.column) for table in tables]
        if all(column is None for column in cells):
            raise _unknown(tables, rule)
        values = _drawn(tables, cells, rule, seed)
        for mask, column in zip(masks, cells, strict=True):
            if column is not None:
                mask |= np.isin(column, values)
    live = [table.skipped == "" for table in tables]
    if rules and not any((x & ~y).any() for x, y in zip(live, masks, strict=True)):
        raise ValueError("`holdout` holds out every row; leave some to fit.")
    return masks


def _cells(table: MeasurementTable, column: str) -> np.ndarray | None:
    """Cells of a column as text; None if the table lacks the column."""
    if column in table.frame:
        return np.array([str(cell).strip() for cell in table.frame[column]])
    return getattr(table, column).astype(str) if column in _ARRAYS else None


def _drawn(
    tables: Sequence[MeasurementTable],
    cells: Sequence[np.ndarray | None],
    rule: Rule,
    seed: int,
) -> list[str]:
    """Values of the column that a rule holds out."""
    values = sorted(
        {
            str(cell)
            for table, column in zip(tables, cells, strict=True)
            if column is not None
            for cell in column[table.skipped == ""]
        }
        - {""}
    )
    if rule.value is not None:
        if rule.value not in values:
            raise ValueError(
                f"`holdout` is '{rule.text}', which no row has; `{rule.column}` has "
                f"{_names(values)}."
            )
        return [rule.value]
    if len(values) < 2:
        raise ValueError(
            f"`holdout` is '{rule.text}'; `{rule.column}` has {_names(values)} only, "
            "and some of its values have to stay."
        )
    count = min(max(math.ceil(rule.share * len(values) - 1e-9), 1), len(values) - 1)
    order = np.random.default_rng(seed).permutation(len(values))
    return [values[i] for i in order[:count]]


def _names(values: Sequence[str]) -> str:
    more = len(values) - _SHOWN
    shown = ", ".join(f"'{value}'" for value in values[:_SHOWN]) or "no value"
    return f"{shown} and {more} more" if more > 0 else shown


def _unknown(tables: Sequence[MeasurementTable], rule: Rule) -> ValueError:
    columns = dict.fromkeys(name for table in tables for name in table.frame)
    names = ", ".join(f"`{name}`" for name in dict.fromkeys([*columns, *_ARRAYS]))
    return ValueError(
        f"`holdout` is '{rule.text}', but no file has a column `{rule.column}`; "
        f"allowed are {names}."
    )
