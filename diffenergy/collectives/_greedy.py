"""`greedy`: a schedule by randomised list scheduling, for every collective.

Blocks with several takers are scheduled on the time-expanded network, in epochs or in
continuous time; blocks with one taker by queues in continuous time. Sums are what
spreads on the reversed machine, reversed in time; an all-reduce spreads each sum as
soon as it is there. The schedule is then re-timed with real rates and latencies.
"""

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Int

from ._demand import Demand
from ._demands import check_reachable
from ._list_schedule import Aim, Plan, Problem, lanes, list_schedule
from ._queues import Planned, Queues, Requests, balanced_paths
from ._routes import (
    Clock,
    EpochModel,
    distances,
    epoch_clock,
    epoch_model,
    second_clock,
)
from ._schedule import Schedule, Sends
from ._simulate import prune, retime
from ._time_reversal import reversed_in_time, spread_of
from ._topology import Topology

_REPLAYS: Final = 4
"""Most times that it is timed again."""
_MOST_PLANNED: Final = 1_000_000
"""(block, link) pairs of all batches together up to which paths are planned."""
_QUEUES: Final = 3
"""Batches with free queues where paths are planned too."""
_WAYS: Final = 12
_MOST_TRIED: Final = 200_000
"""Most sets of paths of which every other batch takes the best, and most (block, link)
pairs of them together,"""
_OFF: Final = 0.5
"""begun from prices that are off by up to this share."""
_ORDERS: Final = 3
"""Schedules along them."""
_DIRECT, _RELAYED, _QUEUED, _PLANNED = 5e-5, 1.4e-4, 5e-5, 5e-6
"""s of an idle core for each wanted block in 16 restarts, without and with switches, in
a queue, and for each link of planned paths (16 to 128 GPUs: within a factor of 3)."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to search: batches of restarts, from `seed` on, as long as they take
    less than `work` (s of an idle core, by what has to be sent). One seed gives one
    answer unless time is up at `ends` (of `time.monotonic`)."""

    batches: int = 8
    restarts: int = 16
    seed: int = 0
    work: float = math.inf
    ends: float = math.inf


def greedy(
    topology: Topology,
    demand: Demand,
    tau: float | None = None,
    bound: int | float = 0.0,
    effort: Effort | None = None,
) -> Schedule:
    """The best schedule of randomised list scheduling; stops at `bound`.

    Args:
        tau: length of an epoch, s; None to work in continuous time. Demands with one
            taker a block always are.
        bound: least finish possible, in epochs if `tau` is given, else in s.

    Raises:
        ValueError: a block cannot reach one of its takers.
    """
    effort = effort or Effort()
    check_reachable(topology, demand)
    model = None
    if tau is not None and not demand.single:
        model = epoch_model(topology, float(demand.size.max()), tau)
    best: tuple[float, Sends] | None = None
    spent = 0.0
    for batch in range(effort.batches):
        # batches of different seeds never coincide
        seed = effort.seed * effort.batches + batch
        limit = np.inf if best is None else best[0]
        if demand.single:
            candidate = _queue_batch(topology, demand, batch, seed, limit)
        else:
            aim = Aim(effort.restarts, seed, limit, float(bound))
            candidate = _list_batch(topology, demand, model, aim)
        if candidate is not None and (best is None or candidate[0] < best[0]):
            best = candidate
        if best is not None and best[0] <= bound * (1 + 1e-9):
            break
        spent += _batch_work(topology, demand, batch)
        late = spent > effort.work or time.monotonic() > effort.ends
        if late and best is not None:
            break
    if best is None:
        raise ValueError(
            f"`demand` was not met on `topology` {topology.name} by list scheduling; "
            "use another method."
        )
    if demand.single:
        return retime(Schedule(topology, demand, best[1]))
    epochs = round(best[0]) if model else None
    return _retime_while_earlier(
        prune(retime(Schedule(topology, demand, best[1], tau, epochs)))
    )


def _batch_work(topology: Topology, demand: Demand, batch: int) -> float:
    """Estimated work of a batch (s of an idle core)."""
    wishes, relays = float(demand.wanted.sum()), not bool(topology.stores.all())
    if not demand.single:
        return wishes * (_RELAYED if relays else _DIRECT)
    pairs = wishes * len(topology.links)
    planned = 0 < batch <= round(_MOST_PLANNED / max(1, pairs))
    return wishes * _QUEUED + planned * pairs * _PLANNED


def _retime_while_earlier(schedule: Schedule) -> Schedule:
    """Replayed while that helps: what arrives first, and what feeds a way out of a
    switch, can change with the times."""
    for _ in range(_REPLAYS):
        again = retime(schedule)
        if not again.last_end < schedule.last_end * (1 - 1e-9):
            break
        schedule = again
    return schedule


