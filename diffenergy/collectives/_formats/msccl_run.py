"""An MSCCL program played on a machine: who moves what when."""

import dataclasses
import heapq
import itertools
from collections import deque
from typing import Final

import numpy as np

from .._demand.demand import REDUCING
from .._machine.routes import Clock, routes
from .._machine.topology import Topology
from .._verify.violation import Violation
from .msccl_program import Block, Place, Program, Step, Value

_Event = tuple[str, int, int, int]
"""A step of a block (GPU, block, 0) or a chunk on a connection (from, to, channel)."""
_RECEIVES: Final = ("r", "rcs", "rrc", "rrs", "rrcs")
_SENDS: Final = ("s", "rcs", "rrs", "rrcs")
_ADDS: Final = ("rrc", "rrs", "rrcs")


@dataclasses.dataclass(frozen=True)
class Moved:
    """A chunk over one link; times in s."""

    value: Value
    link: int
    start: float
    end: float


class Run:
    """Buffers, FIFOs and clocks; `play` runs all blocks to their ends.

    A send takes all links of its way at the pace of the slowest; local steps take no
    time. FIFOs are as long as they must be.
    """

    def __init__(self, program: Program, topology: Topology, chunk: float) -> None:
        self.program, self.topology, self.chunk = program, topology, chunk
        self.moved: list[Moved] = []
        self.summed: dict[int, int] = {}
        self._buffers = self._filled()
        self._free = [0.0] * len(topology.links)
        self._ways = _ways(topology)
        self._fifo: dict[tuple[int, int, int], deque[tuple[float, list[Value]]]] = {}
        self._blocks = {(b.gpu, b.number): b for b in program.blocks}
        self._done: dict[tuple[int, int], list[float]] = {k: [] for k in self._blocks}
        self._clock = dict.fromkeys(self._blocks, 0.0)
        self._check_ends()

    def _filled(self) -> list[dict[Place, Value]]:
        """Buffers at the start: inputs alone."""
        program = self.program
        buffers: list[dict[Place, Value]] = [{} for _ in range(program.ranks)]
        chunks = itertools.product(range(program.ranks), range(program.inputs))
        for gpu, chunk in chunks:
            if program.collective == "broadcast" and gpu != program.root:
                continue
            rank = -1 if program.collective in REDUCING else gpu
            buffers[gpu][self._at(gpu, ("i", chunk))] = (rank, chunk), 1 << gpu
        return buffers

    def _at(self, gpu: int, place: Place) -> Place:
        """The place, with in-place buffers as one."""
        buffer, offset = place
        if not self.program.in_place or buffer == "s":
            return place
        if self.program.collective == "all_gather":
            return ("o", gpu * self.program.inputs + offset) if buffer == "i" else place
        if self.program.collective == "reduce_scatter":
            first = gpu * self.program.outputs
            return ("i", first + offset) if buffer == "o" else place
        return "i", offset

    def output(self, gpu: int, offset: int) -> Value | None:
        """What stands in an output buffer now."""
        return self._buffers[gpu].get(self._at(gpu, ("o", offset)))

    def _check_ends(self) -> None:
        """One block only at each end of a connection; steps wait for what there is."""
        seen: set[tuple[str, int, int, int]] = set()
        for block in self.program.blocks:
            for way, peer in (("send", block.send), ("recv", block.recv)):
                if peer < 0:
                    continue
                end = way, block.gpu, peer, block.channel
                if end in seen or peer >= self.program.ranks or peer == block.gpu:
                    raise Violation(
                        f"thread block {block.number} of GPU {block.gpu} has {way} "
                        f"{peer} on channel {block.channel}, which is taken or no peer."
                    )
                seen.add(end)
            for step in block.steps:
                self._check_step(block, step)

    def _check_step(self, block: Block, step: Step) -> None:
        where = f"a step {step.kind!r} of thread block {block.number}, GPU {block.gpu},"
        mute = step.kind in _SENDS and block.send < 0
        if mute or (step.kind in _RECEIVES and block.recv < 0):
            raise Violation(f"{where} has no peer.")
        if step.waits is not None:
            other = self._blocks.get((block.gpu, step.waits[0]))
            if other is None or not 0 <= step.waits[1] < len(other.steps):
                raise Violation(f"{where} waits for a step that does not exist.")

    def play(self) -> None:
        """Runs steps in order of the times at which they can start."""
        queue = [(0.0, key) for key in self._blocks if self._blocks[key].steps]
        heapq.heapify(queue)
        stuck: dict[_Event, list[tuple[int, int]]] = {}
        while queue:
            time, key = heapq.heappop(queue)
            ready = self._ready(key)
            if isinstance(ready, tuple):
                stuck.setdefault(ready, []).append(key)
                continue
            if ready > time:
                heapq.heappush(queue, (ready, key))
                continue
            self._run(key, ready)
            block = self._blocks[key]
            events = [("step", *key, 0)]
            events.append(("chunk", block.gpu, block.send, block.channel))
            for other in [o for event in events for o in stuck.pop(event, [])]:
                heapq.heappush(queue, (ready, other))
            if len(self._done[key]) < len(block.steps):
                heapq.heappush(queue, (self._clock[key], key))
        if stuck:
            gpu, number = min(key for keys in stuck.values() for key in keys)
            raise Violation(
                f"step {len(self._done[gpu, number])} of thread block {number} on GPU "
                f"{gpu} never runs: the program stops in a circle of waiting."
            )

    def _ready(self, key: tuple[int, int]) -> float | _Event:
        """When the next step of a block can run, or what it has yet to wait for."""
        block = self._blocks[key]
        step = block.steps[len(self._done[key])]
        ready = self._clock[key]
        if step.waits is not None:
            other, number = (block.gpu, step.waits[0]), step.waits[1]
            if len(self._done[other]) <= number:
                return "step", *other, 0
            ready = max(ready, self._done[other][number])
        if step.kind in _RECEIVES:
            line = block.recv, block.gpu, block.channel
            if not self._fifo.get(line):
                return "chunk", *line
            ready = max(ready, self._fifo[line][0][0])
        if step.kind in _SENDS:
            lag = 0.0
            for link in self._way(block.gpu, block.send):
                ready = max(ready, self._free[link] - lag)
                lag += self.topology.links[link].latency
        return ready

    def _run(self, key: tuple[int, int], now: float) -> None:
        block = self._blocks[key]
        step = block.steps[len(self._done[key])]
        values: list[Value] = []
        if step.kind in _RECEIVES:
            line = self._fifo[block.recv, block.gpu, block.channel]
            values = line.popleft()[1]
            if len(values) != step.count:
                raise Violation(
                    f"{self._told(block)} takes {step.count} chunks where "
                    f"{len(values)} were sent."
                )
        if step.kind in _ADDS or step.kind == "re":
            more = self._read(block, step.source, step.count)
            values = values or self._read(block, step.target, step.count)
            values = [self._sum(block, a, b) for a, b in zip(values, more, strict=True)]
        elif step.kind in ("s", "cpy"):
            values = self._read(block, step.source, step.count)
        if step.kind not in ("s", "rrs", "nop"):
            self._write(block, step.target, values)
        if step.kind in _SENDS:
            now = self._send(block, values, now)
        self._clock[key] = now
        self._done[key].append(now)

    def _told(self, block: Block) -> str:
        number = len(self._done[block.gpu, block.number])
        return f"step {number} of thread block {block.number} on GPU {block.gpu}"

    def _read(self, block: Block, place: Place, count: int) -> list[Value]:
        found: list[Value] = []
        for n in range(count):
            at = self._at(block.gpu, (place[0], place[1] + n))
            if at not in self._buffers[block.gpu]:
                raise Violation(
                    f"{self._told(block)} reads chunk {at[1]} of buffer {at[0]}, where "
                    "nothing is yet."
                )
            found.append(self._buffers[block.gpu][at])
        return found

    def _write(self, block: Block, place: Place, values: list[Value]) -> None:
        full = (1 << self.program.ranks) - 1
        for n, value in enumerate(values):
            at = self._at(block.gpu, (place[0], place[1] + n))
            self._buffers[block.gpu][at] = value
            if value[0][0] < 0 and value[1] == full:
                self.summed.setdefault(value[0][1], block.gpu)

    def _sum(self, block: Block, a: Value, b: Value) -> Value:
        if a[0] != b[0] or a[0][0] >= 0:
            raise Violation(f"{self._told(block)} adds up chunks that do not belong.")
        if a[1] & b[1]:
            twice = (a[1] & b[1]).bit_length() - 1
            raise Violation(
                f"{self._told(block)} adds the summand of GPU {twice} a second time."
            )
        return a[0], a[1] | b[1]

    def _send(self, block: Block, values: list[Value], now: float) -> float:
        """Puts chunks on their way; when the last has left."""
        way = self._way(block.gpu, block.send)
        rate = min(self.topology.links[link].rate for link in way)
        span = self.chunk / rate
        for n, value in enumerate(values):
            start = now + n * span
            for link in way:
                end = start + span + self.topology.links[link].latency
                self.moved.append(Moved(value, link, start, end))
                self._free[link] = start + span
                start = end - span
        gone = now + len(values) * span
        there = gone + sum(self.topology.links[link].latency for link in way)
        line = self._fifo.setdefault((block.gpu, block.send, block.channel), deque())
        line.append((there, values))
        return gone

    def _way(self, gpu: int, peer: int) -> list[int]:
        """Links to a peer."""
        begin, end = (int(self.topology.gpus[rank]) for rank in (gpu, peer))
        if (begin, end) not in self._ways:
            names = [self.topology.names[node] for node in (begin, end)]
            raise Violation(
                f"{names[0]} sends to {names[1]}, but no link or switch of "
                f"{self.topology.name} joins them."
            )
        return self._ways[begin, end]


def _ways(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """Links from GPU to GPU: the direct one, else through switches with the least
    latency."""
    latency, none = topology.latencies, np.zeros(len(topology.links))
    found = routes(topology, Clock(none, none.astype(int), latency, latency, none))
    order = np.lexsort((*found.links.T[::-1], found.arrive, ~found.direct))[::-1]
    ends = zip(found.source[order].tolist(), found.target[order].tolist(), strict=True)
    ways = [[n for n in row if n >= 0] for row in found.links[order].tolist()]
    return dict(zip(ends, ways, strict=True))
