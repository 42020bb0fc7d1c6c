"""`Plan` and `Task`: what was found, and all between it and a `Search`."""

import dataclasses
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from ..results import Infeasible
from ..search import Answer, Solving
from ._baselines import Baselines
from ._bounds import epoch_bound, second_bound
from ._demand import Demand
from ._dependencies import whole
from ._epoch_counts import flow_epochs, whole_epochs
from ._epoch_schedule import SolverResult
from ._request import Search
from ._routes import EpochModel, epoch_length, epoch_model
from ._schedule import Schedule
from ._time_reversal import spread_of
from ._topology import Topology
from ._verify import verify

Watch = Callable[[str, Answer | None], None]
"""Called with what is being tried, and with where its solver stands."""

_MET: Final = 1e-9
"""Relative distance from a bound at which it is met."""
COARSE: Final = 0.02
"""Share of the bound above which epochs may be what holds a schedule up."""
_CONTINUOUS: Final = "continuous"
"""Instead of a length: no epochs."""
_ODD: Final = 1e4
"""Factor between an epoch and the usual one that makes no sense any more."""
_SHORT: Final = 0.1
"""s that a solver has at least."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A verified schedule in continuous time, and what is known about it.

    `method`, `solver`, `solver_seconds`, `work`: what found it, wall time in solvers,
    what they did in s of an idle core. `finish`,
    `bound`: s. `schedule.epochs` of `model`; of blocks with one taker what a flow over
    the same ways takes (`flow_epochs`). `fewest`: epochs of any schedule found, at
    least `epoch_bound`. `standard`: the standard
    algorithms, where they were tried. `interrupted`: by Ctrl-C, `out_of_time`: by wall
    time, so that this is the best so far.
    """

    schedule: Schedule
    finish: float
    bound: float
    method: str
    model: EpochModel | None = None
    epoch_bound: int | None = None
    fewest: int | None = None
    solver: str | None = None
    solver_seconds: float = 0.0
    standard: Baselines | None = None
    interrupted: bool = False
    out_of_time: bool = False
    work: float = 0.0

    @property
    def gap(self) -> float:
        """finish / bound - 1, in continuous time."""
        return float(max(self.finish / self.bound - 1, 0.0)) if self.bound else np.inf

    @property
    def certified(self) -> bool:
        """Whether no schedule is shorter, in epochs or in continuous time."""
        return self.least_epochs or self.least_time

    @property
    def least_time(self) -> bool:
        """Whether no schedule ends sooner in continuous time."""
        return self.gap <= _MET

    @property
    def least_epochs(self) -> bool:
        """Whether no schedule takes fewer epochs."""
        epochs, bound = self.fewest, self.epoch_bound
        return epochs is not None and bound is not None and epochs <= bound


def in_epochs(schedule: Schedule, model: EpochModel | None) -> Schedule:
    """The schedule with the number of epochs that it takes: blocks with one taker as a
    flow, others whole; None for an all-reduce, and without a model."""
    demand, epochs = schedule.demand, None
    if model is not None and whole(schedule).all():
        count = flow_epochs if demand.single else whole_epochs
        epochs = count(schedule, model)
    tau = model.tau if model is not None and epochs is not None else None
    return dataclasses.replace(schedule, epoch=tau, epochs=epochs)


