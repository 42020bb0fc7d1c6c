"""Replay in continuous time: each link's order kept, every send as early as it can be.

Sends of a block that a switch or NIC ties together move as one *unit* with fixed
offsets: out of the relay a_in + max(0, b/r_in - b/r_out) after the start on the way in
(cut-through: the last byte leaves no earlier than it came). The start x of a unit is a
max-plus expression of rates r and latencies a,

    x_v = max over edges (s in u -> t in v) of  x_u + o_s + b/r_s [+ a_s] - o_t,

with o the offsets, and a_s where t forwards (or adds up) what s brings and not where t
only follows s on its link. The finish is the length of the longest path, so its
derivative is that of the sum along the path; where two paths tie it is the derivative
of one of them.
"""

import dataclasses
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from .schedule import Schedule

_SAME: Final = 1e-9
"""Times this near each other, relative to the finish, are one moment."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What a schedule fixes once its times are forgotten. Edges lie in order of the
    level of their unit; unit 0 is time zero and has send -1."""

    link: Int[np.ndarray, " send"]
    bytes: Float[np.ndarray, " send"]
    unit: Int[np.ndarray, " send"]
    ties: tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], ...]
    """(known, found, in, out): the offset of `found` follows from that of `known`."""
    before: Int[np.ndarray, " edge"]
    after: Int[np.ndarray, " edge"]
    carries: Bool[np.ndarray, " edge"]
    """Whether the edge waits for data, latency included."""
    level: Int[np.ndarray, " edge"]
    units: int


def replay(schedule: Schedule) -> Schedule:
    """The schedule with every send as early as its links' orders allow, real rates and
    latencies; epochs that it came from are kept."""
    sends, topology = schedule.sends, schedule.topology
    if not len(sends):
        return schedule
    order = order_of(schedule)
    offset, weight = _weights(np, order, topology.rates, topology.latencies)
    begin = _starts(order, weight)
    start = begin[order.unit] + offset
    took = sends.bytes / topology.rates[sends.link] + topology.latencies[sends.link]
    timed = dataclasses.replace(sends, start=start, end=start + took)
    return dataclasses.replace(schedule, sends=timed)


def finish_time(
    order: Order, rates: Float[Array, " link"], latencies: Float[Array, " link"]
) -> Float[Array, ""]:
    """Finish in s with the given rates (B/s) and latencies (s): differentiable in both,
    fit for `vmap` and `jit` (close over `order`)."""
    offset, weight = _weights(jnp, order, rates, latencies)
    last = offset + order.bytes / rates[order.link] + latencies[order.link]
    path, end = _longest(order, lax.stop_gradient(weight), lax.stop_gradient(last))
    along = jnp.where(path >= 0, weight[jnp.maximum(path, 0)], 0.0)
    return along.sum() + last[end]


def _longest(
    order: Order, weight: Float[Array, " edge"], last: Float[Array, " send"]
) -> tuple[Int[Array, " step"], Int[Array, ""]]:
    """Edges of the longest path (-1 beyond its beginning) and the send that ends it."""
    unit = jnp.asarray(np.append(order.unit, 0))  # send -1 is in unit 0
    head, tail = unit[order.before], unit[order.after]
    pieces = _pieces(order)
    padded = jnp.append(weight, -jnp.inf)

    def relax(begin: Array, rows: Array) -> tuple[Array, None]:
        edge = jnp.minimum(rows, len(head) - 1)
        reach = begin[head[edge]] + padded[rows]
        return begin.at[tail[edge]].max(reach), None

    nothing = jnp.full(order.units, -jnp.inf).at[0].set(0.0)
    begin, _ = lax.scan(relax, nothing, jnp.asarray(pieces))
    end = jnp.argmax(begin[order.unit] + last)
    slack = begin[tail] - begin[head] - weight
    # Of the edges into a unit the one with the least slack explains its start.
    least = jnp.full(order.units, jnp.inf).at[tail].min(slack)
    number = jnp.where(slack <= least[tail], jnp.arange(len(head)), -1)
    chosen = jnp.full(order.units, -1).at[tail].max(number)

    def step(node: Array, _: None) -> tuple[Array, Array]:
        edge = jnp.where(node > 0, chosen[node], -1)
        return jnp.where(edge >= 0, head[jnp.maximum(edge, 0)], 0), edge

    depth = int(order.level.max(initial=0)) + 1
    _, path = lax.scan(step, unit[end], None, length=depth)
    return path, end


