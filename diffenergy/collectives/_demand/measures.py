"""Bandwidths by which collectives are compared."""

import dataclasses
from typing import Final

import numpy as np

from .._machine.topology import Topology
from .demand import Demand

_SHARED: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Collectives of which a GPU's own part of the buffer moves nowhere."""


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """B and B/s; `bus` is None where no rule says what share of the buffer moves."""

    buffer: float
    algorithm: float
    bus: float | None


def bandwidths(
    demand: Demand,
    topology: Topology,
    finish: float,
    size: float | None = None,
    sharing: int | None = None,
) -> Bandwidths:
    """Algorithm bandwidth = buffer / finish, bus bandwidth = that x (N - 1) / N
    (all-reduce: x 2 (N - 1) / N; broadcast and reduce: x 1).

    `size`: B of the buffer of a GPU (None: the most that one receives); `sharing`: N,
    GPUs that it is divided by (None: those of the machine).
    """
    received = demand.size @ demand.wanted
    buffer = float(np.max(received)) if size is None else size
    gpus = topology.buffer_gpus if sharing is None else sharing
    algorithm = buffer / finish
    share = (gpus - 1) / gpus
    factors = dict.fromkeys(_SHARED, share)
    factors |= {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}
    factor = factors.get(demand.collective)
    return Bandwidths(buffer, algorithm, None if factor is None else factor * algorithm)
