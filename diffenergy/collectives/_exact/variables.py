"""Numbering of the variables of integer models over blocks, links and epochs."""

import dataclasses

import numpy as np
from jaxtyping import Int

from .._demand.demand import Demand
from .._demand.orbits import Symmetry
from .._machine.topology import Topology
from .reach import Reach


def ragged(
    counts: Int[np.ndarray, " row"],
) -> tuple[Int[np.ndarray, " cell"], Int[np.ndarray, " cell"]]:
    """Row and position within it of every cell of rows with `counts` cells."""
    row = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    return row, np.arange(len(row)) - begin[row]


def links_of(
    ends: Int[np.ndarray, " link"], nodes: Int[np.ndarray, " group"]
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """All (number in `nodes`, link) such that the link's end is that node."""
    order = np.argsort(ends, kind="stable")
    left = np.searchsorted(ends[order], nodes, "left")
    right = np.searchsorted(ends[order], nodes, "right")
    group, step = ragged(right - left)
    return group, order[left[group] + step]


@dataclasses.dataclass(frozen=True)
class Columns:
    """Numbering of the variables: F by pair of block and link, then B by place (block
    and node), each over its epochs; `send_at`, `hold_at` are -1 where none are."""

    reached: Reach
    send_at: Int[np.ndarray, "block link"]  # column of F at epoch `first`
    hold_at: Int[np.ndarray, "block node"]  # column of B at epoch `earliest`
    send_block: Int[np.ndarray, " pair"]  # pairs that stand for their orbit
    send_link: Int[np.ndarray, " pair"]
    hold_block: Int[np.ndarray, " place"]  # places that stand for theirs
    hold_node: Int[np.ndarray, " place"]
    count: int

    @property
    def hold_end(self) -> Int[np.ndarray, " place"]:
        """Column of B at the horizon, of each place that stands for its orbit."""
        at = self.hold_block, self.hold_node
        return self.hold_at[at] + self.reached.horizon - self.reached.earliest[at]

    def sends(
        self, block: Int[np.ndarray, " p"], link: Int[np.ndarray, " p"]
    ) -> tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"], Int[np.ndarray, " f"]]:
        """Of these pairs all F: number of the pair in the arguments, epoch, column."""
        first = self.reached.first[block, link]
        length = np.maximum(self.reached.last[block, link] - first + 1, 0)
        pair, step = ragged(length)
        return pair, first[pair] + step, self.send_at[block, link][pair] + step


def number_columns(
    topology: Topology, demand: Demand, reached: Reach, symmetry: Symmetry
) -> Columns:
    """Variables of the pairs that are useful and of the places that blocks wait at."""
    useful = reached.useful
    away = np.arange(len(topology.nodes))[None, :] != demand.source[:, None]
    waits = topology.stores[None, :] & away & (reached.earliest <= reached.latest)
    flow_block, flow_link = np.nonzero(useful & symmetry.leads(symmetry.pairs))
    hold_block, hold_node = np.nonzero(waits & symmetry.leads(symmetry.places))
    lengths = (reached.last - reached.first + 1)[flow_block, flow_link]
    spans = reached.horizon - reached.earliest[hold_block, hold_node] + 1
    begin = np.cumsum(np.append(lengths, spans)) - np.append(lengths, spans)
    send_at = np.full(symmetry.pairs.size, -1)
    send_at[symmetry.pairs[flow_block, flow_link]] = begin[: len(flow_block)]
    hold_at = np.full(symmetry.places.size, -1)
    hold_at[symmetry.places[hold_block, hold_node]] = begin[len(flow_block) :]
    return Columns(
        reached,
        np.where(useful, send_at[symmetry.pairs], -1),
        np.where(waits, hold_at[symmetry.places], -1),
        flow_block,
        flow_link,
        hold_block,
        hold_node,
        int(lengths.sum() + spans.sum()),
    )
