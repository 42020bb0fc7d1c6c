"""MSCCL XML of a schedule: programs of thread blocks, one for each GPU and peer."""

import dataclasses
import itertools
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Int

from ._demand import REDUCING, Collective, Demand
from ._dependencies import stated, switched
from ._schedule import Schedule
from ._verify import verify

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
_SHARE: Final = 1e-4
"""Parts of a block are read as multiples of a piece to this share of it."""


_Place = tuple[str, int]
"""Buffer (i, o or s) and chunk in it."""
_Key = tuple[int, int]
"""GPU (-1 for sums) and chunk in its input buffer: which piece of which block."""


@dataclasses.dataclass(frozen=True)
class _Step:
    """A step on one chunk: its buffers, and the (thread block, step) of its GPU that it
    waits for."""

    kind: str
    source: _Place
    target: _Place
    waits: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class _Block:
    """A thread block with its peers (-1: none)."""

    number: int
    send: int
    recv: int
    steps: list[_Step]


@dataclasses.dataclass(frozen=True)
class _Program:
    """What is computed on how many GPUs, and the buffer sizes in chunks."""

    collective: Collective
    ranks: int
    inputs: int
    outputs: int
    root: int


class _Transfer(NamedTuple):
    """A piece of a block from GPU to GPU (nodes), whatever switches it passes."""

    end: float
    start: float
    block: int
    piece: int
    source: int
    target: int
    phase: int


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
    if demand.collective in ("broadcast", "reduce") and np.ptp(demand.source):
        raise ValueError(
            "`root` is not one GPU for all blocks; MSCCL has one for a "
            f"{demand.collective}, so export the JSON of sends."
        )
    writer = _Writer(schedule, pieces)
    for transfer in sorted(_transfers(schedule, pieces)):
        writer.add(transfer)
    return writer.xml(f"{schedule.topology.name}-{demand.collective}")


def _whole_machine(demand: Demand) -> bool:
    """Whether all GPUs that take part run one collective."""
    takers = np.logical_or(demand.wanted, demand.parts)
    takers[np.arange(len(takers)), demand.source] = True
    part = np.any(takers, axis=0)
    if demand.collective == "all_to_all":
        pairs = np.zeros((len(part), len(part)), bool)
        np.logical_or.at(pairs, demand.source, takers)
        takers = pairs[part]
    return bool((takers == part).all())


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
    feeds = switched(schedule, stated(schedule)).feeds
    share = sends.bytes / demand.size[sends.block]
    carried: dict[int, list[tuple[int, int, float]]] = {}
    stock: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for send in np.lexsort((sends.end, sends.start)).tolist():
        block, link = int(sends.block[send]), topology.links[sends.link[send]]
        start, end = float(sends.start[send]), float(sends.end[send])
        count = round(float(share[send]) * pieces)
        if not topology.stores[link.source]:
            mine, size = [], float(demand.size[block]) / pieces
            for part in feeds[send]:
                first, last = round(part.begin / size), round(part.stop / size)
                mine += carried[part.send][first:last]
        elif count == pieces:
            mine = [(piece, link.source, start) for piece in range(pieces)]
        else:
            whole = [(0.0, piece) for piece in range(pieces)]
            at_home = demand.source[block] == link.source
            left = stock.setdefault((block, link.source), whole if at_home else [])
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


