"""Demands by the name of a collective: blocks, where they start, who wants them."""

import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ..files import csv_lines
from ..units import quantity
from ._demand import COLLECTIVES, REDUCING, Collective, Demand
from ._routes import shortest
from ._topology import Topology
from ._topology_files import load_topology

# --- Demands from CSV files: bytes between GPUs, or a list of blocks.

_MOST_BYTES: Final = 1e18
_COLUMNS: Final = ("source", "chunk", "bytes", "wanted")


def read_matrix_file(path: str) -> Float[np.ndarray, "source target"]:
    """Bytes from each GPU (row) to each other (column): plain numbers, no header.

    Raises `ValueError` naming the line and cell that are wrong.
    """
    cells = _cells(path)
    for line, row in cells:
        if len(row) != len(cells):
            raise ValueError(
                f"{path}, line {line}: the row has {len(row)} cells; allowed are as "
                f"many as there are rows, {len(cells)}."
            )
    rows = [
        [_bytes(x, f"{path}, line {line}, cell {c}") for c, x in enumerate(row, 1)]
        for line, row in cells
    ]
    return np.array(rows, float)


def read_demand_file(path: str, topology: Topology) -> Demand:
    """Any demand, from a CSV with the columns `source, chunk, bytes, wanted`.

    `source`: the GPU that has the block (`gpu0` or 0); `wanted`: GPUs that want it,
    separated by spaces, or `all`. Raises `ValueError` naming the line that is wrong,
    and for a GPU that cannot be reached.
    """
    (_, header), *rows = _cells(path)
    if tuple(name.strip() for name in header) != _COLUMNS:
        raise ValueError(
            f"{path}: the columns are {', '.join(header)[:80]!r}; allowed are "
            f"{', '.join(_COLUMNS)}."
        )
    if not rows:
        raise ValueError(f"{path}: there is no block; add a row for each.")
    blocks: dict[tuple[int, int], float] = {}
    wanted = np.zeros((len(rows), len(topology.nodes)), bool)
    for r, (line, row) in enumerate(rows):
        where = f"{path}, line {line}"
        if len(row) != len(_COLUMNS):
            raise ValueError(
                f"{where}: the row has {len(row)} cells; allowed are {len(_COLUMNS)}."
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
            raise ValueError(f"{where}: a block again; number its chunk anew.")
        blocks[source, chunk] = size
    names, size = np.array(list(blocks)), np.array(list(blocks.values()))
    none = np.zeros_like(wanted)
    listed = Demand("custom", names[:, 0], names[:, 1], size, wanted, none)
    check_reachable(topology, listed)
    return listed


def _cells(path: str) -> list[tuple[int, list[str]]]:
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
    rows = csv_lines(text, path)
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


# --- Demands by the name of a collective

_SPELLINGS: Final[dict[str, Collective]] = {
    "alltoallv": "all_to_all",
    "all2all": "all_to_all",
    "a2a": "all_to_all",
    "bcast": "broadcast",
}
_MOST_BLOCKS: Final = 5_000_000
ROOTED: Final = ("broadcast", "reduce", "scatter", "gather")


def parse_size(text: int | float | str) -> float:
    """Bytes of "1GB", "62.5 MB", "4096" or "64KiB": decimal units, binary with an i. A
    number stays as it is.

    Raises `ValueError` for text that is no size above 0.

    >>> parse_size("1KB"), parse_size("64KiB")
    (1000.0, 65536.0)
    """
    if not isinstance(text, str):
        return float(text)
    size = quantity("size", text, "B")
    if size <= 0:
        raise ValueError(f"`size` is {text!r}; allowed is any number above 0.")
    return size


def collective_name(text: str) -> Collective:
    """The collective that is meant by `AllGather`, `all-gather`, `allgather` ...

    >>> collective_name("ReduceScatter")
    'reduce_scatter'
    """
    folded = re.sub(r"[\s_-]+", "", text.strip().lower())
    names_of: dict[str, Collective] = {
        name.replace("_", ""): name for name in COLLECTIVES
    }
    names_of |= _SPELLINGS
    if folded not in names_of:
        near = difflib.get_close_matches(folded, names_of, n=2, cutoff=0.5)
        names = dict.fromkeys(names_of[name] for name in near) or COLLECTIVES
        raise ValueError(
            f"`collective` is {text!r}, which is not known; nearest: "
            f"{', '.join(names)}."
        )
    return names_of[folded]


def demand(
    collective: str,
    topology: Topology | str,
    size: int | float | str | None = None,
    chunks: int = 1,
    root: int | str = 0,
    matrix: Float[np.ndarray, "source target"] | None = None,
    groups: Sequence[Sequence[int | str]] | None = None,
) -> Demand:
    """Blocks of a collective on the GPUs of a topology.

    A block is size / GPUs of the buffer / chunks: every GPU of an all-gather has
    `chunks` of them, of an all-to-all `chunks` for each other GPU. `size` is the whole
    buffer: what a GPU ends with (reduce-scatter and scatter: what it or the root begins
    with), its own part included. All-to-all and scatter number part p for GPU d as
    p * GPUs + d.

    Args:
        collective: any of `COLLECTIVES` but `custom` (see `demand_files`), common
            spellings too.
        topology: a machine, or what `load_topology` takes.
        size: B, a number or text such as "1GB".
        chunks: blocks that the part of a GPU is cut into [1].
        root: of broadcast, reduce, scatter, gather: its place among the GPUs that take
            part, or its name [0].
        matrix: of an uneven all-to-all, B from each GPU (row) to each other; instead of
            `size`. The diagonal stays where it is.
        groups: tenants; each group of GPUs (numbers or names) runs the collective by
            itself, all at once, with a buffer shared by the group.

    Raises:
        ValueError: for an unknown collective, a size that `chunks` do not divide, a
            root or group that is none, and for a GPU that cannot be reached, by name.

    >>> len(demand("all_gather", "dgx1", "8MB").source)  # a block of each GPU
    8
    """
    topology = load_topology(topology)
    kind = collective_name(collective)
    if kind == "custom":
        raise ValueError(
            "`collective` is custom, which needs a list of blocks; give a demand file."
        )
    if chunks < 1:
        raise ValueError(f"`chunks` is {chunks}; give a whole number from 1 on.")
    machine = _Team(topology, topology.gpus, topology.buffer_gpus, chunks, root)
    if matrix is not None:
        if kind != "all_to_all" or size is not None or groups is not None:
            raise ValueError(
                "`matrix` is given; allowed are all_to_all and neither `size` nor "
                "`groups` with it, since it says all bytes."
            )
        blocks = machine.uneven(matrix)
    else:
        whole = _whole_size(size, chunks)
        teams = [machine] if groups is None else _teams(machine, groups)
        blocks = together([team.demand(kind, whole) for team in teams])
    check_reachable(topology, blocks)
    return blocks


def together(demands: Sequence[Demand]) -> Demand:
    """Several demands at once; chunks of a source that occur in an earlier demand get
    numbers after those."""
    if len(demands) == 1:
        return demands[0]
    chunk, after = [], np.zeros(demands[0].wanted.shape[1], int)
    for part in demands:
        chunk.append(part.chunk + after[part.source])
        np.maximum.at(after, part.source, chunk[-1] + 1)
    kinds = {part.collective for part in demands}
    source, size, wanted, parts = (
        np.concatenate([getattr(part, name) for part in demands])
        for name in ("source", "size", "wanted", "parts")
    )
    kind = demands[0].collective if len(kinds) == 1 else "custom"
    return Demand(kind, source, np.concatenate(chunk), size, wanted, parts)


# --- one collective


def _whole_size(size: int | float | str | None, chunks: int) -> float:
    """Size in B; raises `ValueError` unless whole bytes that `chunks` divide."""
    if size is None:
        raise ValueError("`size` is missing; give B or text such as 1GB.")
    whole = parse_size(size)
    if not (math.isfinite(whole) and whole > 0):
        raise ValueError(f"`size` is {whole:g}; allowed is any number above 0.")
    if whole != round(whole):
        raise ValueError(f"`size` is {whole:g} B; allowed are whole bytes.")
    if whole % chunks:
        raise ValueError(
            f"`size` is {whole:.15g} B, which {chunks} chunks do not divide; "
            f"{math.ceil(whole / chunks) * chunks} B is the next size that they do."
        )
    return whole


@dataclasses.dataclass(frozen=True)
class _Team:
    """GPUs that run a collective: a buffer has `sharing` parts of `chunks` blocks."""

    topology: Topology
    gpus: Int[np.ndarray, " gpu"]
    sharing: int
    chunks: int
    root: int | str

    def demand(self, kind: Collective, size: float) -> Demand:
        """`kind` with blocks of size / sharing / chunks, B."""
        sharing, chunks = self.sharing, self.chunks
        blocks = chunks * sharing * (sharing if kind == "all_to_all" else 1)
        if blocks > _MOST_BLOCKS:
            raise ValueError(
                f"`chunks` is {chunks}, which makes {blocks} blocks; allowed are "
                f"{_MOST_BLOCKS}: take fewer chunks."
            )
        end = self._end() if kind in ROOTED else -1
        if kind in ("broadcast", "reduce"):
            source, target = np.full(sharing * chunks, end), None
            chunk = np.arange(sharing * chunks)
        elif kind in ("scatter", "all_to_all"):
            starts = self.gpus if kind == "all_to_all" else np.array([end])
            source, target, chunk = self._to_each(starts)
        else:
            source = np.repeat(self.gpus, chunks)
            chunk = np.tile(np.arange(chunks), len(self.gpus))
            source, chunk = source[source != end], chunk[source != end]
            target = np.full(len(source), end) if kind == "gather" else None
        return self._filled(kind, source, target, chunk, size / sharing / chunks)

    def uneven(self, matrix: Float[np.ndarray, "source target"]) -> Demand:
        """All-to-all of given bytes; a pair with 0 B has no block."""
        gpus, name = self.gpus, self.topology.name
        if matrix.shape != (len(gpus), len(gpus)):
            raise ValueError(
                f"`matrix` is {matrix.shape[0]} x {matrix.shape[1]}; allowed is one "
                f"row and column for each of the {len(gpus)} GPUs of `{name}`."
            )
        if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            raise ValueError("`matrix` has a cell below 0 or not finite; give bytes.")
        table = np.zeros((len(self.topology.nodes),) * 2)
        table[np.ix_(gpus, gpus)] = matrix
        blocks = self._to_each(gpus)
        source, target, chunk = blocks[:, table[blocks[0], blocks[1]] > 0]
        if not len(source):
            raise ValueError(
                "`matrix` asks for no transfer; give bytes off the diagonal."
            )
        size = table[source, target] / self.chunks
        return self._filled("all_to_all", source, target, chunk, size)

    def _end(self) -> int:
        """Node of the root."""
        root, team = self.root, self.gpus
        if isinstance(root, str) and not root.isdecimal():
            node = gpu_named(self.topology, root)
            if node in team:
                return node
        elif 0 <= int(root) < len(team):
            return int(team[int(root)])
        first, last = (self.topology.names[n] for n in team[[0, -1]])
        raise ValueError(
            f"`root` is {root!r}; allowed are 0 to {len(team) - 1}, or {first} to "
            f"{last}."
        )

    def _to_each(self, starts: Int[np.ndarray, " start"]) -> Int[np.ndarray, "3 block"]:
        """Source, target and chunk of parts from each of `starts` to each other GPU:
        part * sharing + number of the target, which is that of its name on a whole
        machine, else its place in the team."""
        number = np.arange(len(self.gpus))
        if self.sharing != len(self.gpus):
            names = [self.topology.names[n].removeprefix("gpu") for n in self.gpus]
            number = np.array(names).astype(int)
        parts = self.sharing * np.arange(self.chunks)
        part, source, target = np.meshgrid(parts, starts, self.gpus, indexing="ij")
        columns = np.stack([source, target, part + number]).reshape(3, -1)
        return columns[:, columns[0] != columns[1]]

    def _filled(
        self,
        kind: Collective,
        source: Int[np.ndarray, " block"],
        target: Int[np.ndarray, " block"] | None,
        chunk: Int[np.ndarray, " block"],
        size: float | Float[np.ndarray, " block"],
    ) -> Demand:
        """Demand whose blocks go to `target`, else to all others, or sums to their
        source (of an all-reduce: to all)."""
        wanted = np.zeros((len(source), len(self.topology.nodes)), bool)
        parts = np.zeros_like(wanted)
        parts[:, self.gpus] = kind in REDUCING
        rows = np.arange(len(source))
        if target is not None:
            wanted[rows, target] = True
        elif kind in ("reduce", "reduce_scatter"):
            wanted[rows, source] = True
        else:
            wanted[:, self.gpus] = True
            wanted[rows, source] = kind == "all_reduce"
        return Demand(kind, source, chunk, np.full(len(source), size), wanted, parts)


def gpu_named(topology: Topology, number_or_name: int | str) -> int:
    """Node of a GPU by its number or name; -1 if there is none."""
    name = str(number_or_name).strip().lower()
    node = topology.index.get(f"gpu{name}" if name.isdecimal() else name, -1)
    return node if node in topology.gpus else -1


def _teams(machine: _Team, groups: Sequence[Sequence[int | str]]) -> list[_Team]:
    """One team for each group of GPUs, each with a buffer of its own."""
    teams = []
    for group in groups:
        names = [f"gpu{g}" if str(g).isdecimal() else str(g).lower() for g in group]
        nodes = [gpu_named(machine.topology, name) for name in names]
        if -1 in nodes:
            raise ValueError(
                f"`groups` names {names[nodes.index(-1)]}, which is not a GPU of "
                f"`{machine.topology.name}`."
            )
        if len(nodes) < 2 or len(set(nodes)) < len(nodes):
            raise ValueError(
                f"`groups` has {' '.join(names)!r}; allowed are two or more GPUs, each "
                f"once."
            )
        team = dataclasses.replace(machine, gpus=np.array(nodes), sharing=len(nodes))
        teams.append(team)
    if not teams:
        raise ValueError("`groups` is empty; give at least one group of GPUs.")
    return teams


# --- reachability


def unreached(
    topology: Topology, demand: Demand
) -> tuple[Bool[np.ndarray, "block node"], Bool[np.ndarray, "block node"]]:
    """Who wants a block that cannot come to them, and who adds to one that they cannot
    send to."""
    reach = np.isfinite(shortest(topology, np.ones(len(topology.links))))
    source = demand.source
    return demand.wanted & ~reach[source], demand.parts & ~reach.T[source]


def check_reachable(topology: Topology, demand: Demand) -> None:
    """Raises `ValueError` naming a GPU that wants a block that cannot come to it."""
    for what, bad in zip(
        ("wants", "adds to"), unreached(topology, demand), strict=True
    ):
        if not bad.any():
            continue
        blocks, ends = np.nonzero(bad)
        sources = demand.source[blocks].tolist()
        pairs = dict.fromkeys(zip(ends.tolist(), sources, strict=True))
        shown = ", ".join(
            f"{topology.names[end]} {what} {topology.names[source]}'s block"
            for end, source in list(pairs)[:3]
        )
        more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
        raise ValueError(
            f"`{topology.name}` has no path for {len(pairs)} of the demands: {shown}"
            f"{more}; add links or leave these GPUs out."
        )
