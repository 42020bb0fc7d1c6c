"""An all-reduce as a reduce-scatter and an all-gather, each planned by itself.

Integer search and the linear program know neither sums nor two phases at once, but each
half is what spreads, on the reversed machine or on the machine itself. The all-gather
then begins as soon as its data and links allow.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from .._demand.demand import Demand
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends
from .._schedule.simulate import retime
from .search import Plan, Search, Task, Watch

_SHARE: Final = 0.5
"""Of the time left for the reduce-scatter."""

Finder = Callable[[Topology, Demand, Search, Watch], Plan]
"""Plans a half."""


def halves(demand: Demand) -> tuple[Demand, Demand]:
    """What adds an all-reduce's sums up, and what spreads them."""
    home = np.zeros_like(demand.wanted)
    home[np.arange(len(home)), demand.source] = True
    return (
        dataclasses.replace(demand, collective="reduce_scatter", wanted=home),
        dataclasses.replace(
            demand, collective="all_gather", parts=np.zeros_like(demand.parts)
        ),
    )


def composed(task: Task, find: Finder, watch: Watch) -> Plan:
    """The verified schedule of both halves, the second as early as the first lets it.

    Raises:
        KeyboardInterrupt: Ctrl-C came while a half was planned.
    """
    found: list[Plan] = []
    for demand, share in zip(halves(task.demand), (_SHARE, 1.0), strict=True):
        limit = task.left() * share
        search = dataclasses.replace(task.search, time_limit=limit, horizon=None)
        plan = find(task.topology, demand, search, watch)
        task.seconds += plan.solver_seconds
        if plan.interrupted:
            raise KeyboardInterrupt
        found.append(plan)
    names = [f"{plan.schedule.demand.collective} ({plan.method})" for plan in found]
    solvers = ", ".join(dict.fromkeys(x.solver for x in found if x.solver))
    return task.plan(_joined(task, *found), " + ".join(names), solvers or None)


def _joined(task: Task, first: Plan, second: Plan) -> Schedule:
    """One after the other, then every send as early as can be."""
    into, out = first.schedule.sends, second.schedule.sends
    later = dataclasses.replace(
        out,
        start=out.start + first.finish,
        end=out.end + first.finish,
        phase=np.ones_like(out.phase),
    )
    whole = Schedule(task.topology, task.demand, Sends.joined([into, later]))
    come, go = first.schedule.epochs, second.schedule.epochs
    if task.model is not None and come is not None and go is not None:
        whole = dataclasses.replace(whole, epoch=task.model.tau, epochs=come + go)
    return retime(whole)
