"""`read`: one `MeasurementTable` in SI from files of measured runs."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from jaxtyping import Int

from ..hardware import read_gpu
from ..kernels import Op
from ..requests import accepts
from ..workload import Listing, listings_by_name
from . import _columns as columns
from ._cells import (
    POSITIVE,
    Sheet,
    bad_cell,
    name_list,
    one_of,
    read_names,
    read_sheet,
    read_texts,
    require_column,
)
from ._logs import log_sheet
from ._plan_rows import COLUMNS as PLAN_COLUMNS
from ._plan_rows import are_plans, plan_rows
from ._records import Columns, MeasurementTable, Meter
from ._request import TableRequest
from ._shapes import (
    MODEL_COLUMNS,
    broken_shares,
    listing_names,
    model_requests,
    op_column_names,
    op_columns,
)

_TIMELESS: Final = ("activity",)
"""Ops that can be predicted without a measured time, from power alone."""


Path = str | os.PathLike[str]


class _Read(TableRequest):
    """Files and how they are read."""

    paths: Any = dataclasses.field(kw_only=False)


@accepts(_Read, "read")
def read(request: _Read) -> MeasurementTable:
    """Measured runs of all files, one after the other.

    `paths`: a file or several, each `FILE.csv`, `FILE.csv.gz` or `OP=FILE`, whose op
    comes before `op`. `workloads`: files of listings (.jsonl), or listings by name, for
    files with a column `workload`; the table keeps them. `meter`: how the rows were
    read, a `Meter`.

    Raises:
        ValueError: for the first thing that cannot be read, with file, line, column
            and value.

    Example:

        >>> table = read("docs/examples/gemm.csv", op="gemm", gpu="a10")
        >>> table.num_rows, set(table.gpu)
        (12, {'a10'})
    """
    workloads = request.workloads
    files = _several(request.paths)
    if not files:
        raise ValueError("no measurements are given; name at least one .csv file.")
    listings = (
        workloads
        if isinstance(workloads, Mapping)
        else listings_by_name(_several(workloads))
    )
    meter = Meter() if request.meter is None else request.meter
    if not isinstance(meter, Meter):
        raise ValueError(
            f"`meter` is a {type(meter).__name__}; allowed is a `measurements.Meter`; "
            "give an object of a subclass."
        )
    options = listings, meter, request.gpu, request.op
    return _join([_read(file, *options) for file in files])


def _several(paths: Path | Sequence[Path]) -> list[str]:
    each = [paths] if isinstance(paths, str | os.PathLike) else paths
    return [os.fspath(path) for path in each]


def _read(
    spec: str,
    workloads: Mapping[str, Sequence[Listing]],
    meter: Meter,
    gpu: str | None,
    op: str | None,
) -> MeasurementTable:
    classes = _ops()
    op, file = _op_and_file(spec, op, classes)
    sheet = log_sheet(file, gpu) or read_sheet(file)
    gpus, ops = _gpus(sheet, gpu), _row_ops(sheet, op, classes)
    values, notes = columns.read_measured(sheet)
    planned = are_plans(sheet)
    if not planned:
        _require_times(sheet, ops, values["time_s"])
    fields, skipped = _fields(sheet, ops, classes)
    plans = np.full(sheet.num_rows, None, dtype=object)
    if planned:
        plans, broken = plan_rows(sheet, values["time_s"])
        skipped = np.where(ops == "", broken, skipped).astype(object)
    passes = (ops == "") & (not planned)
    listed = listing_names(sheet, np.flatnonzero(passes), workloads)
    modelled = np.flatnonzero(passes & (listed == ""))
    used = columns.STANDARD.union(
        *(op_column_names(classes[name]) for name in fields),
        MODEL_COLUMNS if passes.any() else (),
        PLAN_COLUMNS if planned else (),
    )
    kinds = "plan" if planned else np.where(ops == "", "workload", "kernel")
    frame = pd.DataFrame(sheet.columns, dtype=object)
    if gpu is not None and "gpu" in frame:
        frame["gpu"] = gpus
    campaign = next((c for c in columns.CAMPAIGN_COLUMNS if c in sheet.columns), "")
    ignored = (column for column in sheet.columns if column not in used)
    return MeasurementTable(
        frame=frame,
        file=np.full(sheet.num_rows, file, dtype=object),
        row=np.arange(sheet.num_rows),
        line=np.array(sheet.lines or np.zeros(sheet.num_rows), int),
        kind=np.full(sheet.num_rows, kinds, dtype=object),
        gpu=gpus,
        op=ops,
        workload=listed,
        campaign=_text(sheet, campaign),
        host=_text(sheet, "host"),
        attention=_text(sheet, "attention"),
        skipped=skipped,
        fields=fields,
        model_request=Columns(modelled, model_requests(sheet, modelled)),
        plan=plans,
        ignored_columns=tuple(ignored),
        notes=notes,
        listings=workloads,
        meter=meter,
        **values,
    )


def _op_and_file(
    spec: str, op: str | None, ops: Mapping[str, Op]
) -> tuple[str | None, str]:
    """Op (None: a column says it) and path of `OP=FILE` or `FILE`."""
    prefix, equals, file = spec.partition("=")
    if equals and prefix.isidentifier() and not os.path.exists(spec):
        op = prefix
    else:
        file = spec
    if op is not None and op not in ops:
        raise ValueError(f"`op` is '{op}'; allowed are {name_list(ops)}.")
    return op, file


def _text(sheet: Sheet, column: str) -> np.ndarray:
    """Texts of a column; empty ones where there is none."""
    if column not in sheet.columns:
        return np.full(sheet.num_rows, "", dtype=object)
    return read_texts(sheet, column, np.arange(sheet.num_rows))


def _fields(
    sheet: Sheet, ops: np.ndarray, classes: Mapping[str, Op]
) -> tuple[dict[str, Columns], np.ndarray]:
    """Fields of every op, and why rows cannot be predicted from them ("": they can)."""
    fields, skipped = {}, np.full(sheet.num_rows, "", dtype=object)
    for name in filter(None, dict.fromkeys(ops)):
        rows = np.flatnonzero(ops == name)
        fields[name] = Columns(rows, op_columns(sheet, classes[name], rows))
        skipped[rows] = broken_shares(classes[name], fields[name].values)
    return fields, skipped


def _ops() -> dict[str, Op]:
    from ..kernels import ops  # loads jax: only once there is a file to read

    return {name: op for name, (op, _) in ops().items()}


def _gpus(sheet: Sheet, gpu: str | None) -> np.ndarray:
    """Bundled GPU name of every row."""
    if gpu is not None:
        return np.full(sheet.num_rows, _gpu_name(gpu), dtype=object)
    require_column(sheet, "gpu", "add it or give --gpu")
    return read_names(sheet, "gpu", np.arange(sheet.num_rows), _gpu_name, needed=True)


def _gpu_name(name_or_path: str) -> str:
    """Bundled name; the path of a GPU file, once checked, stays as it is."""
    card = read_gpu(name_or_path, exact=True)
    return name_or_path if name_or_path.lower().endswith(".toml") else card.name


def _row_ops(sheet: Sheet, op: str | None, ops: Mapping[str, Op]) -> np.ndarray:
    """Op of every kernel row, "" of every workload row."""
    if op is not None:
        return np.full(sheet.num_rows, op, dtype=object)
    if "op" not in sheet.columns:
        if sheet.columns.keys().isdisjoint(("workload", "model")):
            require_column(
                sheet, "op", "add it, or `workload` or `model`, or give --op or OP=FILE"
            )
        return np.full(sheet.num_rows, "", dtype=object)
    has_workloads = not sheet.columns.keys().isdisjoint(("workload", "model"))
    resolve = one_of("op", {name: name for name in ops}, "correct it or give --op")
    every = np.arange(sheet.num_rows)
    return read_names(sheet, "op", every, resolve, needed=not has_workloads)


def _require_times(sheet: Sheet, ops: np.ndarray, time: np.ndarray) -> None:
    missing = np.isnan(time) & ~np.isin(ops, _TIMELESS)
    if not missing.any():
        return
    spellings = columns.READ_COLUMNS["time_s"].spellings
    column = next((c for c in spellings if c in sheet.columns), None)
    if column is None:
        raise ValueError(
            f"{sheet.file}: a column with the time is missing; allowed are "
            f"{name_list(spellings)}; there are {name_list(sheet.columns)}."
        )
    raise bad_cell(sheet, int(missing.argmax()), column, POSITIVE.words)


def _join(tables: Sequence[MeasurementTable]) -> MeasurementTable:
    """Tables one after the other; a column that a file lacks is empty."""
    if len(tables) == 1:
        return tables[0]
    starts = np.cumsum([0, *(table.num_rows for table in tables[:-1])])
    whole = {
        field.name: np.concatenate([getattr(table, field.name) for table in tables])
        for field in dataclasses.fields(MeasurementTable)
        if isinstance(getattr(tables[0], field.name), np.ndarray)
    }
    ops = dict.fromkeys(name for table in tables for name in table.fields)
    fields = {
        op: _join_columns([table.fields.get(op) for table in tables], starts)
        for op in ops
    }
    requests = [t.model_request if len(t.model_request.rows) else None for t in tables]
    ignored = (name for table in tables for name in table.ignored_columns)
    return MeasurementTable(
        frame=pd.concat([t.frame for t in tables], ignore_index=True).fillna(""),
        fields=fields,
        model_request=_join_columns(requests, starts),
        ignored_columns=tuple(dict.fromkeys(ignored)),
        notes=tuple(note for table in tables for note in table.notes),
        listings=tables[0].listings,
        meter=tables[0].meter,
        **whole,
    )


def _join_columns(
    parts: Sequence[Columns | None], starts: Int[np.ndarray, " table"]
) -> Columns:
    """Columns of several tables, of which each begins at its row of `starts`."""
    present = [(p, start) for p, start in zip(parts, starts, strict=True) if p]
    if not present:
        return Columns(np.array([], dtype=int), {})
    return Columns(
        np.concatenate([part.rows + start for part, start in present]),
        {
            name: np.concatenate([part.values[name] for part, _ in present])
            for name in present[0][0].values
        },
    )
