"""Parts of a sweep on disk: one Parquet file a block, renamed when it is whole, so that
a part that is there is a block that is done; and what is put together from them."""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ._block import Rows
from ._spec import Spec

if TYPE_CHECKING:
    import pyarrow

_HASH: Final = b"spec_hash"
_VERSION: Final = b"diffenergy_version"
_MISSING: Final = (
    "sweeps write Parquet, which needs pyarrow; install it, as by `pip install "
    "'diffenergy[sweep]'`."
)
_NAME: Final = "part-{:06d}.parquet"
SPEC: Final = "spec.json"


def need_pyarrow() -> None:
    """Raises `ValueError` if pyarrow is not there."""
    try:
        import pyarrow.parquet  # noqa: F401  # pyright: ignore
    except ImportError:
        raise ValueError(_MISSING) from None


def part_path(folder: Path, number: int) -> Path:
    """Where the part of a block is."""
    return folder / _NAME.format(number)


def missing(folder: Path, spec: Spec) -> list[int]:
    """Numbers of the blocks that have no part."""
    there = {path.name for path in folder.glob("part-*.parquet")}
    return [i for i in range(spec.blocks) if _NAME.format(i) not in there]


def write_part(folder: Path, number: int, spec: Spec, rows: Rows) -> int:
    """Writes the part of a block, whole or not at all; how many rows have an error."""
    from pyarrow import parquet

    part = folder / f".{uuid.uuid4().hex[:8]}.part"
    try:
        parquet.write_table(_table(spec, rows), part, compression="zstd")
        part.replace(part_path(folder, number))
    finally:
        part.unlink(missing_ok=True)
    return sum(x is not None for x in rows.error)


def _table(spec: Spec, rows: Rows) -> "pyarrow.Table":
    """Axes, figures (null where not known), error; texts by dictionary."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, values in rows.axes.items():
        text = isinstance(spec.axes[name][0], str)
        array = pa.array(values)
        columns[name] = array.dictionary_encode() if text else array
    for name, values in rows.figures.items():
        columns[name] = pa.array(values, mask=~np.isfinite(values))
    columns["error"] = pa.array(rows.error, pa.string()).dictionary_encode()
    return pa.table(columns).replace_schema_metadata(metadata(spec))


def metadata(spec: Spec) -> dict[bytes, bytes]:
    """What tells whose rows they are."""
    from .. import __version__

    return {_HASH: spec.hash.encode(), _VERSION: __version__.encode()}


def spec_hash(path: Path) -> str | None:
    """Hash of the sweep that made a Parquet file, a CSV or a folder; None: unknown."""
    if path.is_dir():
        return _hash_of_json(path / SPEC)
    if path.suffix.lower() == ".csv":
        return _hash_of_json(beside(path))
    from pyarrow import ArrowInvalid, parquet

    try:
        metadata = parquet.read_schema(path).metadata or {}
    except (OSError, ArrowInvalid):
        return None
    return metadata.get(_HASH, b"").decode() or None


def beside(path: Path) -> Path:
    """Where the spec of a CSV stands."""
    return path.with_name(path.name + ".spec.json")


def write_spec(path: Path, spec: Spec) -> None:
    """The spec as JSON."""
    from .. import __version__
    from ..files import write_text_atomic

    content = spec.to_json() | {"diffenergy_version": __version__}
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")


def join_parts(folder: Path, spec: Spec, path: Path) -> None:
    """One file of all parts in order, replaced only when it is whole."""
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        if path.suffix.lower() == ".csv":
            _as_csv(folder, spec, whole)
            write_spec(beside(path), spec)
        else:
            _as_parquet(folder, spec, whole)
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def _parts(folder: Path, spec: Spec) -> Iterator["pyarrow.Table"]:
    from pyarrow import parquet

    for number in range(spec.blocks):
        yield parquet.read_table(part_path(folder, number))


def _as_parquet(folder: Path, spec: Spec, path: Path) -> None:
    from pyarrow import parquet

    writer = None
    try:
        for table in _parts(folder, spec):
            if writer is None:
                writer = parquet.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _as_csv(folder: Path, spec: Spec, path: Path) -> None:
    from pyarrow import csv

    with path.open("wb") as stream:
        for number, table in enumerate(_parts(folder, spec)):
            options = csv.WriteOptions(include_header=number == 0)
            csv.write_csv(_decoded(table), stream, options)


def _decoded(table: "pyarrow.Table") -> "pyarrow.Table":
    """Texts as texts: CSV has no dictionaries."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.name, column)
    return table


def _hash_of_json(path: Path) -> str | None:
    try:
        spec_hash = json.loads(path.read_text()).get("spec_hash")
    except (OSError, ValueError, AttributeError):
        return None
    return spec_hash if isinstance(spec_hash, str) else None
