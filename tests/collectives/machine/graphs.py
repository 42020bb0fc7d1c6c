"""What a topology is, read off its links."""

import numpy as np

from diffenergy.collectives import Topology
from diffenergy.collectives._topology import Link


def into(topology: Topology) -> np.ndarray:
    """B/s into every node."""
    return np.bincount(topology.targets, topology.rates, len(topology.nodes))


def out_of(topology: Topology) -> np.ndarray:
    return np.bincount(topology.sources, topology.rates, len(topology.nodes))


def link(topology: Topology, source: str, target: str) -> Link | None:
    """The link from one named node to another, if there is one."""
    ends = topology.index[source], topology.index[target]
    found = [x for x in topology.links if (x.source, x.target) == ends]
    return found[0] if found else None


def reached(topology: Topology, start: int) -> set[int]:
    """Nodes that some path from `start` leads to."""
    seen, front = {start}, [start]
    while front:
        node = front.pop()
        ahead = {x.target for x in topology.links if x.source == node} - seen
        seen |= ahead
        front += ahead
    return seen
