"""Second stage: of schedules that end as soon, the one that takes least energy."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...hardware import GpuSpec
from .._energy.energy import byte_prices
from .._energy.energy_search import least_energy, priced
from .._energy.frontier import Front, Goal, frontier, pick
from .._energy.idle import memory_price
from .._exact.solver import Solving
from .attempts import Watch
from .search import Plan, Search, rescheduled


def second_stage(
    plan: Plan, goal: Goal | float, gpu: GpuSpec | None, search: Search, watch: Watch
) -> tuple[Plan, Front | None]:
    """The plan that the objective prefers, and the front that it was chosen from, if
    the finish alone does not decide."""
    if plan.interrupted:
        return plan, None
    if goal == "time" or gpu is None:
        memory = None if gpu is None else memory_price(gpu)
        return leaner(plan, byte_prices(plan.schedule.topology, memory)), None
    stage = "finish against energy"
    watch(stage, None)
    how = Solving(
        time_limit=search.limit,
        seed=search.seed,
        watch=lambda progress: watch(stage, progress),
    )
    front = frontier(plan.schedule, gpu, how, model=plan.model)
    best, other = pick(front, goal), plan
    if best.schedule is not plan.schedule:
        other = rescheduled(plan, best.schedule)
    return dataclasses.replace(other, interrupted=front.interrupted), front


def leaner(plan: Plan, prices: Float[np.ndarray, " link"]) -> Plan:
    """The plan without what nobody needs, at `prices` (J/B of each link) cheaper and no
    later, in epochs neither; the plan itself if it has nothing of that kind."""
    found = least_energy(priced(plan.schedule, prices), prices, limit=plan.finish)
    if found.schedule is plan.schedule:
        return dataclasses.replace(plan, interrupted=found.interrupted)
    other = rescheduled(plan, found.schedule)
    before, after = plan.schedule.epochs, other.schedule.epochs
    if before is not None and (after is None or after > before):
        return plan
    return dataclasses.replace(other, interrupted=found.interrupted)