def rescheduled(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with another schedule of its demand, verified, its epochs counted."""
    schedule = in_epochs(schedule, plan.model)
    return dataclasses.replace(plan, schedule=schedule, finish=verify(schedule))


def better(plan: Plan, best: Plan, in_time: bool) -> bool:
    """Whether `plan` beats `best`: by finish, or first by epochs unless `in_time`."""
    mine, theirs = plan.schedule.epochs, best.schedule.epochs
    if not in_time and mine is not None and theirs is not None and mine != theirs:
        return mine < theirs
    return plan.finish < best.finish * (1 - _MET)


class Task:
    """What all attempts share. Of a reduction `machine` and `spread` are those on
    which its blocks spread; of an all-reduce there are none. `model`: epochs, of which
    `least` are needed; `bound`: s that are; `seconds`: in solvers; `work`: done so far,
    s of an idle core."""

    def __init__(self, topology: Topology, demand: Demand, search: Search) -> None:
        self.topology, self.demand, self.search = topology, demand, search
        self.ends = time.monotonic() + search.wall_limit
        self.cut = False
        self.single = single = demand.single
        self.machine: Topology | None = topology
        self.spread: Demand | None = demand
        if demand.collective == "all_reduce":
            self.machine = self.spread = None
        elif demand.reduces:
            self.machine, self.spread = spread_of(topology, demand)
        self.model: EpochModel | None = None
        self.least: int | None = None
        even = float(np.ptp(demand.size)) <= _MET * float(demand.size.max())
        if (even or single) and search.epoch != _CONTINUOUS:
            chunk = float(demand.size.max())
            tau = _epoch(topology, chunk, search.epoch or "fastest")
            self.model = epoch_model(self.machine or topology, chunk, tau)
            model = _both_ways(topology, self.model, demand)
            self.least = epoch_bound(demand, topology, model, whole=not single)
        # The linear program may cut blocks with one taker into parts.
        cut = single and search.method in ("auto", "lp")
        self.bound = second_bound(demand, topology, whole=not cut)
        self.best: Plan | None = None
        self.standard: Baselines | None = None
        self.seconds = self.work = 0.0

    def left(self) -> float:
        """Work left within the limit (s of an idle core)."""
        return max(self.search.limit - self.work, 0.1)

    @property
    def out_of_time(self) -> bool:
        """Whether the wall time is over."""
        self.cut = self.cut or time.monotonic() >= self.ends - _SHORT
        return self.cut

    def solving(self) -> Solving:
        """Limits of a solver: the work and the wall time left."""
        seconds = max(self.ends - time.monotonic(), _SHORT)
        return Solving(seconds, self.search.seed, work=self.left())

    def spend(self, result: SolverResult) -> None:
        """Adds the time and work of a solver."""
        self.seconds, self.work = self.seconds + result.seconds, self.work + result.work

    def plan(self, schedule: Schedule, method: str, solver: str | None = None) -> Plan:
        """A `Plan` of a verified schedule with the bounds so far."""
        finish, epochs = verify(schedule), schedule.epochs
        return Plan(
            schedule, finish, self.bound, method, self.model, self.least, epochs, solver
        )

    @property
    def in_time(self) -> bool:
        """Whether the finish comes before epochs."""
        return self.search.epoch in (None, _CONTINUOUS) and self.search.horizon is None

    def done(self, best: Plan) -> bool:
        """Whether there is nothing left to gain."""
        if best.gap <= max(self.search.gap, _MET):
            return True
        if self.search.method == "auto" and self.standard is None:
            return False  # standard algorithms cost next to nothing to try
        return best.least_epochs and (not self.in_time or best.gap <= COARSE)

    def check_horizon(self) -> None:
        """Refuse a horizon that the bound rules out."""
        horizon = self.search.horizon
        if horizon is None:
            return
        if self.model is None or self.least is None:
            raise ValueError(
                f"`horizon` is {horizon}, but there are no epochs for blocks of unlike "
                "size; leave it out."
            )
        if horizon < self.least:
            raise Infeasible(
                f"`horizon` is {horizon} epochs of {self.model.tau:.6g} s; at least "
                f"{self.least} are needed (proven); give more."
            )

    def check_within(self, best: Plan) -> None:
        """Refuse what takes longer than the horizon."""
        horizon, epochs = self.search.horizon, best.fewest
        if horizon is None or self.model is None:
            return
        if epochs is None:
            epochs = int(np.ceil(best.finish / self.model.tau - _MET))
        if epochs > horizon:
            low = best.epoch_bound or self.least
            proven = " (proven)" if low is not None and low > horizon else ""
            raise Infeasible(
                f"`horizon` is {horizon} epochs of {self.model.tau:.6g} s; at least "
                f"{low} are needed{proven}, and the best schedule found takes {epochs}."
            )


def _epoch(topology: Topology, chunk: float, length: str | float) -> float:
    """Length of an epoch (s)."""
    if isinstance(length, str):
        return epoch_length(topology, chunk, length)
    usual = epoch_length(topology, chunk)
    if not usual / _ODD <= length <= usual * _ODD:
        raise ValueError(
            f"`epoch` is {length:g} s; a chunk takes {usual:.6g} s on the fastest "
            f"link: allowed are {usual / _ODD:.3g} to {usual * _ODD:.3g} s."
        )
    return length


def _both_ways(topology: Topology, model: EpochModel, demand: Demand) -> EpochModel:
    """Of an all-reduce the quicker hops of the machine and its reversal, which have
    their free exits at other links."""
    if demand.collective != "all_reduce":
        return model
    other = epoch_model(topology.reversed(), model.chunk, model.tau)
    return dataclasses.replace(model, hop=np.minimum(model.hop, other.hop))
