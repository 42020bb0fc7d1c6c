"""Published TE-CCL result files: reading, and replay in epochs.

Format and rules: `microsoft/TE-CCL` (c128bf2, MIT), `teccl/solvers`; nodes are matrix
rows, which are GPU numbers on machines without a network switch in row 0.
"""

import dataclasses
import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from .._demand.demand import Demand
from .._machine.epochs import EpochModel, epoch_model
from .._machine.topology import Topology
from .._schedule.hops import Arrivals
from .._schedule.schedule import Schedule, Sends
from .._schedule.simulate import retime
from .._verify.verify import Verified, verify
from .._verify.violation import Violation

_FLOW: Final = re.compile(
    r"Chunk (\d+) from (\d+) traveled over (\d+)->(\d+)"
    r"(?: with volume ([0-9.eE+-]+))? in epoch (\d+)(?: via switches ([0-9 >-]+))?"
)
_DEMAND: Final = re.compile(r"Demand at \d+ for chunk (\d+ from \d+) met by epoch \d+")
_GATHER: Final = "7-Flows"
_TO_ALL: Final = "6-Flows"
_MET: Final = "6-Demand_Met"
_PATHS: Final = "7-chunk paths"
_LEAST: Final = 1e-6
"""Volumes below this share of a chunk are rounding."""
_MOST: Final = 1e12
"""Numbers above this are no epoch, time or bandwidth."""


def is_published(table: object) -> bool:
    """Whether a JSON value is one of the published result files."""
    return isinstance(table, Mapping) and (_GATHER in table or _TO_ALL in table)


def read_json(path: Path | str) -> Any:
    """A JSON file, also gzipped; one sentence if it is none."""
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return json.loads(text.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"`{path}` cannot be read: {error.strerror}.") from error
    except RecursionError:
        raise ValueError(
            f"`{path}` is nested too deeply; give a file as it was written."
        ) from None
    except (EOFError, UnicodeDecodeError, ValueError, zlib.error) as error:
        raise ValueError(
            f"`{path}` is not whole JSON ({error}); give a file as it was written."
        ) from error


def read_published(path: Path | str, topology: Topology) -> Schedule:
    """The schedule in a published result file, every send at the start of its epoch.

    `end` is start + bytes / rate + latency, which later sends need not wait for: in
    epochs a small latency counts as none (`replay_epochs`, `run_published`). Chunk
    numbers of an all-to-all become those of the GPU that the chunk is for.
    """
    table = read_json(path)
    if not is_published(table):
        raise ValueError(
            f"`{path}` has neither `{_GATHER}` nor `{_TO_ALL}`; "
            "published TE-CCL files have one of them."
        )
    try:
        tau = _number(table, "1-Epoch_Duration", path)
        epochs = int(_number(table, "3-Epochs_Required", path))
        buffer = _number(table, "5-Algo_Bandwidth", path) * 1e9
        took = _number(table, "4-Collective_Finish_Time", path)
        chunk = buffer * took / topology.buffer_gpus
        flows = _flows(table)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(
            f"`{path}` lacks {error} or has it wrong; published TE-CCL files have it."
        ) from error
    if not (0 < tau < np.inf and 0 < chunk < np.inf):
        raise ValueError(f"`{path}` has an epoch of {tau} s and chunks of {chunk} B.")
    model = epoch_model(topology, chunk, tau)
    hops = _hops(flows, topology, _hop_epochs(model, _GATHER in table))
    demand = _demand(topology, round(chunk, 6), hops, gather=_GATHER in table)
    if _GATHER in table and _MET in table:
        _check_claims(table[_MET], topology, demand)
    return _schedule(topology, demand, hops, (tau, epochs))


def _number(table: Mapping[str, Any], key: str, path: Path | str) -> float:
    """A positive number of the file's head."""
    value: Any = table.get(key)
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not 0 < value < _MOST:
        raise ValueError(
            f"`{key}` of `{path}` is {value!r:.40}; published TE-CCL files have a "
            "number above 0 there."
        )
    return float(value)


def _check_claims(met: Any, topology: Topology, demand: Demand) -> None:
    """Every demand of an all-gather is in the file's own table of met ones."""
    name = [node.name.replace("gpu", "GPU ") for node in topology.nodes]
    for block, node in np.argwhere(demand.wanted).tolist():
        source, taker = name[demand.source[block]], name[node]
        try:
            found = met[source][taker][f"Chunk {demand.chunk[block]}"]
        except (LookupError, TypeError):
            found = None
        if source != taker and not isinstance(found, int | float):
            raise Violation(
                f"`{_MET}` does not have the demand of {taker} for chunk "
                f"{demand.chunk[block]} of {source}."
            )


def _flows(table: Mapping[str, Any]) -> list[str]:
    """The flows of a file; of an all-to-all those of its paths, since flows that two
    paths share in an epoch are listed once, with the volume of one."""
    if _GATHER in table:
        return [str(flow) for flow in table[_GATHER]]
    listed = {str(flow) for flow in table[_TO_ALL]}
    flows = [
        f"Chunk {_chunk(demand)} traveled over {hop}"
        for demand, paths in table[_PATHS].items()
        for path in paths
        for _, hop in path
    ]
    odd = sorted(listed.symmetric_difference(flows))
    if odd:
        where = "no path" if odd[0] in listed else "a path but not listed"
        raise Violation(f"the flow `{odd[0]}` belongs to {where}.")
    return flows