def _pieces(order: Order) -> Int[np.ndarray, "level edge"]:
    """Edge numbers of each level, filled up with the number of edges."""
    count = np.bincount(order.level)
    place = np.arange(len(order.level)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((len(count), count.max()), len(order.level))
    table[order.level, place] = np.arange(len(order.level))
    return table


def _weights(xp: Any, order: Order, rates: Any, latencies: Any) -> tuple[Any, Any]:
    """Offsets of sends in their units and weights of edges, s."""
    busy = order.bytes / rates[order.link]
    latency = latencies[order.link]
    offset = xp.zeros_like(busy)
    for known, found, before, after in order.ties:
        passing = latency[before] + xp.maximum(busy[before] - busy[after], 0.0)
        value = offset[known] + xp.where(found == after, passing, -passing)
        if xp is np:
            offset[found] = value
        else:
            offset = offset.at[found].set(value)
    left = xp.where(
        order.before >= 0,
        (offset + busy)[order.before] + latency[order.before] * order.carries,
        0.0,
    )
    return offset, left - offset[order.after]


def _starts(
    order: Order, weight: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, " unit"]:
    """Starts of units, s: the longest path to each, level by level."""
    unit = np.append(order.unit, 0)
    head, tail = unit[order.before], unit[order.after]
    begin = np.full(order.units, -np.inf)
    begin[0] = 0.0
    cuts = np.flatnonzero(np.diff(order.level, prepend=-1, append=-1))
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        np.maximum.at(begin, tail[low:high], begin[head[low:high]] + weight[low:high])
    return begin


def order_of(schedule: Schedule) -> Order:
    """What must follow what in `schedule`, read off its times."""
    sends = schedule.sends
    count = len(sends)
    into, out = tied(schedule)
    unit, ties = _units(count, into, out)
    data = _data_edges(schedule)
    rows = np.lexsort((sends.end, sends.start, sends.link))
    follow = sends.link[rows[1:]] == sends.link[rows[:-1]]
    before = np.concatenate([np.full(count, -1), data[0], rows[:-1][follow]])
    after = np.concatenate([np.arange(count), data[1], rows[1:][follow]])
    carries = np.zeros(len(before), bool)
    carries[count : count + len(data[0])] = True
    unit = unit + 1
    whole = np.append(unit, 0)
    level = _levels(whole[before], whole[after], int(unit.max()) + 1)
    at = level[whole[after]]
    keep = whole[before] != whole[after]  # within a unit the offsets say it all
    rank = np.flatnonzero(keep)[np.argsort(at[keep], kind="stable")]
    return Order(
        sends.link,
        sends.bytes,
        unit,
        ties,
        before[rank],
        after[rank],
        carries[rank],
        at[rank] - 1,
        int(unit.max()) + 1,
    )


def _levels(
    head: Int[np.ndarray, " edge"], tail: Int[np.ndarray, " edge"], units: int
) -> Int[np.ndarray, " unit"]:
    """Most edges on any path to each unit."""
    real = head != tail
    head, tail = head[real], tail[real]
    order = np.argsort(head, kind="stable")
    head, tail = head[order], tail[order]
    first = np.searchsorted(head, np.arange(units + 1))
    waiting = np.bincount(tail, minlength=units)
    level = np.zeros(units, int)
    ready, depth, seen = np.flatnonzero(waiting == 0), 0, 0
    while len(ready):
        level[ready] = depth
        seen += len(ready)
        size = first[ready + 1] - first[ready]
        begin = np.repeat(first[ready] - np.cumsum(size) + size, size)
        next_ = tail[begin + np.arange(size.sum())]
        np.subtract.at(waiting, next_, 1)
        touched = np.unique(next_)
        ready = touched[waiting[touched] == 0]
        depth += 1
    if seen < units:
        raise ValueError(
            "`schedule` has sends that wait for each other; give sends whose times "
            "obey their links' order."
        )
    return level


def tied(
    schedule: Schedule,
) -> tuple[Int[np.ndarray, " tie"], Int[np.ndarray, " tie"]]:
    """Pairs of a send into a relay and the send out of it that it feeds: for a sum
    each way in has one way out, else each way out has one way in."""
    sends, topology = schedule.sends, schedule.topology
    near = _SAME * float(sends.end.max())
    target, source = topology.targets[sends.link], topology.sources[sends.link]
    into = np.flatnonzero(~topology.stores[target])
    out = np.flatnonzero(~topology.stores[source])
    if not len(into):
        return into, out
    key_in = _key(schedule, target, into)
    key_out = _key(schedule, source, out)
    passed = sends.start[into] + topology.latencies[sends.link[into]]
    begun = sends.start[out]
    sums = schedule.demand.reduces & (sends.phase == 0)
    adds = np.array([node.reduces for node in topology.nodes], bool)
    # Without copy or reduction the n-th way in belongs to the n-th way out, ...
    lone_in = ~np.where(sums, adds[target], topology.copies[target])[into]
    lone_out = ~np.where(sums, adds[source], topology.copies[source])[out]
    pairs = [
        (
            into[lone_in][np.lexsort((passed[lone_in], key_in[lone_in]))],
            out[lone_out][np.lexsort((begun[lone_out], key_out[lone_out]))],
        )
    ]
    # ... a copy to the last way in that can have fed it, ...
    order = np.lexsort((passed, key_in))
    found = _after(key_in[order], passed[order], key_out, begun + near) - 1
    copy = ~sums[out] & ~lone_out
    pairs.append((into[order[found[copy]]], out[copy]))
    # ... and what is added up to the first way out that can have taken it.
    order = np.lexsort((begun, key_out))
    found = _after(key_out[order], begun[order], key_in, passed - near)
    add = sums[into] & ~lone_in
    pairs.append((into[add], out[order[found[add]]]))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def _key(
    schedule: Schedule, node: np.ndarray, rows: np.ndarray
) -> Int[np.ndarray, " row"]:
    """One number for (node, block, phase)."""
    sends = schedule.sends
    blocks = len(schedule.demand.size)
    return ((node * blocks + sends.block) * 2 + sends.phase)[rows]


def _after(
    keys: np.ndarray, times: np.ndarray, key: np.ndarray, time: np.ndarray
) -> Int[np.ndarray, " query"]:
    """First place in the sorted (keys, times) that is not before each (key, time)."""
    merged = np.lexsort(
        (
            np.append(np.ones(len(keys)), np.zeros(len(key))),
            np.append(times, time),
            np.append(keys, key),
        )
    )
    rank = np.cumsum(merged < len(keys))
    place = np.empty(len(merged), int)
    place[merged] = rank
    return place[len(keys) :]


def _units(
    count: int, into: np.ndarray, out: np.ndarray
) -> tuple[
    np.ndarray, tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], ...]
]:
    """Unit of each send, and the ties in an order in which offsets can be found."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(into)), (into, out)), (count, count))
    unit = connected_components(graph, directed=False)[1]
    known = np.zeros(count, bool)
    known[np.unique(unit, return_index=True)[1]] = True
    ties = []
    left = np.ones(len(into), bool)
    while left.any():
        forward = left & known[into] & ~known[out]
        back = left & known[out] & ~known[into]
        if not (forward | back).any():
            break
        a = np.append(into[forward], out[back])
        b = np.append(out[forward], into[back])
        source = np.append(into[forward], into[back])
        target = np.append(out[forward], out[back])
        _, one = np.unique(b, return_index=True)
        ties.append((a[one], b[one], source[one], target[one]))
        known[b] = True
        left &= ~(known[into] & known[out])
    return unit, tuple(ties)


def _data_edges(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (send that brings, send that forwards) at GPUs: of a whole block the first
    to bring it; of sums and parts of blocks all that came before."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    near = _SAME * float(sends.end.max())
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    blocks = len(demand.size)
    bring = np.flatnonzero(topology.stores[target])
    give = np.flatnonzero(topology.stores[source])
    if not demand.reduces:
        give = give[demand.source[sends.block[give]] != source[give]]
    key = target[bring] * blocks + sends.block[bring]
    bring = bring[np.lexsort((sends.end[bring], key))]
    key = np.sort(key)
    want = source[give] * blocks + sends.block[give]
    low, high = np.searchsorted(key, want), np.searchsorted(key, want, "right")
    size = high - low
    place = np.repeat(low - np.cumsum(size) + size, size) + np.arange(size.sum())
    a, b = bring[place], np.repeat(give, size)
    before = sends.end[a] <= sends.start[b] + near
    summing = demand.reduces & (sends.phase[a] == 0)
    ends_here = demand.source[sends.block[a]] == target[a]
    phases = np.where(summing, (sends.phase[b] == 0) | ends_here, sends.phase[b] == 1)
    fits = before & (phases | (not demand.reduces))
    a, b, summing = a[fits], b[fits], summing[fits]
    parts = sends.bytes < demand.size[sends.block] * (1 - _SAME)
    all_ = summing | parts[a] | parts[b]
    _, first = np.unique(b, return_index=True)  # sorted by arrival within each b
    keep = all_.copy()
    keep[first] = True
    return a[keep], b[keep]
