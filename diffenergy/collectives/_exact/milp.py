"""Schedules by integer search: whole chunks on links in epochs, with copy.

The formulation of TE-CCL (SIGCOMM 2024, section 3), on the epochs of `EpochModel`.
F[c, l, k] = 1 if block c enters link l in epoch k; B[c, n, k] = 1 if node n, which
stores, can send c from epoch k on:

- B[c, n, k] = B[c, n, k-1] + sum over links l into n of F[c, l, k - hop_l];
- F[c, l, k] <= B[c, n, k] out of n, and B[c, m, horizon] = 1 where m wants c;
- out of a switch with copy F[c, l, k] <= sum over links m into it of
  F[c, m, k - hop_m]; without copy the sum of F over links out is at most that;
- sum over blocks and any `window_l` epochs in a row of F[c, l, k] <= `most_l`.

A block comes to a node at most once, which loses no schedule. Only what `reach` leaves
becomes a variable, and what a `Symmetry` moves onto each other is one variable.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...search import USUAL, LinearModel, Solving, Worker, solve, worker
from .._demand.demand import Demand
from .._demand.symmetries import Symmetry, no_symmetry
from .._machine.routes import EpochModel
from .._machine.topology import Topology
from .epoch_schedule import Found, epoch_schedule, least_horizon, reach
from .integer_rows import IntegerRows, integer_rows


def integer_model(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    horizon: int,
    *,
    symmetry: Symmetry | None = None,
    link_cost: Float[np.ndarray, " link"] | None = None,
) -> tuple[LinearModel, IntegerRows]:
    """The rows above as one sparse matrix, and what its columns stand for; `link_cost`:
    of every F (None: nothing costs, any answer will do)."""
    reached = reach(topology, demand.source, demand.wanted, model.hop, horizon)
    symmetry = symmetry or no_symmetry(topology, demand)
    rows = integer_rows(topology, demand, model, reached, symmetry)
    low = np.zeros(rows.count)
    met = rows.hold[:, :, -1][demand.wanted]
    low[met[met >= 0]] = 1
    cost = np.zeros(rows.count)
    if link_cost is not None:
        np.add.at(cost, rows.send[rows.sends], link_cost[rows.sends[1]])
    return rows.model(low, np.ones(rows.count), cost), rows


def milp(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    horizon: int,
    how: Solving = USUAL,
    *,
    symmetry: Symmetry | None = None,
    link_cost: Float[np.ndarray, " link"] | None = None,
    child: Worker | None = None,
) -> Found:
    """A schedule within `horizon` epochs.

    `link_cost`: the least sum of it over sends is looked for (None: any schedule at
    all). `child`: a worker to use again.

    Raises:
        ValueError: blocks of unlike size.
    """
    check_epochs(topology, demand, model)
    if horizon < least_horizon(topology, demand, model.hop):
        return Found(None, "infeasible", horizon, 0.0)
    built, rows = integer_model(
        topology, demand, model, horizon, symmetry=symmetry, link_cost=link_cost
    )
    answer = solve(built, how, child)
    if answer.values is None:
        ended = horizon if answer.status == "infeasible" else 0
        known = answer.seconds, None, answer.bound, answer.work
        return Found(None, answer.status, ended, *known)
    schedule = epoch_schedule(topology, demand, model, rows.chosen(answer.values))
    known = answer.seconds, answer.incumbent, answer.bound, answer.work
    return Found(schedule, answer.status, 0, *known)


def least_finish(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    how: Solving = USUAL,
    *,
    low: int = 0,
    high: int | None = None,
    symmetry: Symmetry | None = None,
) -> Found:
    """The schedule of fewest epochs: horizons from a bound `low` on, one by one, up to
    `high` and within the limits in all."""
    horizon = max(low, least_horizon(topology, demand, model.hop))
    spent, work, infeasible = 0.0, 0.0, 0
    with worker() as child:
        while high is None or horizon <= high:
            left = how.less(spent, work)
            found = milp(
                topology, demand, model, horizon, left, symmetry=symmetry, child=child
            )
            spent, work = spent + found.seconds, work + found.work
            if found.status != "infeasible":
                return dataclasses.replace(
                    found, infeasible_at=infeasible, seconds=spent, work=work
                )
            infeasible, horizon = horizon, horizon + 1
    return Found(None, "infeasible", infeasible, spent, work=work)


def check_epochs(topology: Topology, demand: Demand, model: EpochModel) -> None:
    """Raise ValueError for what has no model in whole chunks and epochs."""
    if not np.allclose(demand.size, model.chunk, rtol=1e-9):
        raise ValueError(
            f"`demand` has blocks of {demand.size.min():g} to {demand.size.max():g} B "
            f"where the epochs are for {model.chunk:g} B; split blocks into chunks of "
            "one size, or take method lp or greedy."
        )
    between = ~topology.stores[topology.sources] & ~topology.stores[topology.targets]
    if (model.hop[between] == 0).any():
        raise ValueError(
            f"`{topology.name}` has links between switches that take no epoch; leave "
            "`free_exit` off."
        )