def _chunk(demand: str) -> str:
    """`0 from 10` of a demand."""
    found = _DEMAND.fullmatch(demand)
    if found is None:
        raise ValueError(f"`{demand}`")
    return found[1]


def _hop_epochs(model: EpochModel, gather: bool) -> np.ndarray:
    """Epochs from a send until what it carries can be sent on, by link."""
    return model.hop if gather else 1 + model.delay


_Hops = dict[tuple[int, int, int, int], float]
"""Volume, as a share of a chunk, by (chunk, source, link, epoch)."""


def _hops(flows: list[str], topology: Topology, hop: np.ndarray) -> _Hops:
    """Flows apart into sends over one link each; shared sends once.

    A flow through switches names the nodes on its way: it enters the next link in the
    epoch in which it is there. Copies of a chunk share a send, parts of it add up.
    """
    index = topology.index
    link = {
        (int(a), int(b)): n
        for n, (a, b) in enumerate(zip(topology.sources, topology.targets, strict=True))
    }
    hops: _Hops = {}
    for flow in flows:
        found = _FLOW.fullmatch(flow.strip())
        if found is None:
            raise ValueError(f"`{flow}` is no flow of a published TE-CCL file.")
        chunk, source, a, b = (int(found[n]) for n in range(1, 5))
        inner = [int(n) for n in re.findall(r"\d+", found[7] or "")]
        epoch, volume = int(found[6]), float(found[5] or 1.0)
        way = [_node(index, n, flow) for n in (a, *inner, b)]
        for ends in zip(way, way[1:], strict=False):
            if ends not in link:
                names = [topology.nodes[n].name for n in ends]
                raise Violation(
                    f"`{flow}` uses {names[0]}->{names[1]}, which is no link of "
                    f"{topology.name}."
                )
            key = chunk, _node(index, source, flow), link[ends], epoch
            hops[key] = hops.get(key, 0.0) + volume if found[5] else 1.0
            epoch += int(hop[link[ends]])
    return {key: volume for key, volume in hops.items() if volume > _LEAST}


def _node(index: dict[str, int], number: int, flow: str) -> int:
    name = f"gpu{number}"
    if name not in index:
        raise Violation(f"`{flow}` names node {number}, which the topology lacks.")
    return index[name]


def _demand(topology: Topology, chunk: float, hops: _Hops, gather: bool) -> Demand:
    """Every GPU wants every other's chunks (all-gather), or the one that is its."""
    gpus, nodes = topology.gpus, len(topology.nodes)
    if gather:
        chunks = 1 + max((key[0] for key in hops), default=0)
        pairs = [(s, c, gpus) for s in gpus for c in range(chunks)]
    else:
        pairs = [
            (s, d, gpus[[d]]) for s in gpus for d in range(len(gpus)) if gpus[d] != s
        ]
    wanted = np.zeros((len(pairs), nodes), bool)
    for block, (_, _, takers) in enumerate(pairs):
        wanted[block, takers] = True
    return Demand(
        "all_gather" if gather else "all_to_all",
        np.array([pair[0] for pair in pairs], int),
        np.array([pair[1] for pair in pairs], int),
        np.full(len(pairs), chunk),
        wanted,
        np.zeros_like(wanted),
    )


def _schedule(
    topology: Topology, demand: Demand, hops: _Hops, epochs: tuple[float, int]
) -> Schedule:
    block = {
        (int(s), int(c)): n
        for n, (s, c) in enumerate(zip(demand.source, demand.chunk, strict=True))
    }
    keys = list(hops)
    for chunk, source, _, _ in keys:
        if (source, chunk) not in block:
            name = topology.nodes[source].name
            raise Violation(f"chunk {chunk} of {name} is wanted by nobody.")
    numbers = np.array([block[key[1], key[0]] for key in keys], int)
    link = np.array([key[2] for key in keys], int)
    start = np.array([key[3] for key in keys], float) * epochs[0]
    size = demand.size[numbers] * np.array([hops[key] for key in keys])
    end = start + size / topology.rates[link] + topology.latencies[link]
    if demand.collective == "all_to_all":
        chunk = np.array(topology.gpus[demand.chunk], int)
        demand = dataclasses.replace(demand, chunk=chunk)
    sends = Sends(numbers, link, start, end, size, np.zeros(len(keys), int))
    return Schedule(topology, demand, sends, *epochs)


