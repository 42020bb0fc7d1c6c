"""`Topology`: GPUs, switches and NICs joined by directed links."""

import dataclasses
import functools
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

Kind = Literal["gpu", "switch", "nic"]


@dataclasses.dataclass(frozen=True)
class Node:
    """Something that links end at.

    A GPU stores, forwards and copies. A switch or NIC has no store: what comes in
    leaves at once, on several links if it has `copy`, on one otherwise; with `reduces`
    it can also add up what comes in at once. `chassis`: which box, -1 for none.
    """

    name: str
    kind: Kind
    copy: bool = True
    reduces: bool = False
    chassis: int = -1

    @property
    def stores(self) -> bool:
        """Whether a chunk can wait here."""
        return self.kind == "gpu"


@dataclasses.dataclass(frozen=True)
class Energy:
    """Energy of a bit on a link, J: best guess and the bracket of its sources."""

    typical: float
    low: float
    high: float
    source: str


@dataclasses.dataclass(frozen=True)
class Link:
    """One direction of a connection: node indices, rate in B/s, latency in s.

    `medium`: what it is made of (`nvlink2`, `pcie4`, `nic-hdr`, ...), whose energy per
    bit stands in `energy`.
    """

    source: int
    target: int
    rate: float
    latency: float
    medium: str
    energy: Energy
    origin: str = ""
    """Where rate and latency are from."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """A machine: nodes, directed links, and how many GPUs share an output buffer.

    `buffer_gpus`: chunks of an output buffer with one chunk a GPU (16 for
    `ndv2-2-published`, where 15 take part). `free_exit`: sends out of a switch take no
    transmission time in the all-gather model of epochs (machines of the published
    runs). `gpu`: the GPU whose idle power is drawn while the collective runs, by
    bundled name.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    buffer_gpus: int
    gpu: str | None = None
    free_exit: bool = False

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """Number of a node by its name."""
        return {node.name: n for n, node in enumerate(self.nodes)}

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [node.name for node in self.nodes]

    @functools.cached_property
    def between(self) -> dict[tuple[int, int], int]:
        """Number of the link from a node to another."""
        return {(link.source, link.target): n for n, link in enumerate(self.links)}

    def link_name(self, link: int) -> str:
        """Name of a link, such as `gpu0->gpu1`."""
        ends = self.links[link]
        return f"{self.names[ends.source]}->{self.names[ends.target]}"

    @functools.cached_property
    def gpus(self) -> Int[np.ndarray, " gpu"]:
        """Nodes that are GPUs, in order."""
        return np.flatnonzero([node.kind == "gpu" for node in self.nodes])

    @functools.cached_property
    def sources(self) -> Int[np.ndarray, " link"]:
        """Node that each link begins at."""
        return np.array([link.source for link in self.links], int)

    @functools.cached_property
    def targets(self) -> Int[np.ndarray, " link"]:
        """Node that each link ends at."""
        return np.array([link.target for link in self.links], int)

    @functools.cached_property
    def rates(self) -> Float[np.ndarray, " link"]:
        """Rate of each link (B/s)."""
        return np.array([link.rate for link in self.links], float)

    @functools.cached_property
    def latencies(self) -> Float[np.ndarray, " link"]:
        """Latency of each link (s)."""
        return np.array([link.latency for link in self.links], float)

    @functools.cached_property
    def stores(self) -> Bool[np.ndarray, " node"]:
        """Which nodes can store a chunk."""
        return np.array([node.stores for node in self.nodes], bool)

    @functools.cached_property
    def copies(self) -> Bool[np.ndarray, " node"]:
        """Which nodes can send one chunk on several links."""
        return np.array([node.stores or node.copy for node in self.nodes], bool)

    def reversed(self) -> "Topology":
        """The machine with every link turned round. A copy in a switch becomes a
        reduction in it: only switches that reduce keep `copy`."""
        nodes = tuple(
            node
            if node.stores
            else dataclasses.replace(node, copy=node.reduces, reduces=node.copy)
            for node in self.nodes
        )
        links = tuple(
            dataclasses.replace(link, source=link.target, target=link.source)
            for link in self.links
        )
        return dataclasses.replace(self, nodes=nodes, links=links)
