"""Demands by the name of a collective: blocks, where they start, who wants them."""

import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .._machine.topology import Topology
from .._machine.topology_files import load_topology
from .demand import COLLECTIVES, REDUCING, Collective, Demand

_SPELLINGS: Final[dict[str, Collective]] = {
    "alltoallv": "all_to_all",
    "all2all": "all_to_all",
    "a2a": "all_to_all",
    "bcast": "broadcast",
}
_UNITS: Final = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*([a-z]*)\s*", re.I)
_MOST_BLOCKS: Final = 5_000_000


def parse_size(text: str) -> float:
    """Bytes of "1GB", "62.5 MB", "4096" or "64KiB": decimal units, binary with an i.

    Raises `ValueError` for what is no size above 0.

    >>> parse_size("1KB"), parse_size("64KiB")
    (1000.0, 65536.0)
    """
    found = _SIZE.fullmatch(text)
    if not found or found[3].lower() not in _UNITS:
        raise ValueError(
            f"`size` is {text!r}; allowed is a number with B, KB, MB, GB or TB "
            f"(decimal) or KiB, MiB, GiB, TiB."
        )
    size = float(found[1] + (found[2] or "")) * _UNITS[found[3].lower()]
    if not (math.isfinite(size) and size > 0):
        raise ValueError(f"`size` is {text!r}; allowed is any number above 0.")
    return size


def collective_name(given: str) -> Collective:
    """The collective that is meant by `AllGather`, `all-gather`, `allgather` ...

    >>> collective_name("ReduceScatter")
    'reduce_scatter'
    """
    folded = re.sub(r"[\s_-]+", "", given.strip().lower())
    known: dict[str, Collective] = {name.replace("_", ""): name for name in COLLECTIVES}
    known |= _SPELLINGS
    if folded not in known:
        near = difflib.get_close_matches(folded, known, n=2, cutoff=0.5)
        names = dict.fromkeys(known[name] for name in near) or COLLECTIVES
        raise ValueError(
            f"`collective` is {given!r}, which is not known; nearest: "
            f"{', '.join(names)}."
        )
    return known[folded]


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
    if matrix is not None:
        if kind != "all_to_all" or size is not None or groups is not None:
            raise ValueError(
                "`matrix` is given; allowed are all_to_all and neither `size` nor "
                "`groups` with it, since it says all bytes."
            )
        found = _uneven(topology, matrix, chunks)
    else:
        whole = _whole_size(size, chunks)
        teams = [topology.gpus] if groups is None else _teams(topology, groups)
        parts = []
        for team in teams:
            sharing = topology.buffer_gpus if groups is None else len(team)
            parts.append(_demand(kind, topology, team, whole, sharing, chunks, root))
        found = together(parts)
    check_reachable(topology, found)
    return found


def together(demands: Sequence[Demand]) -> Demand:
    """Several demands at once; chunks of a source that occur in an earlier demand get
    numbers after those."""
    if len(demands) == 1:
        return demands[0]
    source = np.concatenate([part.source for part in demands])
    chunk, after = [], {}
    for part in demands:
        first = np.array([after.get(int(s), 0) for s in part.source], int)
        chunk.append(part.chunk + first)
        for s, c in zip(part.source.tolist(), chunk[-1].tolist(), strict=True):
            after[s] = max(after.get(s, 0), c + 1)
    kinds = {part.collective for part in demands}
    return Demand(
        demands[0].collective if len(kinds) == 1 else "custom",
        source,
        np.concatenate(chunk),
        np.concatenate([part.size for part in demands]),
        np.concatenate([part.wanted for part in demands]),
        np.concatenate([part.parts for part in demands]),
    )


# --- one collective


def _whole_size(size: int | float | str | None, chunks: int) -> float:
    """B, if it is a whole number of them that `chunks` divide."""
    if size is None:
        raise ValueError("`size` is missing; give B or text such as 1GB.")
    whole = parse_size(size) if isinstance(size, str) else float(size)
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


def _demand(
    kind: Collective,
    topology: Topology,
    team: Int[np.ndarray, " gpu"],
    size: float,
    sharing: int,
    chunks: int,
    root: int | str,
) -> Demand:
    """`kind` among the GPUs of `team`; blocks of size / sharing / chunks, B."""
    _check_blocks(chunks, chunks * sharing * (sharing if kind == "all_to_all" else 1))
    places = np.arange(len(team))
    numbers = _numbers(topology, team, sharing)
    block = size / sharing / chunks
    if kind in ("broadcast", "reduce"):
        source = np.full(sharing * chunks, _root(topology, team, root))
        chunk, target = np.arange(sharing * chunks), None
    elif kind in ("scatter", "all_to_all"):
        starts = [_root(topology, team, root)] if kind == "scatter" else team
        part, start, to = (
            axis.ravel()
            for axis in np.meshgrid(range(chunks), starts, places, indexing="ij")
        )
        away = start != team[to]
        source, target = start[away], team[to][away]
        chunk = (part * sharing + numbers[to])[away]
    else:
        source = np.repeat(team, chunks)
        chunk, target = np.tile(np.arange(chunks), len(team)), None
        if kind == "gather":
            end = _root(topology, team, root)
            source, chunk = source[source != end], chunk[source != end]
            target = np.full(len(source), end)
    return _filled(kind, topology, team, source, chunk, target, block)


def _check_blocks(chunks: int, blocks: int) -> None:
    if blocks > _MOST_BLOCKS:
        raise ValueError(
            f"`chunks` is {chunks}, which makes {blocks} blocks; allowed are "
            f"{_MOST_BLOCKS}: take fewer chunks."
        )


