"""Published TE-CCL result files: reading, and replay in epochs.

Format and rules: `microsoft/TE-CCL` (c128bf2, MIT), `teccl/solvers`; nodes are matrix
rows, which are GPU numbers on machines without a network switch in row 0.
"""

import dataclasses
import gzip
import itertools
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from ._demand import Demand
from ._routes import EpochModel, epoch_model
from ._schedule import Schedule, Sends
from ._simulate import run_epochs
from ._topology import Topology
from ._verify import verify
from ._violation import Violation, block_name

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
    """Value in a JSON file, also gzipped; raises `ValueError` if it is none."""
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
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < _MOST:
        raise ValueError(
            f"`{key}` of `{path}` is {value!r:.40}; published TE-CCL files have a "
            "number above 0 there."
        )
    return float(value)


def _check_claims(met: Any, topology: Topology, demand: Demand) -> None:
    """Every demand of an all-gather is in the file's own table of met ones."""
    name = [name.replace("gpu", "GPU ") for name in topology.names]
    for block, node in np.argwhere(demand.wanted).tolist():
        source, taker = name[demand.source[block]], name[node]
        try:
            epoch = met[source][taker][f"Chunk {demand.chunk[block]}"]
        except (LookupError, TypeError):
            epoch = None
        if source != taker and not isinstance(epoch, int | float):
            raise Violation(
                f"`{_MET}` does not have the demand of {taker} for chunk "
                f"{demand.chunk[block]} of {source}."
            )


def _flows(table: Mapping[str, Any]) -> list[str]:
    """The flows of a file; of an all-to-all those of its paths, since flows that two
    paths share in an epoch are listed once, with the volume of one."""
    if _GATHER in table:
        return [str(flow) for flow in table[_GATHER]]
    listed, flows = {str(flow) for flow in table[_TO_ALL]}, []
    for demand, paths in table[_PATHS].items():
        match = _DEMAND.fullmatch(demand)
        if match is None:
            raise ValueError(f"`{demand}`")
        hops = [hop for path in paths for _, hop in path]
        flows += [f"Chunk {match[1]} traveled over {hop}" for hop in hops]
    odd = sorted(listed.symmetric_difference(flows))
    if odd:
        where = "no path" if odd[0] in listed else "a path but not listed"
        raise Violation(f"the flow `{odd[0]}` belongs to {where}.")
    return flows


def _hop_epochs(model: EpochModel, gather: bool) -> np.ndarray:
    """Epochs from a send until what it carries can be sent on, by link."""
    return model.hop if gather else model.part_hop


_Hops = dict[tuple[int, int, int, int], float]
"""Volume, as a share of a chunk, by (chunk, source, link, epoch)."""


def _hops(flows: list[str], topology: Topology, hop: np.ndarray) -> _Hops:
    """Flows apart into sends over one link each; shared sends once.

    A flow through switches names the nodes on its way: it enters the next link in the
    epoch in which it is there. Copies of a chunk share a send, parts of it add up.
    """
    index = topology.index
    hops: _Hops = {}
    for flow in flows:
        match = _FLOW.fullmatch(flow.strip())
        if match is None:
            raise ValueError(f"`{flow}` is no flow of a published TE-CCL file.")
        chunk, source, a, b = (int(match[n]) for n in range(1, 5))
        inner = [int(n) for n in re.findall(r"\d+", match[7] or "")]
        epoch, volume = int(match[6]), float(match[5] or 1.0)
        way = [_node(index, n, flow) for n in (a, *inner, b)]
        for ends in zip(way, way[1:], strict=False):
            if ends not in topology.between:
                names = "->".join(topology.names[n] for n in ends)
                raise Violation(
                    f"`{flow}` uses {names}, which is no link of {topology.name}."
                )
            link = topology.between[ends]
            key = chunk, _node(index, source, flow), link, epoch
            hops[key] = hops.get(key, 0.0) + volume if match[5] else 1.0
            epoch += int(hop[link])
    return {key: volume for key, volume in hops.items() if volume > _LEAST}


def _node(index: dict[str, int], number: int, flow: str) -> int:
    name = f"gpu{number}"
    if name not in index:
        raise Violation(f"`{flow}` names node {number}, which the topology lacks.")
    return index[name]


def _demand(topology: Topology, size: float, hops: _Hops, gather: bool) -> Demand:
    """Every GPU wants every other's chunks (all-gather), or the one that is its."""
    gpus = topology.gpus
    count = 1 + max((key[0] for key in hops), default=0) if gather else len(gpus)
    source, chunk = np.repeat(gpus, count), np.tile(np.arange(count), len(gpus))
    if not gather:
        away = source != gpus[chunk]
        source, chunk = source[away], chunk[away]
    wanted = np.zeros((len(source), len(topology.nodes)), bool)
    rows = np.arange(len(source))[:, None]
    wanted[rows, gpus if gather else gpus[chunk][:, None]] = True
    kind, sizes = "all_gather" if gather else "all_to_all", np.full(len(source), size)
    return Demand(kind, source, chunk, sizes, wanted, np.zeros_like(wanted))


