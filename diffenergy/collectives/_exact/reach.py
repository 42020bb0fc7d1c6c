"""What a send can be good for: epochs between its block's earliest arrival and the last
moment at which somebody can still be served."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Int

from .._demand.demand import Demand
from .._machine.routes import shortest
from .._machine.topology import Topology

_NEVER: Final = 1 << 30
"""Epochs to what cannot be reached."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """Epochs that can matter, of blocks at nodes and on links; `horizon` epochs in all.

    A block can be at a node from `earliest` on and is of use there until `latest`;
    sends of it on a link are useful in epochs `first` to `last` (if `first <= last`).
    """

    horizon: int
    earliest: Int[np.ndarray, "block node"]
    latest: Int[np.ndarray, "block node"]
    first: Int[np.ndarray, "block link"]
    last: Int[np.ndarray, "block link"]

    @property
    def epochs(self) -> Int[np.ndarray, " epoch"]:
        """Their numbers, the horizon included."""
        return np.arange(self.horizon + 1)

    @property
    def open(self) -> Bool[np.ndarray, "block link epoch"]:
        """Sends that are useful."""
        after = self.epochs >= self.first[:, :, None]
        return after & (self.epochs <= self.last[:, :, None])

    @property
    def choices(self) -> int:
        """How many these are."""
        return int(np.maximum(self.last - self.first + 1, 0).sum())


def distances(
    topology: Topology, hop: Int[np.ndarray, " link"]
) -> Int[np.ndarray, "node node"]:
    """Least epochs from each node to each, `hop` epochs a link; `_NEVER` without a
    way."""
    away = shortest(topology, hop.astype(float))
    return np.where(np.isfinite(away), np.rint(away), _NEVER).astype(int)


def least_horizon(
    topology: Topology, demand: Demand, hop: Int[np.ndarray, " link"]
) -> int:
    """Epochs below which some block cannot reach somebody who wants it.

    Raises:
        ValueError: no way leads from a block to somebody who wants it.
    """
    away = distances(topology, hop)[demand.source]
    needed = np.where(demand.wanted, away, 0)
    worst = int(needed.max(initial=0))
    if worst >= _NEVER:
        block, node = np.argwhere(needed >= _NEVER)[0]
        names = topology.nodes
        raise ValueError(
            f"`{names[node].name}` wants a block of "
            f"`{names[demand.source[block]].name}`, from which no way leads to it in "
            f"`{topology.name}`; add links or leave that demand out."
        )
    return worst


def reach(
    topology: Topology,
    source: Int[np.ndarray, " block"],
    wanted: Bool[np.ndarray, "block node"],
    hop: Int[np.ndarray, " link"],
    horizon: int,
) -> Reach:
    """Epochs in which sends can matter if all must be met within `horizon` epochs."""
    away = distances(topology, hop)
    earliest = away[source]
    latest = horizon - _nearest(away, wanted)
    first = earliest[:, topology.sources]
    last = latest[:, topology.targets] - hop
    home = topology.targets == source[:, None]
    return Reach(horizon, earliest, latest, first, np.where(home, -1, last))


def _nearest(
    away: Int[np.ndarray, "node node"], wanted: Bool[np.ndarray, "block node"]
) -> Int[np.ndarray, "block node"]:
    """Epochs from each node to the nearest node that wants each block."""
    alike, which = np.unique(wanted, axis=0, return_inverse=True)
    near = np.stack([away[:, row].min(axis=1, initial=_NEVER) for row in alike], axis=0)
    return near[which.reshape(-1)]