def _filled(
    kind: Collective,
    topology: Topology,
    team: Int[np.ndarray, " gpu"],
    source: Int[np.ndarray, " block"],
    chunk: Int[np.ndarray, " block"],
    target: Int[np.ndarray, " block"] | None,
    size: float,
) -> Demand:
    """Demand whose blocks go to `target`, else to all others, or sums to their source
    (of an all-reduce: to all)."""
    shape = (len(source), len(topology.nodes))
    wanted, parts = np.zeros(shape, bool), np.zeros(shape, bool)
    rows = np.arange(len(source))
    if kind in REDUCING:
        parts[:, team] = True
        wanted[rows, source] = True
        if kind == "all_reduce":
            wanted[:, team] = True
    elif target is not None:
        wanted[rows, target] = True
    else:
        wanted[:, team] = True
        wanted[rows, source] = False
    return Demand(kind, source, chunk, np.full(len(source), size), wanted, parts)


def _numbers(
    topology: Topology, team: Int[np.ndarray, " gpu"], sharing: int
) -> Int[np.ndarray, " gpu"]:
    """Numbers of GPUs in chunks of an all-to-all: those of their names on a whole
    machine, else their places in the group."""
    if sharing == len(team):
        return np.arange(len(team))
    return np.array([int(topology.nodes[n].name.removeprefix("gpu")) for n in team])


def _root(topology: Topology, team: Int[np.ndarray, " gpu"], root: int | str) -> int:
    if isinstance(root, str) and not root.isdecimal():
        node = topology.index.get(root.strip().lower(), -1)
        if node in team:
            return node
    elif 0 <= int(root) < len(team):
        return int(team[int(root)])
    names = [topology.nodes[n].name for n in team]
    raise ValueError(
        f"`root` is {root!r}; allowed are 0 to {len(team) - 1}, or {names[0]} to "
        f"{names[-1]}."
    )


def _teams(
    topology: Topology, groups: Sequence[Sequence[int | str]]
) -> list[Int[np.ndarray, " gpu"]]:
    gpus = set(topology.gpus.tolist())
    teams = []
    for group in groups:
        names = [f"gpu{g}" if str(g).isdecimal() else str(g).lower() for g in group]
        nodes = [topology.index.get(name, -1) for name in names]
        for name, node in zip(names, nodes, strict=True):
            if node not in gpus:
                raise ValueError(
                    f"`groups` names {name}, which is not a GPU of `{topology.name}`."
                )
        if len(nodes) < 2 or len(set(nodes)) < len(nodes):
            raise ValueError(
                f"`groups` has {' '.join(names)!r}; allowed are two or more GPUs, each "
                f"once."
            )
        teams.append(np.array(nodes))
    if not teams:
        raise ValueError("`groups` is empty; give at least one group of GPUs.")
    return teams


def _uneven(
    topology: Topology, matrix: Float[np.ndarray, "source target"], chunks: int
) -> Demand:
    """All-to-all of given bytes; a pair with 0 B has no block."""
    gpus = topology.gpus
    if matrix.shape != (len(gpus), len(gpus)):
        raise ValueError(
            f"`matrix` is {matrix.shape[0]} x {matrix.shape[1]}; allowed is one row "
            f"and column for each of the {len(gpus)} GPUs of `{topology.name}`."
        )
    if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
        raise ValueError("`matrix` has a cell below 0 or not finite; give bytes.")
    numbers = _numbers(topology, gpus, topology.buffer_gpus)
    part, start, to = (
        axis.ravel()
        for axis in np.meshgrid(
            range(chunks), range(len(gpus)), range(len(gpus)), indexing="ij"
        )
    )
    moved = (start != to) & (matrix[start, to] > 0)
    part, start, to = part[moved], start[moved], to[moved]
    if not len(part):
        raise ValueError("`matrix` asks for no transfer; give bytes off the diagonal.")
    chunk = part * topology.buffer_gpus + numbers[to]
    plain = _filled("all_to_all", topology, gpus, gpus[start], chunk, gpus[to], 0.0)
    return dataclasses.replace(plain, size=matrix[start, to] / chunks)


# --- reachability


def check_reachable(topology: Topology, demand: Demand) -> None:
    """Raises `ValueError` naming a GPU that wants a block that cannot come to it."""
    reach = _reachable(topology)
    node = demand.source
    lost = demand.wanted & ~reach[node]
    short = demand.parts & ~reach.T[node]
    for what, bad in (("wants", lost), ("adds to", short)):
        if not bad.any():
            continue
        blocks, ends = np.nonzero(bad)
        pairs = dict.fromkeys(zip(ends.tolist(), node[blocks].tolist(), strict=True))
        shown = ", ".join(_wish(topology, *pair, what) for pair in list(pairs)[:3])
        more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
        raise ValueError(
            f"`{topology.name}` has no path for {len(pairs)} of the demands: {shown}"
            f"{more}; add links or leave these GPUs out."
        )


def _wish(topology: Topology, end: int, source: int, what: str) -> str:
    return f"{topology.nodes[end].name} {what} {topology.nodes[source].name}'s block"


def _reachable(topology: Topology) -> Bool[np.ndarray, "node node"]:
    """Whether a path leads from a node (row) to another."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = topology.sources, topology.targets
    size = len(topology.nodes)
    graph = coo_array((np.ones(len(topology.links)), ends), shape=(size, size))
    count, part = connected_components(graph, connection="strong")
    reach = np.eye(count, dtype=bool)
    reach[part[ends[0]], part[ends[1]]] = True
    for _ in range(count.bit_length()):  # paths of twice the length each time
        reach = reach.astype(np.float32) @ reach.astype(np.float32) > 0
    return reach[np.ix_(part, part)]