def _queue_batch(
    topology: Topology, demand: Demand, batch: int, seed: int, limit: float
) -> tuple[float, Sends] | None:
    """Best of queues in continuous time and, after the first batch, of schedules along
    paths that share the links out evenly, if those can end before `limit`: finish and
    sends in s."""
    live = np.flatnonzero(demand.wanted.any(1))
    requests = Requests(
        demand.source[live], demand.wanted[live].argmax(1), demand.size[live]
    )
    planned = round(_MOST_PLANNED / max(1, len(live) * len(topology.links)))
    plans: list[Plan] = []
    if 0 < batch <= planned:
        plans += _along_paths(topology, requests, seed, limit)
    if batch < _QUEUES or batch > planned:
        plans.append(Queues(topology, requests, seed).plan())
    if not plans:
        return None
    best = min(plans, key=lambda plan: plan.finish)
    best = dataclasses.replace(best, block=live[best.block])
    return best.finish, _sends(demand, best)


def _along_paths(
    topology: Topology, requests: Requests, seed: int, limit: float
) -> Iterator[Plan]:
    """Schedules along the best of some sets of paths, if it can end before `limit`."""
    rng = np.random.default_rng([seed, len(requests.size)])
    many = _MOST_TRIED // (len(requests.size) * len(topology.links))
    tries, off = (1, 0.0) if seed % 2 else (min(max(many, 1), _WAYS), _OFF)
    choices = []
    for _ in range(tries):
        paths = balanced_paths(topology, requests, rng, off)
        work = np.zeros(len(topology.links))
        for path, size in zip(paths, requests.size, strict=True):
            work[path] += size / topology.rates[path]
        choices.append((float(work.max()), float(work.sum()), paths))
    least, _, paths = min(choices)
    if least < limit:
        for _ in range(_ORDERS):
            yield Planned(topology, requests, paths, rng).plan(limit)


def _list_batch(
    topology: Topology, demand: Demand, model: EpochModel | None, aim: Aim
) -> tuple[float, Sends] | None:
    """One batch: finish (epochs or s) and sends in s, as the clock has them."""
    unit = model.tau if model else 1.0
    way_in, sends = None, list[Sends]()
    if demand.reduces:
        half = aim
        if demand.collective == "all_reduce":
            half = dataclasses.replace(aim, least=0.0)
        turned = spread_of(topology, demand)
        way_in = _spread(*turned, model, half)
        if way_in is None:
            return None
        length = way_in.finish * unit
        spread = _drop_dead_ends(Schedule(*turned, _sends(turned[1], way_in, unit)))
        sends = [reversed_in_time(spread.sends, length)]
        if demand.collective != "all_reduce":
            return way_in.finish, sends[0]
    plan = _spread(topology, demand, model, aim, way_in)
    if plan is None:
        return None
    sends.append(_sends(demand, plan, unit, len(sends)))
    return max(plan.finish, way_in.finish if way_in else 0.0), Sends.joined(sends)


def _drop_dead_ends(spread: Schedule) -> Schedule:
    """Without copies that a GPU got for others and passed to none: turned round, they
    would be sums without summands."""
    sends, wanted = spread.sends, spread.demand.wanted
    begin, target = sends.block * len(spread.topology.nodes), spread.targets
    useful = wanted[sends.block, target] | ~spread.topology.stores[target]
    passed = np.isin(begin + target, begin + spread.sources)
    return spread if (useful | passed).all() else prune(spread)


def _spread(
    topology: Topology,
    demand: Demand,
    model: EpochModel | None,
    aim: Aim,
    way_in: Plan | None = None,
) -> Plan | None:
    """Blocks spread from where they are, after the `way_in` of an all-reduce from when
    the sum is there, each link once it has carried its last summand."""
    largest, count = float(demand.size.max()), len(demand.size)
    clock = second_clock(topology, largest)
    if model is not None:
        clock = epoch_clock(epoch_model(topology, largest, model.tau))
    there, used = np.zeros(count), np.zeros(len(topology.links))
    if way_in is not None:  # turned round: its first sends are the last
        there[:], used[:] = way_in.finish, way_in.finish
        np.minimum.at(there, way_in.block, way_in.start)
        np.minimum.at(used, way_in.link, way_in.start)
        there, used = way_in.finish - there, way_in.finish - used
    release = np.full((len(topology.nodes), count), np.inf)
    release[demand.source, np.arange(count)] = there
    free = lanes(clock, count) + used[:, None]
    useful = _useful(topology, clock, demand.source, demand.wanted)
    return list_schedule(
        Problem(topology, clock, release, demand.wanted.T, useful, free), aim
    )


def _useful(
    topology: Topology,
    clock: Clock,
    source: Int[np.ndarray, " block"],
    wanted: Bool[np.ndarray, "block node"],
) -> Bool[np.ndarray, "node block"]:
    """GPUs that want a block, or on a quickest path to one that does."""
    useful = wanted.T.copy()
    others = topology.stores & ~wanted.all(0)
    if useful[topology.gpus].sum() >= (len(topology.gpus) - 1) * len(source):
        return useful
    away = distances(topology, clock)
    for node in np.flatnonzero(others):
        through = away[source, node][:, None] + away[node]
        on = (through <= away[source] * (1 + 1e-9)) & wanted
        useful[node] |= on.any(1)
    return useful


def _sends(demand: Demand, plan: Plan, unit: float = 1.0, phase: int = 0) -> Sends:
    """Sends of a plan in s; `unit`: s in a unit of its clock."""
    start, end, size = plan.start * unit, plan.end * unit, demand.size[plan.block]
    phases = np.full(len(plan.block), phase)
    return Sends(plan.block, plan.link, start, end, size, phases)
