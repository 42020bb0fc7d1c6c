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
from typing import Final, Literal

import numpy as np
from jaxtyping import Float

from .._exact.epoch_schedule import run_epochs
from .._exact.lp import flow_count, lp
from .._exact.milp import milp
from .._exact.reach import reach
from .._exact.solver import Watch
from .._machine.epochs import EpochModel
from .._schedule.prune import prune
from .._schedule.schedule import Schedule
from .._schedule.turning import reduction, spread_of
from .._verify.verify import verify
from .._verify.violation import Violation
from .energy import schedule_price
from .energy_floor import energy_floor

Step = Literal["none", "prune", "milp", "lp"]
_SAME: Final = 1e-9
"""Relative difference of joules or seconds that counts as none."""
_MOST_CHOICES: Final = 3e5
"""(block, link, epoch) or (source, link, epoch) above which no solver is asked."""


@dataclasses.dataclass(frozen=True)
class Thrift:
    """The cheapest schedule found: `joules` of links and memory at the prices given,
    `start_joules` before, `floor` that no schedule stays below (0: none known).

    `step`: what found it; `least`: whether none can be cheaper, in these epochs
    (`step` milp or lp) or at all (the floor is met); `seconds`: wall time.
    """

    schedule: Schedule
    finish: float
    joules: float
    start_joules: float
    floor: float
    step: Step
    least: bool
    seconds: float
    interrupted: bool = False

    @property
    def meets_floor(self) -> bool:
        """Whether no schedule can cost less, however late."""
        return self.joules <= self.floor * (1 + _SAME)


def least_energy(
    start: Schedule,
    prices: Float[np.ndarray, " link"],
    *,
    limit: float | None = None,
    model: EpochModel | None = None,
    horizon: int | None = None,
    time_limit: float = 20.0,
    seed: int = 0,
    watch: Watch | None = None,
) -> Thrift:
    """The cheapest schedule at `prices` (J/B of each link, `energy.byte_prices`) that
    ends by `limit` (s; None: when `start` does).

    `model`, `horizon`: epochs, and how many, for the solver (None: no solver), which
    has what `prune` leaves of `time_limit` (s). Ctrl-C keeps the best so far.
    """
    began = time.monotonic()
    finish = verify(start).finish
    latest = max(finish, 0.0 if limit is None else limit)
    floor = energy_floor(start.topology, start.demand, prices)
    cost = schedule_price(start, prices)
    found = Thrift(start, finish, cost, cost, floor, "none", False, 0.0)
    try:
        found = _better(found, start, "prune", prices, latest)
        left = time_limit - (time.monotonic() - began)
        if model is not None and horizon and left > 0 and not found.meets_floor:
            found = _solved(found, prices, latest, model, horizon, left, seed, watch)
    except KeyboardInterrupt:
        found = dataclasses.replace(found, interrupted=True)
    return dataclasses.replace(
        found,
        least=found.least or found.meets_floor,
        seconds=time.monotonic() - began,
    )


def meets(schedule: Schedule, prices: Float[np.ndarray, " link"], floor: float) -> bool:
    """Whether a schedule costs no more than its floor, J."""
    return schedule_price(schedule, prices) <= floor * (1 + _SAME)


def _better(
    found: Thrift,
    other: Schedule,
    step: Step,
    prices: Float[np.ndarray, " link"],
    latest: float,
    least: bool = False,
) -> Thrift:
    """`other` where it is right, in time and cheaper; `least`: no other is cheaper."""
    other = prune(other)
    cost = schedule_price(other, prices)
    if cost > found.joules * (1 - _SAME):
        cheap = cost <= found.joules * (1 + _SAME)
        return dataclasses.replace(found, least=found.least or (least and cheap))
    try:
        finish = verify(other).finish
    except Violation:
        return found
    if finish > latest * (1 + _SAME):
        return found
    return dataclasses.replace(
        found, schedule=other, finish=finish, joules=cost, step=step, least=least
    )


def _solved(
    found: Thrift,
    prices: Float[np.ndarray, " link"],
    latest: float,
    model: EpochModel,
    horizon: int,
    time_limit: float,
    seed: int,
    watch: Watch | None,
) -> Thrift:
    """What a solver finds in as many epochs."""
    given = found.schedule
    topology, demand = given.topology, given.demand
    if demand.collective == "all_reduce":
        return found
    if demand.reduces:
        topology, demand = spread_of(topology, demand)
    single = bool((demand.wanted.sum(axis=1) <= 1).all())
    if not single and not np.allclose(demand.size, model.chunk, rtol=1e-9):
        return found
    if single:
        choices = flow_count(topology, demand, model, horizon)
    else:
        wanted = demand.source, demand.wanted
        choices = reach(topology, *wanted, model.hop, horizon).choices
    if choices > _MOST_CHOICES:
        return found
    cost = prices / max(float(prices.mean()), 1e-300)
    if single:
        step, answer = "lp", lp(
            topology, demand, model, low=horizon, high=horizon, link_cost=cost,
            time_limit=time_limit, watch=watch,
        )  # fmt: skip
    else:
        step, answer = "milp", milp(
            topology, demand, model, horizon, objective="cost",
            link_cost=cost, time_limit=time_limit, seed=seed, watch=watch,
        )  # fmt: skip
    if answer.schedule is None:
        return found
    timed = run_epochs(answer.schedule, model, parts=single)
    if given.demand.reduces:
        timed = reduction(given.topology, given.demand, timed)
    proved = answer.status == "optimal"
    return _better(found, timed, step, prices, latest, proved)
