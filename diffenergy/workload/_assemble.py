"""Listings -> `Workload`: rows of dicts become columns, one phase a listing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes, kernels
from ..kernels._shared.ops import COMMON_FIELDS, REQUIRED, Field
from ._listing import Listing, read_listings, select_listing
from ._unlisted import complete
from ._workload import OpRows, PhaseColumns, Workload, build


def from_listings(listings: Sequence[Listing]) -> Workload:
    """Workload with one phase a listing, named after its mode.

    Listings of traced modules are completed with the kernels that a trace does not
    name. Rows are numbered through all listings in order (`op_rows` of the completed
    ones).
    """
    return assemble([complete(listing) for listing in listings])


def assemble(listings: Sequence[Listing]) -> Workload:
    """Workload of listings as they are, without completion."""
    phases = phase_columns(listings)
    rows = [(kernel, index) for index, x in enumerate(listings) for kernel in x.kernels]
    names = tuple(listing.mode or "" for listing in listings)
    return build(op_rows(rows), phases, len(rows), names)


def phase_columns(listings: Sequence[Listing]) -> PhaseColumns:
    """What listings say of their phases."""
    return PhaseColumns.single(
        len(listings),
        passes=[listing.passes for listing in listings],
        eager=[listing.dispatch == "eager" for listing in listings],
        module_calls=[listing.module_calls for listing in listings],
    )


def op_rows(rows: Sequence[tuple[Mapping[str, Any], int]]) -> list[OpRows]:
    """(kernel, phase) pairs as columns by op."""
    known = kernels.ops()
    by_op: dict[str, list[int]] = {}
    for number, (kernel, _) in enumerate(rows):
        by_op.setdefault(kernel["op"], []).append(number)
    parts = []
    for name, numbers in by_op.items():
        picked = [rows[number][0] for number in numbers]
        fields = (*known[name][0].fields, *COMMON_FIELDS)
        columns = {field.name: _column(field, picked) for field in fields}
        phase = np.array([rows[number][1] for number in numbers])
        parts.append(OpRows(name, columns, np.array(numbers), phase))
    return parts


def _column(field: Field, kernels_: Sequence[Mapping[str, Any]]) -> np.ndarray:
    default = None if field.default is REQUIRED else field.default
    values = [kernel.get(field.name, default) for kernel in kernels_]
    return as_codes(field, values)


def as_codes(field: Field, values: Any) -> np.ndarray:
    """Column of a field: dtypes as codes, text as objects, numbers as float64."""
    if field.kind == "dtype":
        return np.array([dtypes.code(value) for value in values])
    if field.kind == "text":
        return np.asarray(values, dtype=object)
    return np.asarray(values, dtype=float)


def load_workload(path: str, name: str | None = None) -> Workload:
    """Workload from the listing file at `path`; `name` picks one of several.

    Raises `ValueError` in one sentence for anything that cannot be read.
    """
    return from_listings(select_listing(read_listings(path), name))