def replay_epochs(schedule: Schedule) -> int:
    """Epochs that a schedule in epochs takes by the published rules; raises
    `Violation` where it breaks them.

    Whole chunks: any 1 + beta epochs carry what they can, chunks are sent on when they
    are there, out of a switch in that very epoch. All-to-all: parts of chunks, at most
    the capacity in each epoch; nobody sends on more than is there.
    """
    if schedule.epoch is None:
        raise ValueError(
            "the schedule has no epochs; give one that was made in epochs."
        )
    demand, sends = schedule.demand, schedule.sends
    if demand.reduces:
        raise ValueError(
            "sums have no published rules in epochs; verify them in continuous time."
        )
    chunk = float(demand.size.max())
    model = epoch_model(schedule.topology, chunk, schedule.epoch)
    epoch = np.rint(sends.start / schedule.epoch).astype(int)
    gather = demand.collective != "all_to_all"
    there = epoch + _hop_epochs(model, gather)[sends.link]
    window = model.window if gather else np.ones_like(model.window)
    most = model.most if gather else model.capacity
    for link in np.unique(sends.link).tolist():
        mine = sends.link == link
        _check_load(
            schedule,
            link,
            epoch[mine],
            sends.bytes[mine] / chunk,
            (int(window[link]), float(most[link])),
        )
    return _replay(schedule, epoch, there)


def _check_load(
    schedule: Schedule,
    link: int,
    epoch: np.ndarray,
    volume: np.ndarray,
    limit: tuple[int, float],
) -> None:
    """At most `limit[1]` chunks in any `limit[0]` epochs in a row."""
    order = np.argsort(epoch, kind="stable")
    when, total = epoch[order], np.concatenate([[0.0], np.cumsum(volume[order])])
    first = np.searchsorted(when, when - limit[0], "right")
    load = total[np.searchsorted(when, when, "right")] - total[first]
    over = np.flatnonzero(load > limit[1] + 1e-4)
    if len(over):
        topology = schedule.topology
        ends = (
            topology.nodes[topology.sources[link]],
            topology.nodes[topology.targets[link]],
        )
        raise Violation(
            f"{ends[0].name}->{ends[1].name} carries {load[over[0]]:.6g} chunks in the "
            f"{limit[0]} epochs up to {when[over[0]]}; its capacity is {limit[1]:g}."
        )


def _replay(schedule: Schedule, epoch: np.ndarray, there: np.ndarray) -> int:
    """Epochs until the last demand is met."""
    demand, sends, topology = schedule.demand, schedule.sends, schedule.topology
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    order = np.argsort(epoch, kind="stable").tolist()
    stock: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for send in order:
        key = int(sends.block[send]), int(target[send])
        stock.setdefault(key, []).append((int(there[send]), float(sends.bytes[send])))
    gone: dict[tuple[int, int, int], float] = {}
    parts = demand.collective == "all_to_all"
    for send in order:
        block, node = int(sends.block[send]), int(source[send])
        if demand.source[block] == node:
            continue
        stores = bool(topology.stores[node])
        now = int(epoch[send])
        held = sum(
            amount
            for time, amount in stock.get((block, node), [])
            if time == now or (stores and time < now)
        )
        key = block, node, -1 if stores else now
        if parts:
            gone[key] = gone.get(key, 0.0) + float(sends.bytes[send])
            held -= gone[key]
        if held < (-1e-4 * demand.size[block] if parts else demand.size[block] * 0.5):
            name, link = topology.nodes[node].name, topology.nodes[target[send]].name
            raise Violation(
                f"chunk {demand.chunk[block]} of "
                f"{topology.nodes[demand.source[block]].name} leaves {name} for {link} "
                f"in epoch {now}, when {name} does not have it."
            )
    return max(
        (_met(schedule, stock, int(b), int(n)) for b, n in np.argwhere(demand.wanted)),
        default=0,
    )


def _met(
    schedule: Schedule,
    stock: dict[tuple[int, int], list[tuple[int, float]]],
    block: int,
    node: int,
) -> int:
    """Epoch from which a wanted block is whole at a node."""
    demand, topology = schedule.demand, schedule.topology
    if demand.source[block] == node:
        return 0
    held = 0.0
    for time, amount in sorted(stock.get((block, node), [])):
        held += amount
        if held >= demand.size[block] * (1 - 1e-4):
            return time
    raise Violation(
        f"chunk {demand.chunk[block]} of {topology.nodes[demand.source[block]].name} "
        f"never comes whole to {topology.nodes[node].name}, which wants it."
    )


def run_published(schedule: Schedule) -> tuple[Schedule, Verified]:
    """A schedule in epochs, checked by their rules and then run in continuous time with
    the order of its epochs and true latencies, checked again."""
    epochs = replay_epochs(schedule)
    if schedule.epochs is not None and epochs != schedule.epochs:
        raise Violation(
            f"the last demand is met after {epochs} epochs, not after the "
            f"{schedule.epochs} that the schedule states."
        )
    assert schedule.epoch is not None
    chunk = float(schedule.demand.size.max())
    model = epoch_model(schedule.topology, chunk, schedule.epoch)
    hop = _hop_epochs(model, schedule.demand.collective != "all_to_all")
    there = schedule.sends.start + hop[schedule.sends.link] * schedule.epoch
    never = np.full(len(there), np.inf)
    moved = retime(schedule, Arrivals(there, there, never))
    return moved, verify(moved)
