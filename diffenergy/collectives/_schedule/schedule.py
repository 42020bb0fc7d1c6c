"""`Schedule`: sends of blocks over links, in continuous time."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from .._demand.demand import Demand
from .._machine.topology import Topology


@dataclasses.dataclass(frozen=True)
class Sends:
    """Sends as columns, in any order; times in s from the start of the collective.

    `start`: the first byte enters the link; `end`: the last byte has arrived, latency
    included; `bytes`: of the block (less than the whole block for a part of it).
    `phase`: 0 for plain sends and sums (a reduction's way in), 1 for the way out of an
    all-reduce.
    """

    block: Int[np.ndarray, " send"]
    link: Int[np.ndarray, " send"]
    start: Float[np.ndarray, " send"]
    end: Float[np.ndarray, " send"]
    bytes: Float[np.ndarray, " send"]
    phase: Int[np.ndarray, " send"]

    def __len__(self) -> int:
        return len(self.block)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Who sends what when. `epoch`: s, and `epochs` used, where a method has epochs."""

    topology: Topology
    demand: Demand
    sends: Sends
    epoch: float | None = None
    epochs: int | None = None
