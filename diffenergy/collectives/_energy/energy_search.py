"""`least_energy`: the second stage, fewest joules of links and memory at fixed finish.

1. `prune` leaves out what nobody needs.
2. If the schedule costs no more than `energy_floor`, it is done.
3. With epochs given and a model of moderate size, a solver looks for the cheapest
   schedule of as many epochs: `milp` with a cost for every send, `lp` for blocks with
   one taker.

Every result is verified; one that ends later or costs more is thrown away.
"""

import dataclasses
import time
from typing import Final

import numpy as np
from jaxtyping import Float

from .._exact.epoch_schedule import run_epochs
from .._exact.lp import flow_count, lp
from .._exact.milp import milp
from .._exact.reach import reach
from .._exact.solver import USUAL, Solving
from .._machine.epochs import EpochModel
from .._schedule.prune import prune
from .._schedule.schedule import Schedule
from .._schedule.turning import reduction, spread_of
from .._verify.verify import verify
from .._verify.violation import Violation
from .energy import schedule_price
from .energy_floor import energy_floor

SAME: Final = 1e-9
"""Relative difference of joules or seconds that counts as none."""
_MOST_CHOICES: Final = 3e5
"""(block, link, epoch) or (source, link, epoch) above which no solver is asked."""


@dataclasses.dataclass(frozen=True)
class Thrift:
    """A schedule with its `finish` (s), `joules` of links and memory at the prices
    given, and the `floor` that no schedule stays below (0: none known)."""

    schedule: Schedule
    finish: float
    joules: float
    floor: float
    interrupted: bool = False

    @property
    def meets_floor(self) -> bool:
        """Whether no schedule can cost less, however late."""
        return self.joules <= self.floor * (1 + SAME)


def priced(schedule: Schedule, prices: Float[np.ndarray, " link"]) -> Thrift:
    """What a schedule costs at `prices` (J/B of each link, `energy.byte_prices`)."""
    floor = energy_floor(schedule.topology, schedule.demand, prices)
    cost = schedule_price(schedule, prices)
    return Thrift(schedule, verify(schedule).finish, cost, floor)


def least_energy(
    start: Thrift,
    prices: Float[np.ndarray, " link"],
    how: Solving = USUAL,
    *,
    limit: float = 0.0,
    model: EpochModel | None = None,
    horizon: int | None = None,
) -> Thrift:
    """The cheapest schedule at `prices` that ends by `limit` (s) or when `start` does.

    `model`, `horizon`: epochs, and how many, for the solver (None: no solver), which
    has what `prune` leaves of the time limit. Ctrl-C keeps the best so far.
    """
    ends, latest = time.monotonic() + how.time_limit, max(start.finish, limit)
    found = start
    try:
        found = _better(found, start.schedule, prices, latest)
        left = ends - time.monotonic()
        if model is not None and horizon and left > 0 and not found.meets_floor:
            how = dataclasses.replace(how, time_limit=left)
            other = _solved(found.schedule, prices, model, horizon, how)
            if other is not None:
                found = _better(found, other, prices, latest)
    except KeyboardInterrupt:
        found = dataclasses.replace(found, interrupted=True)
    return found


def _better(
    found: Thrift, other: Schedule, prices: Float[np.ndarray, " link"], latest: float
) -> Thrift:
    """`other` where it is right, in time and cheaper."""
    other = prune(other)
    cost = schedule_price(other, prices)
    if cost > found.joules * (1 - SAME):
        return found
    try:
        finish = verify(other).finish
    except Violation:
        return found
    if finish > latest * (1 + SAME):
        return found
    return dataclasses.replace(found, schedule=other, finish=finish, joules=cost)


def _solved(
    given: Schedule,
    prices: Float[np.ndarray, " link"],
    model: EpochModel,
    horizon: int,
    how: Solving,
) -> Schedule | None:
    """What a solver finds in as many epochs."""
    topology, demand = given.topology, given.demand
    if demand.collective == "all_reduce":
        return None
    if demand.reduces:
        topology, demand = spread_of(topology, demand)
    single = bool((demand.wanted.sum(axis=1) <= 1).all())
    if not single and not np.allclose(demand.size, model.chunk, rtol=1e-9):
        return None
    if single:
        choices = flow_count(topology, demand, model, horizon)
    else:
        wanted = demand.source, demand.wanted
        choices = reach(topology, *wanted, model.hop, horizon).choices
    if choices > _MOST_CHOICES:
        return None
    cost = prices / max(float(prices.mean()), 1e-300)
    if single:
        answer = lp(
            topology, demand, model, how, low=horizon, high=horizon, link_cost=cost
        )
    else:
        answer = milp(
            topology, demand, model, horizon, how, objective="cost", link_cost=cost
        )
    if answer.schedule is None:
        return None
    timed = run_epochs(answer.schedule, model, parts=single)
    if given.demand.reduces:
        timed = reduction(given.topology, given.demand, timed)
    return timed
