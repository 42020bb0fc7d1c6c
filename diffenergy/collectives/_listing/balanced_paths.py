"""`balanced_paths`: a path for every block with one taker that fills no link too much.

Blocks choose the cheapest path one after the other, and again in later rounds with all
others where they are. A link costs its time for the block, times how full it is to a
high power, so that the fullest link counts most (the p-norm of the links' work).
"""

import heapq
from typing import Final

import numpy as np

from .._machine.topology import Topology
from .queues import Requests

_POWER: Final = 7
"""Of how full a link is, in its price."""
_FLAT: Final = 0.02
"""Price of a link's time where nothing else passes it."""
_ROUNDS: Final = 8
"""How often each block chooses."""


def balanced_paths(
    topology: Topology,
    requests: Requests,
    rng: np.random.Generator,
    wobble: float = 0.0,
) -> list[list[int]]:
    """Links along the path of each block. `wobble`: most by which prices are off in the
    first round, as a share, so that calls end at different paths."""
    rates, latencies = topology.rates.tolist(), topology.latencies.tolist()
    ahead: list[list[tuple[int, int]]] = [[] for _ in topology.nodes]
    for number, link in enumerate(topology.links):
        ahead[link.source].append((link.target, number))
    work = np.zeros(len(rates)).tolist()
    source, taker, size = requests.source, requests.taker, requests.size
    least = _least_work(topology, requests)
    paths: list[list[int]] = [[] for _ in source]
    for turn in range(_ROUNDS):
        off = wobble * max(0.0, 1 - 2 * turn / _ROUNDS)
        slow = (topology.rates / (1 + off * rng.random(len(rates)))).tolist()

        def toll(
            link: int, mine: float, slow: list[float] = slow, begin: float = least
        ) -> float:
            took = mine / slow[link]
            full = (work[link] + took) / begin
            return latencies[link] + took * (_FLAT + full**_POWER)

        changed, priced, price = False, -1.0, list[float]()
        for block in rng.permutation(len(source)).tolist():
            old, mine = paths[block], float(size[block])
            for link in old:
                work[link] -= mine / rates[link]
            if mine != priced:
                price, priced = [toll(n, mine) for n in range(len(rates))], mine
            for link in old:
                price[link] = toll(link, mine)
            path = _cheapest(ahead, price, int(source[block]), int(taker[block]))
            changed |= path != old
            paths[block] = path
            for link in path:
                work[link] += mine / rates[link]
                price[link] = toll(link, mine)
        if not changed:
            break
        least = max(least, 0.95 * max(work))
    return paths


def _least_work(topology: Topology, requests: Requests) -> float:
    """s that the busiest GPU's links need at least for what leaves or comes: where
    prices begin to rise."""
    nodes = len(topology.nodes)
    out = np.bincount(topology.sources, topology.rates, nodes)
    into = np.bincount(topology.targets, topology.rates, nodes)
    source, taker, size = requests.source, requests.taker, requests.size
    gone = np.bincount(source, size, nodes)[source] / out[source]
    come = np.bincount(taker, size, nodes)[taker] / into[taker]
    return float(max(gone.max(), come.max()))


def _cheapest(
    ahead: list[list[tuple[int, int]]], price: list[float], start: int, end: int
) -> list[int]:
    """Links of the cheapest path."""
    best = {start: 0.0}
    came: dict[int, tuple[int, int]] = {}
    queue = [(0.0, start)]
    done: set[int] = set()
    while queue:
        cost, node = heapq.heappop(queue)
        if node == end:
            break
        if node in done:
            continue
        done.add(node)
        for target, link in ahead[node]:
            reach = cost + price[link]
            if reach < best.get(target, np.inf):
                best[target] = reach
                came[target] = (node, link)
                heapq.heappush(queue, (reach, target))
    path: list[int] = []
    while end != start:
        end, link = came[end]
        path.append(link)
    return path[::-1]
