"""`Cuts`: sets of nodes, the links into them, and what has to pass these links.

A cut bounds the finish: its blocks pass its links one after the other, none sooner
than it can be there, and then have to get to the taker. Cuts with equally many links
are worked out together.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ._demand import Demand
from ._routes import Clock, islands
from ._topology import Topology

_MOST_CELLS: Final = 2e7
"""(cut, link, block) triples that are worked out at once."""
_MOST_SETS: Final = 4
"""Different wishes within a group up to which each has a cut of its own."""


@dataclasses.dataclass(frozen=True)
class Pipes:
    """Links for data that may be cut up, in s and B or in epochs and chunks of `unit`
    B: `hop` from when a sender has a first part to when the receiver has it, of which
    `wait` does not fill the link; `rate` of what flows."""

    hop: Float[np.ndarray, " link"]
    wait: Float[np.ndarray, " link"]
    rate: Float[np.ndarray, " link"]
    unit: float = 1.0


@dataclasses.dataclass(frozen=True)
class Cuts:
    """Cuts with equally many links. A block begins at its source; sums, if `merged`,
    pass in pieces of which the first can begin at any of the nodes counted."""

    into: Int[np.ndarray, "cut link"]
    count: Int[np.ndarray, "cut node"]
    """Blocks by the node at which they begin; `merged`: all blocks at each."""
    volume: Float[np.ndarray, " cut"]  # B
    takers: Bool[np.ndarray, "cut node"]
    """What passes has to get to the nearest of these."""
    merged: bool = False

    @property
    def blocks(self) -> Int[np.ndarray, " cut"]:
        """Number of blocks that pass each cut."""
        return self.count.max(1) if self.merged else self.count.sum(1)


@functools.lru_cache(maxsize=16)
def labels(topology: Topology) -> Int[np.ndarray, "label node"]:
    """Groupings of the GPUs: each by itself, by chassis, by islands that links of at
    least each rate join; the number of each node's group, -1 for none."""
    alone = np.full(len(topology.nodes), -1)
    alone[topology.gpus] = topology.gpus
    groupings = [alone, np.array([node.chassis for node in topology.nodes])]
    groupings += [islands(topology, rate) for rate in np.unique(topology.rates)[1:]]
    return np.stack(groupings)


@functools.lru_cache(maxsize=16)
def _entrances(
    topology: Topology,
) -> tuple[tuple[Int[np.ndarray, " node"], Int[np.ndarray, " link"]], ...]:
    """Members of each group of `labels` and the links into it, for groups with some,
    not all, of the GPUs that have such links."""
    every = [row == np.unique(row[row >= 0])[:, None] for row in labels(topology)]
    groups = np.unique(np.concatenate(every), axis=0)
    entrances = []
    for group in groups[groups[:, topology.gpus].any(1)]:
        into = np.flatnonzero(~group[topology.sources] & group[topology.targets])
        if len(into) and not group[topology.gpus].all():
            entrances.append((np.flatnonzero(group), into))
    return tuple(entrances)


_Row = tuple[np.ndarray, np.ndarray, float, np.ndarray]
"""Links in, blocks by node, B, takers of one cut."""


def cuts(topology: Topology, spread: Demand) -> list[Cuts]:
    """For each group: what its members want from outside together, and, where few
    wishes differ, what each of them wants."""
    wanted, source = spread.wanted, spread.source
    nodes = len(topology.nodes)
    rows: list[_Row] = []
    # Blocks, bytes, and a sum of random numbers that tells wishes apart, by source.
    marks = np.random.default_rng(0).integers(1, 2**62, len(source), np.uint64)
    block, taker = np.nonzero(wanted)
    tables = []
    for weight in (np.ones(len(source), int), spread.size, marks):
        tables.append(np.zeros((nodes, nodes), weight.dtype))
        np.add.at(tables[-1], (source[block], taker), weight[block])
    count, volume, mark = tables
    for members, into in _entrances(topology):
        outside = np.ones(nodes, bool)
        outside[members] = False
        wish = np.where(outside[:, None], mark[:, members], 0).sum(0, dtype=np.uint64)
        kinds = np.unique(wish[wish > 0])
        if not len(kinds):
            continue
        if len(kinds) <= _MOST_SETS:
            for taker in members[wish > 0].tolist():
                amount = float(volume[outside, taker].sum())
                near = np.arange(nodes) == taker
                rows.append((into, count[:, taker] * outside, amount, near))
        if len(kinds) > 1:
            some = wanted[:, members].any(1) & outside[source]
            near = np.isin(np.arange(nodes), members[wish > 0])
            number = np.bincount(source[some], minlength=nodes)
            rows.append((into, number, float(spread.size[some].sum()), near))
    return _stacked(rows, merged=False)


