"""Sends as JSON and CSV, and schedules back from our own JSON."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from jaxtyping import Float, Int
from msgspec import Meta

from ..schema import fitted
from ._demand import Collective, Demand
from ._demands import collective_name, demand
from ._published import read_json
from ._schedule import Schedule, Sends
from ._topology import Topology
from ._topology_files import load_topology
from ._violation import Violation
from ._what_if import disable, scale

_WHOLE: Final = 1e-6
"""Bytes that a send may lack, as a share of its block, and still be called whole."""
_MOST_BYTES: Final = 1e18
COLUMNS: Final = ("chunk", "source", "from", "to", "start_s", "end_s", "bytes")
"""Of the CSV of sends."""
_Name = Annotated[str, Meta(description="give text in quotes")]
_Seconds = Annotated[float, Meta(description="give a number (s)")]


def sends_json(schedule: Schedule) -> list[dict[str, Any]]:
    """Sends in order of their starts: `chunk, source, link [from, to], start_s, end_s`,
    and `bytes` where a send is a part of its block."""
    return [
        {
            "chunk": chunk,
            "source": source,
            "link": [begin, end],
            "start_s": start,
            "end_s": last,
        }
        | ({} if whole else {"bytes": size})
        for chunk, source, begin, end, start, last, size, whole in _rows(schedule)
    ]


def sends_csv(schedule: Schedule) -> str:
    """Sends as CSV with the columns `COLUMNS`; bytes always."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row[:-1] for row in _rows(schedule))
    return text.getvalue()


def _rows(schedule: Schedule) -> Iterable[tuple]:
    """Columns of `COLUMNS` and whether the block is whole, by start."""
    sends, demand, topology = schedule.sends, schedule.demand, schedule.topology
    names = topology.names
    order = np.lexsort((sends.block, sends.link, sends.end, sends.start))
    block, link = sends.block[order], sends.link[order]
    size = sends.bytes[order]
    return zip(
        demand.chunk[block].tolist(),
        [names[n] for n in demand.source[block].tolist()],
        [names[n] for n in topology.sources[link].tolist()],
        [names[n] for n in topology.targets[link].tolist()],
        sends.start[order].tolist(),
        sends.end[order].tolist(),
        size.tolist(),
        (size >= demand.size[block] * (1 - _WHOLE)).tolist(),
        strict=True,
    )


def demand_json(schedule: Schedule) -> list[dict[str, Any]]:
    """Blocks of a demand that no collective's name says (uneven, custom, tenants):
    `chunk, source, bytes, wanted [names]`, of sums also `parts [names]`."""
    demand = schedule.demand
    names = np.array(schedule.topology.names)
    return [
        {
            "chunk": int(demand.chunk[block]),
            "source": str(names[demand.source[block]]),
            "bytes": float(demand.size[block]),
            "wanted": names[demand.wanted[block]].tolist(),
        }
        | ({"parts": names[demand.parts[block]].tolist()} if demand.reduces else {})
        for block in range(len(demand.size))
    ]


def read_schedule_json(
    path: Path | str, topology: Topology | None = None, table: Any = None
) -> Schedule:
    """The schedule in a JSON file as `collective --json` writes it.

    Keys read: `collective, size_bytes, chunks, sends`, and `topology` if none is given,
    with `latency_s`, `disable` and `scale` where the machine was changed; `epoch_s,
    epochs, root`; `demand` (see `demand_json`) instead of what the collective's name
    says. `table`: what the file holds, if it has been read.

    Raises `Violation` for sends over links or of blocks that do not exist, `ValueError`
    for all that cannot be read.
    """
    table = read_json(path) if table is None else table
    if not isinstance(table, Mapping) or not isinstance(table.get("sends"), list):
        raise ValueError(
            f"`{path}` has no list `sends`; give JSON of `collective --json` for one "
            "size, without --no-sends."
        )
    rows: list[_Send] = fitted(table["sends"], list[_Send], f"`{path}`: ", "sends")
    topology = _topology(table, str(path)) if topology is None else topology
    blocks = _demand(table, topology, rows, str(path))
    sends = _sends(rows, topology, blocks)
    epoch, epochs = table.get("epoch_s"), table.get("epochs")
    return Schedule(
        topology,
        blocks,
        sends,
        float(epoch) if isinstance(epoch, int | float) else None,
        epochs if isinstance(epochs, int) else None,
    )


class _Send(msgspec.Struct, frozen=True):
    """A send of a file: ends by name, times in s, bytes if only a part."""

    chunk: Annotated[float, Meta(multiple_of=1, description="give its whole number")]
    source: _Name
    link: Annotated[tuple[_Name, _Name], Meta(description="give its ends, [from, to]")]
    start_s: _Seconds
    end_s: _Seconds
    bytes: Annotated[float | None, Meta(description="give a number (B)")] = None


