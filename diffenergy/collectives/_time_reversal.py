"""Reductions as what spreads on the reversed machine, and schedules backwards in time.

Turned round, a sum that comes together along a tree is a block that spreads along it:
a schedule of the spread on the reversed machine is one of the reduction, played from
its end to its start.
"""

import dataclasses

import numpy as np

from ._demand import Demand
from ._schedule import Schedule, Sends
from ._topology import Topology


def spreads(demand: Demand, topology: Topology) -> list[tuple[Topology, Demand]]:
    """What spreads, and on which machine: the summands' ways reversed, the results, or
    both; what stays at home is left out."""
    halves = [spread_of(topology, demand)] if demand.reduces else []
    if not demand.reduces or demand.collective == "all_reduce":
        wanted = demand.wanted.copy()
        wanted[range(len(wanted)), demand.source] = False
        halves.append((topology, dataclasses.replace(demand, wanted=wanted)))
    return halves


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


def reversed_in_time(sends: Sends, length: float) -> Sends:
    """The same sends backwards in time, s, from `length` to 0."""
    start = np.maximum(length - sends.end, 0.0)  # below 0 by rounding alone
    return dataclasses.replace(sends, start=start, end=length - sends.start)


def reduction(topology: Topology, demand: Demand, spread: Schedule) -> Schedule:
    """The schedule of a reduction whose spread on the reversed machine is `spread`."""
    sends = reversed_in_time(spread.sends, spread.last_end)
    return dataclasses.replace(spread, topology=topology, demand=demand, sends=sends)
