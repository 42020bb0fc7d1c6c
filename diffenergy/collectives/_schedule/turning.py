"""Reductions as what spreads on the reversed machine, and schedules backwards in time.

Turned round, a sum that comes together along a tree is a block that spreads along it:
a schedule of the spread on the reversed machine is one of the reduction, played from
its end to its start.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from .._demand.demand import Demand
from .._machine.topology import Topology
from .schedule import Schedule, Sends


@dataclasses.dataclass(frozen=True)
class Spread:
    """Blocks that spread on a machine: of a sum its reversal."""

    topology: Topology
    source: Int[np.ndarray, " block"]
    wanted: Bool[np.ndarray, "block node"]
    size: Float[np.ndarray, " block"]


def spreads(demand: Demand, topology: Topology) -> list[Spread]:
    """What spreads: the summands' ways reversed, the results, or both."""
    home = np.arange(len(demand.source)), demand.source
    halves = [(topology.reversed(), demand.parts)] if demand.reduces else []
    if not demand.reduces or demand.collective == "all_reduce":
        halves.append((topology, demand.wanted))
    found = []
    for machine, takers in halves:
        wanted = takers.copy()
        wanted[home] = False
        found.append(Spread(machine, demand.source, wanted, demand.size))
    return found


def spread_of(topology: Topology, demand: Demand) -> tuple[Topology, Demand]:
    """Of a reduction the reversed machine and what spreads there: each sum from where
    it ends to where its summands are."""
    away = demand.parts.copy()
    away[range(len(away)), demand.source] = False
    nothing = demand.parts & False
    spread = dataclasses.replace(
        demand, collective="custom", wanted=away, parts=nothing
    )
    return topology.reversed(), spread


def turned_round(sends: Sends, length: float) -> Sends:
    """The same sends backwards in time, s, from `length` to 0."""
    start = np.maximum(length - sends.end, 0.0)  # below 0 by rounding alone
    return dataclasses.replace(sends, start=start, end=length - sends.start)


def reduction(topology: Topology, demand: Demand, spread: Schedule) -> Schedule:
    """The schedule of a reduction whose spread on the reversed machine is `spread`."""
    length = float(spread.sends.end.max(initial=0.0))
    sends = turned_round(spread.sends, length)
    return dataclasses.replace(spread, topology=topology, demand=demand, sends=sends)