class _Changed(msgspec.Struct, frozen=True):
    """Changes of the machine that a file states."""

    latency_s: _Seconds | None = None
    disable: list[_Name] | None = None
    scale: list[_Name] | None = None


_WRONG: Final = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
"""What comes of reading a value that is missing or of another type."""


def _topology(table: Mapping[str, Any], path: str) -> Topology:
    name = table.get("topology")
    if not isinstance(name, str):
        raise ValueError(f"`{path}` names no `topology`; give --topology NAME.")
    changed: _Changed = fitted(table, _Changed, f"`{path}`: ")
    gpu = table.get("gpu")
    topology = load_topology(
        name, changed.latency_s, gpu if isinstance(gpu, str) else None
    )
    for pair in changed.disable or ():
        topology = disable(topology, pair)
    for change in changed.scale or ():
        topology = scale(topology, change)
    return topology


def _demand(
    table: Mapping[str, Any], topology: Topology, rows: list[_Send], path: str
) -> Demand:
    """The demand of a file: its `demand`, or that of the collective's name."""
    kind = collective_name(str(table.get("collective")))
    try:
        if table.get("demand") is not None:
            return _listed(kind, table["demand"], topology)
        size, chunks = float(table["size_bytes"]), int(table.get("chunks") or 1)
    except Violation:
        raise
    except _WRONG as error:
        raise ValueError(
            f"`{path}` lacks {error} or has it wrong; it needs collective, size_bytes "
            "and chunks."
        ) from error
    root = table.get("root")
    if root is None:
        root = _root(kind, topology, rows)
    elif not isinstance(root, int | str):
        raise ValueError(f"`root` of `{path}` is {root!r}; give the name of a GPU.")
    return demand(kind, topology, size, chunks, root)


def _root(kind: Collective, topology: Topology, rows: list[_Send]) -> str | int:
    """Root as the sends show it: their one source; of a gather the GPU that is none."""
    sources = {row.source for row in rows}
    if kind == "gather":
        sources = {topology.names[n] for n in topology.gpus} - sources
    return next(iter(sources)) if len(sources) == 1 else 0


def _listed(kind: Collective, rows: list[Any], topology: Topology) -> Demand:
    """A demand from its JSON."""

    def mask(key: str) -> np.ndarray:
        grid = np.zeros((len(rows), len(topology.nodes)), bool)
        for block, row in enumerate(rows):
            for name in row.get(key, ()):
                grid[block, _node(topology, str(name))] = True
        return grid

    source = [_node(topology, str(row["source"])) for row in rows]
    size = np.array([float(row["bytes"]) for row in rows], float)
    for wrong in size[~((size > 0) & (size < _MOST_BYTES))][:1]:
        raise ValueError(f"`bytes` of the demand is {wrong:g}; give a number above 0.")
    chunk = [int(row["chunk"]) for row in rows]
    columns = np.array(source, int), np.array(chunk, int), size
    return Demand(kind, *columns, mask("wanted"), mask("parts"))


def _node(topology: Topology, name: str) -> int:
    if name not in topology.index:
        raise Violation(f"`{name}` is no node of {topology.name}.")
    return topology.index[name]


def _sends(rows: list[_Send], topology: Topology, blocks: Demand) -> Sends:
    names = topology.names
    links = {(names[a], names[b]): n for (a, b), n in topology.between.items()}
    owners = [names[n] for n in blocks.source.tolist()]
    named = zip(owners, blocks.chunk.tolist(), strict=True)
    numbers = {block: n for n, block in enumerate(named)}
    for n, row in enumerate(rows):
        if row.link not in links:
            raise Violation(
                f"send {n} uses {'->'.join(row.link)}, which is no link of "
                f"{topology.name}."
            )
        if (row.source, row.chunk) not in numbers:
            raise Violation(
                f"send {n} carries chunk {row.chunk:g} of {row.source}, which nobody "
                f"wants."
            )
    block = np.array([numbers[row.source, row.chunk] for row in rows], int)
    link = np.array([links[row.link] for row in rows], int)
    start = np.array([row.start_s for row in rows], float)
    end = np.array([row.end_s for row in rows], float)
    whole = blocks.size[block].tolist()
    size = [n if r.bytes is None else r.bytes for n, r in zip(whole, rows, strict=True)]
    phase = _way_out(blocks, block, start, topology.sources[link])
    return Sends(block, link, start, end, np.array(size, float), phase)


def _way_out(
    blocks: Demand,
    block: Int[np.ndarray, " send"],
    start: Float[np.ndarray, " send"],
    sender: Int[np.ndarray, " send"],
) -> Int[np.ndarray, " send"]:
    """Phases of sends: 1 from when the source of a sum first sends it, since every
    summand must have come by then; 0 before, and for what is no sum."""
    if not blocks.reduces:
        return np.zeros(len(block), int)
    first = np.full(len(blocks.size), np.inf)
    from_home = sender == blocks.source[block]
    np.minimum.at(first, block[from_home], start[from_home])
    return (start >= first[block]).astype(int)