def _schedule(
    topology: Topology, demand: Demand, hops: _Hops, epochs: tuple[float, int]
) -> Schedule:
    block = {
        (int(s), int(c)): n
        for n, (s, c) in enumerate(zip(demand.source, demand.chunk, strict=True))
    }
    for chunk, source, _, _ in hops:
        if (source, chunk) not in block:
            name = topology.names[source]
            raise Violation(f"chunk {chunk} of {name} is wanted by nobody.")
    numbers = np.array([block[key[1], key[0]] for key in hops], int)
    link = np.array([key[2] for key in hops], int)
    start = np.array([key[3] for key in hops], float) * epochs[0]
    size = demand.size[numbers] * np.array(list(hops.values()))
    end = start + size / topology.rates[link] + topology.latencies[link]
    if demand.collective == "all_to_all":
        chunk = np.array(topology.gpus[demand.chunk], int)
        demand = dataclasses.replace(demand, chunk=chunk)
    sends = Sends(numbers, link, start, end, size, np.zeros(len(hops), int))
    return Schedule(topology, demand, sends, *epochs)


def replay_epochs(schedule: Schedule) -> int:
    """Epochs that a schedule of `read_published` takes by the published rules; raises
    `Violation` where it breaks them.

    Whole chunks: any 1 + beta epochs carry what they can, chunks are sent on when they
    are there, out of a switch in that very epoch. All-to-all: parts of chunks, at most
    the capacity in each epoch; nobody sends on more than is there.
    """
    model, sends = _model(schedule), schedule.sends
    epoch = np.rint(sends.start / model.tau).astype(int)
    gather = schedule.demand.collective != "all_to_all"
    there = epoch + _hop_epochs(model, gather)[sends.link]
    if gather:
        _check_loads(schedule, epoch, model.window, model.most)
    else:
        _check_loads(schedule, epoch, np.ones_like(model.window), model.capacity)
    return _replay(schedule, epoch, there)


def _model(schedule: Schedule) -> EpochModel:
    """The epochs of a published schedule."""
    assert schedule.epoch is not None
    chunk = float(schedule.demand.size.max())
    return epoch_model(schedule.topology, chunk, schedule.epoch)


def _check_loads(
    schedule: Schedule, epoch: np.ndarray, window: np.ndarray, most: np.ndarray
) -> None:
    """A link carries at most `most` chunks in any `window` epochs in a row."""
    sends, topology = schedule.sends, schedule.topology
    order = np.lexsort((epoch, sends.link))
    volume = sends.bytes[order] / float(schedule.demand.size.max())
    ends = np.flatnonzero(np.diff(sends.link[order], prepend=-1, append=-1))
    for low, high in itertools.pairwise(ends):
        link, when = int(sends.link[order[low]]), epoch[order[low:high]]
        total = np.append(0.0, np.cumsum(volume[low:high]))
        first = np.searchsorted(when, when - window[link], "right")
        load = total[np.searchsorted(when, when, "right")] - total[first]
        for n in np.flatnonzero(load > most[link] + 1e-4)[:1]:
            raise Violation(
                f"{topology.link_name(link)} carries {load[n]:.6g} chunks in the "
                f"{window[link]} epochs up to {when[n]}; its capacity is "
                f"{most[link]:g}."
            )


def _replay(schedule: Schedule, epoch: np.ndarray, there: np.ndarray) -> int:
    """Epochs until the last demand is met."""
    demand, sends, topology = schedule.demand, schedule.sends, schedule.topology
    names = topology.names
    parts = demand.collective == "all_to_all"
    order = np.argsort(epoch, kind="stable").tolist()
    stock: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for send in order:
        place = int(sends.block[send]), int(schedule.targets[send])
        stock[place].append((int(there[send]), float(sends.bytes[send])))
    gone: dict[tuple[int, int, int], float] = defaultdict(float)
    for send in order:
        block, now = int(sends.block[send]), int(epoch[send])
        node = int(schedule.sources[send])
        if demand.source[block] == node:
            continue
        stores = bool(topology.stores[node])
        stored = sum(
            amount
            for time, amount in stock[block, node]
            if time == now or (stores and time < now)
        )
        if parts:
            key = block, node, -1 if stores else now
            gone[key] += float(sends.bytes[send])
            stored -= gone[key]
        if stored < demand.size[block] * (-1e-4 if parts else 0.5):
            raise Violation(
                f"{block_name(schedule, block)} leaves {names[node]} for "
                f"{names[schedule.targets[send]]} in epoch {now}, when {names[node]} "
                f"does not have it."
            )
    last = 0
    for block, node in np.argwhere(demand.wanted).tolist():
        if demand.source[block] == node:
            continue
        come = sorted(stock[block, node])
        stored = np.cumsum([amount for _, amount in come])
        whole = np.flatnonzero(stored >= demand.size[block] * (1 - 1e-4))
        if not len(whole):
            raise Violation(
                f"{block_name(schedule, block)} never comes whole to {names[node]}, "
                f"which wants it."
            )
        last = max(last, come[whole[0]][0])
    return last


def run_published(schedule: Schedule) -> tuple[Schedule, float]:
    """A schedule in epochs, checked by their rules and then run in continuous time with
    the order of its epochs and true latencies, checked again; and its finish, s."""
    epochs = replay_epochs(schedule)
    if schedule.epochs is not None and epochs != schedule.epochs:
        raise Violation(
            f"the last demand is met after {epochs} epochs, not after the "
            f"{schedule.epochs} that the schedule states."
        )
    parts = schedule.demand.collective == "all_to_all"
    moved = run_epochs(schedule, _model(schedule), parts)
    return moved, verify(moved)
