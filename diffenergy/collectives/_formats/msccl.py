"""MSCCL XML of a schedule: programs of thread blocks, one for each GPU and peer."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from .._demand.demand import Collective, Demand
from .._schedule.hops import Part, into_sums, through_switches
from .._schedule.schedule import Schedule
from .._verify.verify import verify

NAMES: Final[Mapping[Collective, str]] = {
    "all_gather": "allgather",
    "all_to_all": "alltoall",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "allreduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""Collectives that MSCCL has, and what it calls them."""
_MOST_PIECES: Final = 64
"""Blocks are cut into at most so many equal pieces."""
_TIME: Final = 1e-9
"""Times this near each other, as a share of the last end, are the same."""
_SHARE: Final = 1e-4
"""Parts of a block are read as multiples of a piece to this share of it."""


@dataclasses.dataclass(frozen=True)
class _Transfer:
    """A piece of a block from GPU to GPU (nodes), whatever switches it passes."""

    end: float
    start: float
    block: int
    piece: int
    source: int
    target: int
    phase: int


@dataclasses.dataclass(frozen=True)
class _Place:
    """Buffer (i, o or s) and chunk in it."""

    buffer: str
    offset: int


@dataclasses.dataclass
class _Step:
    kind: str
    source: _Place
    target: _Place
    waits: "tuple[_Block, int] | None" = None
    awaited: bool = False


@dataclasses.dataclass(eq=False)
class _Block:
    """A thread block: peer that it sends to or receives from, -1 for none."""

    send: int
    recv: int
    steps: list[_Step] = dataclasses.field(default_factory=list)


def msccl_xml(schedule: Schedule) -> str:
    """The program that moves what the schedule moves, in its order.

    A thread block sends to one peer or receives from one; steps follow the ends of the
    sends, so that first in is first out on every connection and waiting cannot go in a
    circle. Switches do not appear: what they copy is sent to each peer, what they add
    up is added by the receiver. Buffers are not in place: i (input) is only read, sums
    grow in o or in s (scratch).

    Raises `Violation` for a schedule that is wrong, `ValueError` for what MSCCL cannot
    say: other collectives, blocks of different sizes, parts that are no multiples of a
    64th or less of a block.
    """
    verify(schedule)
    demand = schedule.demand
    if demand.collective not in NAMES:
        raise ValueError(
            f"`collective` is {demand.collective}; MSCCL has {', '.join(NAMES)}."
        )
    if not np.allclose(demand.size, demand.size[0]):
        raise ValueError(
            "`size` differs between blocks; MSCCL needs chunks of one size, so export "
            "the JSON of sends."
        )
    pieces = _pieces(schedule)
    if not _whole_machine(demand):
        raise ValueError(
            "`tenants` run this collective in groups; MSCCL has one for all GPUs, so "
            "export the JSON of sends."
        )
    program = _Program(schedule, pieces)
    for transfer in sorted(_transfers(schedule, pieces), key=_order):
        program.add(transfer)
    return program.xml()


def _whole_machine(demand: Demand) -> bool:
    """Whether all GPUs that take part run one collective."""
    part = np.zeros(demand.wanted.shape[1], bool)
    part |= (demand.wanted | demand.parts).any(axis=0)
    part[demand.source] = True
    takers = demand.wanted | demand.parts
    takers[np.arange(len(takers)), demand.source] = True
    if demand.collective != "all_to_all":
        return bool((takers == part).all())
    pairs = np.zeros((len(part), len(part)), bool)
    np.logical_or.at(pairs, demand.source, takers)
    return bool((pairs[part] == part).all())


def _order(transfer: _Transfer) -> tuple[float, float, int, int, int, int]:
    return (
        transfer.end,
        transfer.start,
        transfer.block,
        transfer.piece,
        transfer.source,
        transfer.target,
    )


def _pieces(schedule: Schedule) -> int:
    """Equal pieces of which every send carries a whole number."""
    share = schedule.sends.bytes / schedule.demand.size[schedule.sends.block]
    single = np.count_nonzero(schedule.demand.wanted, axis=1) <= 1
    if np.any((share < 1 - _SHARE) & ~single[schedule.sends.block]):
        raise ValueError(
            "a block that several GPUs want moves in parts; give `chunks` instead, so "
            "that parts are chunks of their own."
        )
    for pieces in range(1, _MOST_PIECES + 1):
        if np.all(np.abs(share * pieces - np.rint(share * pieces)) < _SHARE):
            return pieces
    raise ValueError(
        f"sends carry parts that are no multiples of 1/{_MOST_PIECES} of a block or "
        "more; MSCCL needs equal chunks, so use a method that moves whole blocks."
    )