def sum_cuts(topology: Topology, demand: Demand) -> list[Cuts]:
    """For each group: sums that some of it want and that have summands outside."""
    parts, wanted = demand.parts, demand.wanted
    rows: list[_Row] = []
    for members, into in _entrances(topology):
        outside = np.ones(len(topology.nodes), bool)
        outside[members] = False
        some = wanted[:, members].any(1) & parts[:, outside].any(1)
        if not some.any():
            continue
        near = wanted[some].any(0) & ~outside
        begin = parts[some].any(0) & outside
        number = begin.astype(int) * int(some.sum())
        rows.append((into, number, float(demand.size[some].sum()), near))
    return _stacked(rows, merged=True)


def _stacked(rows: list[_Row], merged: bool) -> list[Cuts]:
    widths: dict[tuple[int, int], list[_Row]] = {}
    for row in rows:
        blocks = int(row[1].max() if merged else row[1].sum())
        widths.setdefault((len(row[0]), blocks), []).append(row)
    stacks: list[Cuts] = []
    for (links, blocks), alike in widths.items():
        most = max(1, int(_MOST_CELLS / (links * max(blocks, len(alike[0][1])))))
        for first in range(0, len(alike), most):
            columns = zip(*alike[first : first + most], strict=True)
            into, count, volume, takers = map(np.array, columns)
            stacks.append(Cuts(into, count, volume, takers, merged))
    return stacks


def fluid(
    cut: Cuts,
    topology: Topology,
    way: Float[np.ndarray, "node node"],
    pipes: Pipes,
) -> float:
    """Least time in which the volumes flow through the links at their rates, each open
    from when a first part can be there until a last one must leave."""
    start = way[:, topology.sources[cut.into]].transpose(1, 2, 0)
    first = np.where((cut.count > 0)[:, None, :], start, np.inf).min(2)
    closed = first + pipes.wait[cut.into] + _tail(cut, topology, way)
    order = np.argsort(closed, axis=1)
    closed = np.take_along_axis(closed, order, 1)
    rates = np.take_along_axis(pipes.rate[cut.into], order, 1)
    live = np.isfinite(closed)
    moved = np.cumsum(rates * np.where(live, closed, 0.0), axis=1)
    total = (cut.volume / pipes.unit)[:, None]
    time = np.where(live, (total + moved) / np.cumsum(rates, axis=1), np.inf)
    return float(time.min(1).max(initial=0.0))


def whole_blocks(
    cut: Cuts,
    topology: Topology,
    clock: Clock,
    way: Float[np.ndarray, "node node"],
    hop: Float[np.ndarray, " link"],
    least: float = 0.0,
) -> float:
    """Least time for whole blocks of one size: of links that pass their blocks as early
    as they can, the n fastest deliveries. Cuts that cannot be above `least` are left
    out."""
    into, count = cut.into, cut.blocks
    start = way[:, topology.sources[into]].transpose(1, 2, 0)  # (cut, link, node)
    start = start + hop[into][:, :, None]
    tail = _tail(cut, topology, way)
    begins = np.broadcast_to((cut.count > 0)[:, None, :], start.shape)
    latest = np.where(begins, start, -np.inf).max(2) + tail
    worst = latest.max(1) + count / (clock.lanes[into] / clock.busy[into]).sum(1)
    keep = np.flatnonzero(worst > least)
    if not len(keep):
        return least
    if cut.merged:
        soonest = np.where(begins, start, np.inf).min(2)[keep]
        ready = np.repeat(soonest[:, :, None], int(count[0]), axis=2)
    else:
        many = np.broadcast_to(cut.count[keep][:, None, :], start[keep].shape)
        ready = np.repeat(start[keep].ravel(), many.ravel())
        ready = np.sort(ready.reshape(len(keep), into.shape[1], -1), axis=2)
    there = _spaced(ready, clock, into[keep]) + tail[keep][:, :, None]
    there = there.reshape(len(keep), -1)
    last = int(count[0]) - 1
    return max(least, float(np.partition(there, last, axis=1)[:, last].max()))


