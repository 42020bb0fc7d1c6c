"""Demands from CSV files: bytes between GPUs, or a list of blocks."""

import csv
import io
import math
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float

from .._machine.topology import Topology
from .demand import Demand
from .demands import check_reachable, gpu_named

_MOST_BYTES: Final = 1e18
_COLUMNS: Final = ("source", "chunk", "bytes", "wanted")


def read_matrix_file(path: str) -> Float[np.ndarray, "source target"]:
    """Bytes from each GPU (row) to each other (column): plain numbers, no header.

    Raises `ValueError` naming the row and cell that are wrong.
    """
    rows = [
        [_bytes(cell, f"{path}: row {r}, column {c}") for c, cell in enumerate(row)]
        for r, row in enumerate(_cells(path))
    ]
    for r, row in enumerate(rows):
        if len(row) != len(rows):
            raise ValueError(
                f"{path}: row {r} has {len(row)} cells; allowed are as many as there "
                f"are rows, {len(rows)}."
            )
    return np.array(rows, float)


def read_demand_file(path: str, topology: Topology) -> Demand:
    """Any demand, from a CSV with the columns `source, chunk, bytes, wanted`.

    `source`: the GPU that has the block (`gpu0` or 0); `wanted`: GPUs that want it,
    separated by spaces, or `all`. Raises `ValueError` naming the row that is wrong, and
    for a GPU that cannot be reached.
    """
    header, *rows = _cells(path)
    if tuple(name.strip() for name in header) != _COLUMNS:
        raise ValueError(
            f"{path}: the columns are {', '.join(header)[:80]!r}; allowed are "
            f"{', '.join(_COLUMNS)}."
        )
    if not rows:
        raise ValueError(f"{path}: there is no block; add a row for each.")
    blocks: dict[tuple[int, int], float] = {}
    wanted = np.zeros((len(rows), len(topology.nodes)), bool)
    for r, row in enumerate(rows):
        where = f"{path}: row {r}"
        if len(row) != len(_COLUMNS):
            raise ValueError(
                f"{where} has {len(row)} cells; allowed are {len(_COLUMNS)}."
            )
        source, number = _gpu(row[0], topology, where), row[1].strip()
        if not number.isdecimal():
            raise ValueError(f"{where}: `chunk` is {number!r}; give a number from 0.")
        chunk = int(number)
        size = _bytes(row[2], where)
        if not 0 < size < _MOST_BYTES:
            raise ValueError(f"{where}: `bytes` is {size:g}; give a number above 0.")
        wanted[r, _takers(row[3], topology, where)] = True
        wanted[r, source] = False
        if not wanted[r].any():
            raise ValueError(
                f"{where}: `wanted` names only the GPU that has the block; name "
                "another, or leave the row out."
            )
        if (source, chunk) in blocks:
            raise ValueError(f"{where} names a block again; number its chunk anew.")
        blocks[source, chunk] = size
    names, size = np.array(list(blocks)), np.array(list(blocks.values()))
    none = np.zeros_like(wanted)
    found = Demand("custom", names[:, 0], names[:, 1], size, wanted, none)
    check_reachable(topology, found)
    return found


def _cells(path: str) -> list[list[str]]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(
            f"{path}: the file cannot be read ({error.strerror}); check the path."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: the file is not UTF-8 text; save it as such.") from (
            None
        )
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise ValueError(
            f"{path}: the file cannot be read as CSV ({error}); give comma-separated "
            f"cells."
        ) from None
    if not rows:
        raise ValueError(f"{path}: the file is empty; give comma-separated cells.")
    return rows


def _bytes(cell: str, where: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{where}: {cell.strip()!r} is no number of bytes from 0 on.")
    return number


def _gpu(cell: str, topology: Topology, where: str) -> int:
    node = gpu_named(topology, cell)
    if node < 0:
        raise ValueError(
            f"{where} names {cell.strip()!r}, which is not a GPU of `{topology.name}`."
        )
    return node


def _takers(cell: str, topology: Topology, where: str) -> list[int]:
    if cell.strip().lower() == "all":
        return topology.gpus.tolist()
    takers = [_gpu(word, topology, where) for word in cell.split()]
    if not takers:
        raise ValueError(f"{where}: `wanted` is empty; name GPUs or `all`.")
    return takers