def _transfers(schedule: Schedule, pieces: int) -> Iterable[_Transfer]:
    """Sends from GPU to GPU; on a GPU the pieces that came first go first."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    slack = _TIME * float(sends.end.max(initial=0.0))
    feeds = _feeds(schedule, slack)
    share = sends.bytes / demand.size[sends.block]
    carried: dict[int, list[tuple[int, int, float]]] = {}
    stock: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for send in np.lexsort((sends.end, sends.start)).tolist():
        block, link = int(sends.block[send]), topology.links[sends.link[send]]
        start, end = float(sends.start[send]), float(sends.end[send])
        count = round(float(share[send]) * pieces)
        if not topology.stores[link.source]:
            mine = _fed(feeds[send], carried, float(demand.size[block]) / pieces)
        elif count == pieces:
            mine = [(piece, link.source, start) for piece in range(pieces)]
        else:
            whole = [(0.0, piece) for piece in range(pieces)]
            own = demand.source[block] == link.source
            left = stock.setdefault((block, link.source), whole if own else [])
            left.sort()
            mine = [(piece, link.source, start) for _, piece in left[:count]]
            del left[:count]
        carried[send] = mine
        if topology.stores[link.target]:
            if demand.source[block] != link.target:
                there = stock.setdefault((block, link.target), [])
                there += [(end, piece) for piece, _, _ in mine]
            phase = int(sends.phase[send])
            for piece, origin, begun in mine:
                yield _Transfer(end, begun, block, piece, origin, link.target, phase)


def _feeds(schedule: Schedule, slack: float) -> dict[int, list[Part]]:
    """What each send out of a switch passes on or adds up."""
    sends, demand = schedule.sends, schedule.demand
    way_in = (np.count_nonzero(demand.parts, axis=1) > 0)[sends.block]
    way_in &= sends.phase == 0
    single = np.count_nonzero(demand.wanted, axis=1) <= 1
    feeds, _ = through_switches(schedule, ~way_in, slack, single)
    return feeds | into_sums(schedule, way_in, slack)[0]


def _fed(
    parts: list[Part], carried: dict[int, list[tuple[int, int, float]]], piece: float
) -> list[tuple[int, int, float]]:
    """The pieces in the given bytes of sends."""
    return [
        item
        for part in parts
        for item in carried[part.send][
            round(part.begin / piece) : round(part.stop / piece)
        ]
    ]


class _Program:
    """Thread blocks of all GPUs, grown transfer by transfer in order of their ends."""

    def __init__(self, schedule: Schedule, pieces: int) -> None:
        self.demand = schedule.demand
        self.gpus: list[int] = schedule.topology.gpus.tolist()
        self.rank = {gpu: rank for rank, gpu in enumerate(self.gpus)}
        self.name, self.pieces = schedule.topology.name, pieces
        self.layout = Layout(schedule.demand, self.gpus, pieces)
        self.blocks: dict[int, dict[tuple[str, int], _Block]] = {
            g: {} for g in self.gpus
        }
        self.written: dict[tuple[int, int, int], tuple[_Block, int]] = {}
        self.scratch: dict[int, dict[tuple[int, int], int]] = {g: {} for g in self.gpus}
        for gpu in self.gpus:
            for source, target in self.layout.kept(self.rank[gpu]):
                copy = _Step("cpy", _Place("i", source), _Place("o", target))
                self._append(gpu, "copy", -1, copy)

    def add(self, transfer: _Transfer) -> None:
        """A send step at the source and a receiving step at the target."""
        key = transfer.block, transfer.piece
        there = self._place(transfer.target, *key)
        written = self.written.get((transfer.source, *key))
        if written is None:
            here = _Place("i", self.layout.input(*key))
        else:
            here = self._place(transfer.source, *key)
        step = _Step("s", here, there, written)
        self._append(transfer.source, "send", self.rank[transfer.target], step)
        arrival = transfer.target, *key
        kind, before = "r", None
        if transfer.phase == 0 and self.demand.parts[transfer.block].any():
            if (
                arrival not in self.written
                and self.demand.parts[transfer.block, transfer.target]
            ):
                own = _Place("i", self.layout.input(*key))
                copy = _Step("cpy", own, there)
                self.written[arrival] = self._append(transfer.target, "copy", -1, copy)
            before = self.written.get(arrival)
            kind = "r" if before is None else "rrc"
        step = _Step(kind, there if kind == "rrc" else here, there, before)
        recv = self._append(transfer.target, "recv", self.rank[transfer.source], step)
        self.written[arrival] = recv

    def _place(self, gpu: int, block: int, piece: int) -> _Place:
        """Where a GPU keeps a piece that comes to it."""
        if self.demand.wanted[block, gpu]:
            return _Place("o", self.layout.output(block, piece))
        scratch = self.scratch[gpu]
        return _Place("s", scratch.setdefault((block, piece), len(scratch)))

    def _append(self, gpu: int, way: str, peer: int, step: _Step) -> tuple[_Block, int]:
        block = self.blocks[gpu].get((way, peer))
        if block is None:
            send, recv = (peer if way == w else -1 for w in ("send", "recv"))
            block = self.blocks[gpu][way, peer] = _Block(send, recv)
        if step.waits is not None and step.waits[0] is block:
            step.waits = None
        if step.waits is not None:
            step.waits[0].steps[step.waits[1]].awaited = True
        block.steps.append(step)
        return block, len(block.steps) - 1

    def xml(self) -> str:
        """The whole file."""
        size_in, size_out = self.layout.size_in, self.layout.size_out
        algo = ElementTree.Element(
            "algo",
            name=f"{self.name}-{self.demand.collective}",
            proto="Simple",
            nchannels="1",
            nchunksperloop=str(max(size_in, size_out)),
            ngpus=str(len(self.gpus)),
            coll=NAMES[self.demand.collective],
            inplace="0",
            outofplace="1",
            root=str(self.layout.root),
            minBytes="0",
            maxBytes="0",
        )
        for gpu in self.gpus:
            node = ElementTree.SubElement(
                algo,
                "gpu",
                id=str(self.rank[gpu]),
                i_chunks=str(size_in),
                o_chunks=str(size_out),
                s_chunks=str(len(self.scratch[gpu])),
            )
            numbers = {id(b): n for n, b in enumerate(self.blocks[gpu].values())}
            for number, block in enumerate(self.blocks[gpu].values()):
                _write_block(node, number, block, numbers)
        ElementTree.indent(algo)
        return ElementTree.tostring(algo, encoding="unicode") + "\n"


def _write_block(
    node: ElementTree.Element, number: int, block: _Block, numbers: dict[int, int]
) -> None:
    tb = ElementTree.SubElement(
        node, "tb", id=str(number), send=str(block.send), recv=str(block.recv), chan="0"
    )
    for n, step in enumerate(block.steps):
        depends = ("-1", "-1")
        if step.waits is not None:
            depends = (str(numbers[id(step.waits[0])]), str(step.waits[1]))
        ElementTree.SubElement(
            tb,
            "step",
            s=str(n),
            type=step.kind,
            srcbuf=step.source.buffer,
            srcoff=str(step.source.offset),
            dstbuf=step.target.buffer,
            dstoff=str(step.target.offset),
            cnt="1",
            depid=depends[0],
            deps=depends[1],
            hasdep=str(int(step.awaited)),
        )


class Layout:
    """Where the pieces of blocks stand in the input and output buffers of the GPUs."""

    def __init__(self, demand: Demand, gpus: list[int], pieces: int) -> None:
        self.demand, self.pieces = demand, pieces
        rank = {gpu: n for n, gpu in enumerate(gpus)}
        self.root = rank[int(demand.source[0])]
        owner = [rank[int(s)] for s in demand.source]
        taker = owner
        if demand.collective == "all_to_all":
            taker = [rank[int(np.flatnonzero(w)[0])] for w in demand.wanted]
        place, count = _places(owner, taker)
        ranks = len(gpus)
        if demand.collective in ("broadcast", "reduce"):
            self._in = self._out = place
            total_in = total_out = count
        elif demand.collective == "all_gather":
            self._in = place
            self._out = [o * count + p for o, p in zip(owner, place, strict=True)]
            total_in, total_out = count, ranks * count
        elif demand.collective == "all_to_all":
            self._in = [t * count + p for t, p in zip(taker, place, strict=True)]
            self._out = [o * count + p for o, p in zip(owner, place, strict=True)]
            total_in = total_out = ranks * count
        else:
            self._in = [o * count + p for o, p in zip(owner, place, strict=True)]
            self._out = place if demand.collective == "reduce_scatter" else self._in
            total_in = ranks * count
            total_out = count if demand.collective == "reduce_scatter" else total_in
        self.count = count
        self.size_in, self.size_out = total_in * pieces, total_out * pieces

    def input(self, block: int, piece: int) -> int:
        """Chunk of the input buffer of a GPU that begins with the block."""
        return self._in[block] * self.pieces + piece

    def output(self, block: int, piece: int) -> int:
        """Chunk of the output buffer of a GPU that wants the block."""
        return self._out[block] * self.pieces + piece

    def kept(self, rank: int) -> list[tuple[int, int]]:
        """Chunks of a GPU's input that are part of its output as they are: from, to."""
        count = self.count * self.pieces
        if self.demand.collective == "all_gather":
            return [(p, rank * count + p) for p in range(count)]
        if self.demand.collective == "all_to_all":
            return [(rank * count + p, rank * count + p) for p in range(count)]
        if self.demand.collective == "broadcast" and rank == self.root:
            return [(p, p) for p in range(count)]
        return []


def _places(owner: list[int], taker: list[int]) -> tuple[list[int], int]:
    """Number of each block among those with its ends, and how many those are."""
    seen: dict[tuple[int, int], int] = {}
    place: list[int] = []
    for ends in zip(owner, taker, strict=True):
        place.append(seen.get(ends, 0))
        seen[ends] = place[-1] + 1
    if len(set(seen.values())) > 1:
        raise ValueError(
            "GPUs have different numbers of chunks; MSCCL needs the same for all."
        )
    return place, max(seen.values())
