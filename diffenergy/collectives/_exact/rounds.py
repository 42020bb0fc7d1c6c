"""Schedules by time partitioning: one integer search for each stretch of epochs.

The rounds of TE-CCL (SIGCOMM 2024, section 5, after A*): a round decides the sends of
its epochs, all earlier ones stand. What is in flight at the end of a round is carried
over, because the next model holds the earlier sends as fixed variables. A round makes
as much as it can of

- `_WISH` for every epoch that a wanted block is there, and
- a potential for where blocks end: at a node n, in flight to it included, the sum over
  the GPUs m that still want it of `_NEAR` / (1 + epochs from n to m over the longest
  hop).
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from ...search import USUAL, Solving, solve
from .._demand.demand import Demand
from .._machine.routes import EpochModel
from .._machine.topology import Topology
from .epoch_schedule import Found, Picked, Reach, distances, epoch_schedule
from .milp import IntegerRows, check_epochs, integer_rows

_WISH: Final = 1000.0
_NEAR: Final = 100.0
_GAP: Final = 0.01
"""Relative gap at which a round is good enough."""
_ROUND: Final = 20.0
"""s of an idle core that a round may take."""


def rounds(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    how: Solving = USUAL,
    *,
    length: int | None = None,
    high: int | None = None,
) -> Found:
    """A schedule made `length` epochs at a time (by default twice the longest hop),
    each round within 20 s of an idle core; no proof of how good it is.

    `high`: epochs after which to give up.

    Raises:
        ValueError: blocks of unlike size.
    """
    check_epochs(topology, demand, model)
    longest = int(model.hop.max())
    length = length or 2 * longest
    away = distances(topology, model.hop) / longest
    none = np.empty(0, int)
    picked: Picked = none, none, none
    spent, work, done, idle = 0.0, 0.0, 0, 0
    while _missing(topology, demand, picked).any():
        done += length
        out = spent >= how.time_limit or work >= how.work
        if out or (high is not None and done - length >= high):
            status = "unknown" if out else "infeasible"
            return Found(None, status, 0, spent, work=work)
        reached = _open(topology, demand, model, done, longest)
        rows = integer_rows(topology, demand, model, reached)
        low, up = _decided(rows, picked, done - length)
        missing = _missing(topology, demand, picked)
        cost = _cost(rows, topology, demand, model, away, missing, done)
        left = how.less(spent, work)
        brief = dataclasses.replace(left, work=min(left.work, _ROUND), gap=_GAP)
        answer = solve(rows.model(low, up, cost), brief)
        spent, work = spent + answer.seconds, work + answer.work
        if answer.values is None:
            return Found(None, answer.status, 0, spent, work=work)
        before, picked = picked, rows.chosen(answer.values)
        # Rounds without a send wait for what is under way, no longer.
        idle = idle + length if len(picked[0]) == len(before[0]) else 0
        if idle > longest:
            return Found(None, "unknown", 0, spent, work=work)
    schedule = epoch_schedule(topology, demand, model, picked)
    if high is not None and (schedule.epochs or 0) > high:
        return Found(None, "infeasible", 0, spent, work=work)
    return Found(schedule, "feasible", 0, spent, work=work)


def _missing(
    topology: Topology, demand: Demand, picked: Picked
) -> Bool[np.ndarray, "block node"]:
    """Wishes that no send so far meets."""
    block, link, _ = picked
    missing = demand.wanted.copy()
    missing[block, topology.targets[link]] = False
    return missing


def _open(
    topology: Topology, demand: Demand, model: EpochModel, end: int, longest: int
) -> Reach:
    """Every send that can begin before `end`, wherever it leads; places are counted
    until all of them have arrived."""
    earliest = distances(topology, model.hop)[demand.source]
    first = earliest[:, topology.sources]
    home = topology.targets[None, :] == demand.source[:, None]
    last = np.where(home, -1, np.full_like(first, end - 1))
    horizon = end + longest
    return Reach(horizon, earliest, np.full_like(earliest, horizon), first, last)


def _decided(
    rows: IntegerRows, picked: Picked, begin: int
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"]]:
    """Limits of the columns: sends before epoch `begin` are as they were."""
    low, up = np.zeros(rows.count), np.ones(rows.count)
    early = rows.send[:, :, :begin]
    up[early[early >= 0]] = 0
    sent = rows.send[picked]
    low[sent] = up[sent] = 1
    return low, up


def _cost(
    rows: IntegerRows,
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    away: Float[np.ndarray, "node node"],
    missing: Bool[np.ndarray, "block node"],
    end: int,
) -> Float[np.ndarray, " column"]:
    """-`_WISH` for each epoch that a wanted block is there, less the potential of where
    blocks are at the end; whole numbers."""
    cost = np.zeros(rows.count)
    near = np.round(_NEAR * missing.astype(float) @ (1 / (1 + away)).T)
    last = rows.hold[:, :, -1]
    cost[last[last >= 0]] -= near[last >= 0]
    cost[rows.hold[(rows.hold >= 0) & demand.wanted[:, :, None]]] -= _WISH
    # A block under way into a switch at the end is near whoever the switch leads to.
    block, link, epoch = rows.sends
    target = topology.targets[link]
    late = ~topology.stores[target] & (epoch + model.hop[link] >= end)
    cost[rows.send[rows.sends][late]] -= near[block, target][late]
    return cost