class _Writer:
    """Thread blocks of all GPUs, grown transfer by transfer in order of their ends."""

    def __init__(self, schedule: Schedule, pieces: int) -> None:
        demand, gpus = schedule.demand, schedule.topology.gpus
        self.rank = {gpu: rank for rank, gpu in enumerate(gpus.tolist())}
        self.wanted, self.parts = demand.wanted[:, gpus], demand.parts[:, gpus]
        kind, ranks = demand.collective, len(gpus)
        owner = np.array([self.rank[n] for n in demand.source.tolist()])
        taker = self.wanted.argmax(axis=1) if kind == "all_to_all" else owner
        place, count = _places(owner * ranks + taker)
        spread = kind in ("all_to_all", "reduce_scatter", "all_reduce")
        self.inputs = (place + count * taker if spread else place) * pieces
        one, whole = count * pieces, ranks * count * pieces
        outputs = one if kind in ("broadcast", "reduce", "reduce_scatter") else whole
        sizes, root = (whole if spread else one, outputs), int(owner[0])
        self.program = _Program(kind, ranks, *sizes, root)
        self.giver = np.full_like(owner, root) if kind == "broadcast" else owner
        if kind in REDUCING:
            self.giver = np.full_like(owner, -1)
        self.blocks: list[dict[tuple[str, int], _Block]] = [{} for _ in gpus]
        self.written: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.scratch: list[dict[_Key, int]] = [{} for _ in gpus]
        self.outputs: dict[_Key, int] = {}
        for (gpu, offset), key in _goals(self.program).items():
            self.outputs[key] = offset
            if key[0] == gpu:
                self._append(gpu, "copy", -1, "cpy", ("i", key[1]), ("o", offset))

    def add(self, transfer: _Transfer) -> None:
        """A send step at the source and a receiving step at the target."""
        block, piece, phase = transfer.block, transfer.piece, transfer.phase
        source, target = self.rank[transfer.source], self.rank[transfer.target]
        key = int(self.giver[block]), int(self.inputs[block]) + piece
        input_place = "i", key[1]
        written = self.written.get((source, *key))
        here = input_place if written is None else self._place(source, block, key)
        there = self._place(target, block, key)
        self._append(source, "send", target, "s", here, there, written)
        kind, before = "r", None
        if phase == 0 and self.parts[block].any():
            if (target, *key) not in self.written and self.parts[block, target]:
                copied = self._append(target, "copy", -1, "cpy", input_place, there)
                self.written[target, *key] = copied
            before = self.written.get((target, *key))
            kind = "r" if before is None else "rrc"
        here = there if kind == "rrc" else here
        received = self._append(target, "recv", source, kind, here, there, before)
        self.written[target, *key] = received

    def _place(self, gpu: int, block: int, key: _Key) -> _Place:
        """Where a GPU keeps a piece that comes to it."""
        if self.wanted[block, gpu]:
            return "o", self.outputs[key]
        scratch = self.scratch[gpu]
        return "s", scratch.setdefault(key, len(scratch))

    def _append(
        self,
        gpu: int,
        way: str,
        peer: int,
        kind: str,
        source: _Place,
        target: _Place,
        waits: tuple[int, int] | None = None,
    ) -> tuple[int, int]:
        """Adds a step to the thread block for a peer; numbers of block and step."""
        blocks = self.blocks[gpu]
        if (way, peer) not in blocks:
            send, recv = (peer if way == end else -1 for end in ("send", "recv"))
            blocks[way, peer] = _Block(len(blocks), send, recv, [])
        block = blocks[way, peer]
        if waits is not None and waits[0] == block.number:
            waits = None
        block.steps.append(_Step(kind, source, target, waits))
        return block.number, len(block.steps) - 1

    def xml(self, name: str) -> str:
        """Text of the file; steps that others wait for are marked."""
        program = self.program
        header = _texts(
            name=name,
            proto="Simple",
            nchannels=1,
            nchunksperloop=max(program.inputs, program.outputs),
            ngpus=program.ranks,
            coll=NAMES[program.collective],
            inplace=0,
            outofplace=1,
            root=program.root,
            minBytes=0,
            maxBytes=0,
        )
        algo = ElementTree.Element("algo", header)
        for gpu, blocks in enumerate(self.blocks):
            chunks = {"i": program.inputs, "o": program.outputs}
            chunks["s"] = len(self.scratch[gpu])
            sizes = {f"{buffer}_chunks": count for buffer, count in chunks.items()}
            node = ElementTree.SubElement(algo, "gpu", _texts(id=gpu, **sizes))
            steps = [step for block in blocks.values() for step in block.steps]
            awaited = {step.waits for step in steps}
            for block in blocks.values():
                _write_block(node, block, awaited)
        ElementTree.indent(algo)
        return ElementTree.tostring(algo, encoding="unicode") + "\n"


def _places(ends: Int[np.ndarray, " block"]) -> tuple[Int[np.ndarray, " block"], int]:
    """Place of each block among those with the same ends, and their number."""
    counts = np.unique(ends, return_counts=True)[1]
    if np.any(counts != counts[0]):
        raise ValueError(
            "GPUs have different numbers of chunks; MSCCL needs the same for all."
        )
    place = np.empty_like(ends)
    place[np.argsort(ends, kind="stable")] = np.arange(len(ends)) % counts[0]
    return place, int(counts[0])


def _goals(program: _Program) -> dict[tuple[int, int], _Key]:
    """Input chunk that each (GPU, output chunk) holds at the end."""
    ranks, inputs, outputs = range(program.ranks), program.inputs, program.outputs
    kind, root = program.collective, program.root
    if kind == "all_gather":
        grid = itertools.product(ranks, ranks, range(inputs))
        return {(g, r * inputs + c): (r, c) for g, r, c in grid}
    if kind == "all_to_all":
        part = inputs // program.ranks
        grid = itertools.product(ranks, ranks, range(part))
        return {(d, s * part + p): (s, d * part + p) for s, d, p in grid}
    if kind == "broadcast":
        grid = itertools.product(ranks, range(outputs))
        return {(g, c): (root, c) for g, c in grid}
    if kind == "reduce":
        return {(root, c): (-1, c) for c in range(inputs)}
    share = outputs if kind == "reduce_scatter" else 0
    grid = itertools.product(ranks, range(outputs))
    return {(g, c): (-1, g * share + c) for g, c in grid}


def _write_block(
    node: ElementTree.Element, block: _Block, awaited: set[tuple[int, int] | None]
) -> None:
    ends = _texts(id=block.number, send=block.send, recv=block.recv, chan=0)
    tb = ElementTree.SubElement(node, "tb", ends)
    for n, step in enumerate(block.steps):
        depid, deps = step.waits or (-1, -1)
        row = _texts(
            s=n,
            type=step.kind,
            srcbuf=step.source[0],
            srcoff=step.source[1],
            dstbuf=step.target[0],
            dstoff=step.target[1],
            cnt=1,
            depid=depid,
            deps=deps,
            hasdep=int((block.number, n) in awaited),
        )
        ElementTree.SubElement(tb, "step", row)


def _texts(**values: object) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}