def _tail(
    cut: Cuts, topology: Topology, way: Float[np.ndarray, "node node"]
) -> Float[np.ndarray, "cut link"]:
    """Time from each link's end to the nearest taker."""
    rows, nodes = np.nonzero(cut.takers)
    if len(rows) == len(cut.into):  # one taker each
        return way[topology.targets[cut.into], nodes[:, None]]
    near = np.where(cut.takers[:, None, :], way[None], np.inf).min(2)
    return np.take_along_axis(near, topology.targets[cut.into], 1)


def _spaced(
    ready: Float[np.ndarray, "cut link block"],
    clock: Clock,
    links: Int[np.ndarray, "cut link"],
) -> Float[np.ndarray, "cut link block"]:
    """When the n-th block can have passed: no sooner than the n-th is ready and `busy`
    after the one `lanes` before it: c_n = max(ready_n, c_{n - lanes} + busy)."""
    passed = np.empty_like(ready)
    busy = clock.busy[links][:, :, None]
    for lanes in np.unique(clock.lanes[links]).tolist():
        wait = (np.arange(ready.shape[2]) // lanes) * busy
        ahead = ready - wait
        for lane in range(min(lanes, ready.shape[2])):
            mine = slice(lane, None, lanes)
            ahead[:, :, mine] = np.maximum.accumulate(ahead[:, :, mine], axis=2)
        here = clock.lanes[links] == lanes
        passed[here] = (ahead + wait)[here]
    return passed


def receptions(
    topology: Topology, demand: Demand
) -> Iterator[tuple[Int[np.ndarray, " link"], Int[np.ndarray, " block"]]]:
    """For each way to part the GPUs: the links into its groups, and how often these
    receive each block of an all-reduce at least.

    To bring the summands of k groups together takes k - 1 receptions where nothing
    outside the groups adds up (each joins two sets of summands), one where something
    does; to bring the sum to m groups takes m - 1 more.
    """
    for row in labels(topology):
        group = row.copy()
        loose = topology.gpus[group[topology.gpus] < 0]
        group[loose] = group.max(initial=0) + 1 + np.arange(len(loose))
        _, number = np.unique(group[group >= 0], return_inverse=True)
        group[group >= 0] = number
        count = int(number.max()) + 1
        if count < 2:
            continue
        begin, end = (
            _touched(rows, group, count) for rows in (demand.parts, demand.wanted)
        )
        adding = [node.reduces for node in topology.nodes]
        joined = begin.sum(1) - 1
        if (np.array(adding) & (group < 0)).any():
            joined = np.minimum(joined, 1)
        # The sum is complete in one group; the others that want it receive it.
        many = np.maximum(joined, 0) + np.maximum(end.sum(1) - 1, 0)
        ends = group[topology.sources], group[topology.targets]
        into = np.flatnonzero((ends[0] != ends[1]) & (ends[1] >= 0))
        yield into, np.where((begin.sum(1) > 0) & (end.sum(1) > 0), many, 0)


def _touched(
    rows: Bool[np.ndarray, "block node"], group: Int[np.ndarray, " node"], count: int
) -> Bool[np.ndarray, "block group"]:
    """Which groups have a node of each row."""
    touched = np.zeros((len(rows), count), bool)
    block, node = np.nonzero(rows & (group >= 0))
    touched[block, group[node]] = True
    return touched
