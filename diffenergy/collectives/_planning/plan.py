"""`find_schedule`: a verified schedule for a demand, with a lower bound beside it.

`auto` stops as soon as a bound is met, in epochs or in continuous time:

1. bounds (`bounds`);
2. randomised list scheduling, of blocks with one taker in continuous time (`greedy`);
3. the standard algorithms (`baselines`);
4. of an all-reduce the best reduce-scatter and the best all-gather (`attempts.halves`);
5. integer search for a symmetric schedule at the bound, bound + 1, ..., then without
   symmetry (`milp`); for blocks with one taker the linear program (`lp`);
6. where the gap is above 2 % and no epochs are asked for: list scheduling in continuous
   time, and the linear program in short epochs.

Whatever is found is run in continuous time as early as its order allows, sends that
nobody needs are left out, and independent code verifies it.

`second_stage`: of schedules that end as soon, the one that takes least energy.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...hardware import GpuSpec
from ...results import Infeasible
from ...search import Answer, Solving
from .._demand.demand import Demand
from .._energy.energy import byte_prices, schedule_price
from .._energy.energy_search import SecondStage, least_energy
from .._energy.frontier import Front, Goal, frontier, pick
from .._energy.idle import memory_price
from .._machine.topology import Topology
from .attempts import attempts
from .search import Plan, Search, Task, Watch, better, rescheduled


def silent(stage: str, progress: Answer | None) -> None:
    """Nobody watches."""


def find_schedule(
    topology: Topology,
    demand: Demand,
    search: Search | None = None,
    watch: Watch = silent,
) -> Plan:
    """The best schedule that the method finds within its time.

    Ctrl-C ends the search with the best so far, if there is one.

    Raises:
        ValueError: a method or solver that does not fit the demand.
        Infeasible: nothing within `search.horizon`, or nothing in time.
    """
    search = search or Search()
    task = Task(topology, demand, search)
    task.check_horizon()
    best: Plan | None = None
    try:
        for found in attempts(task, find_schedule, watch):
            known = [x.fewest for x in (found, best) if x is not None]
            if best is None or better(found, best, task.in_time):
                best = found
            best = dataclasses.replace(
                best,
                fewest=min((n for n in known if n is not None), default=None),
                bound=task.bound,
                epoch_bound=task.least,
                solver_seconds=task.seconds,
                standard=task.standard,
                out_of_time=task.out_of_time,
                work=task.work,
            )
            task.best = best
            if best.out_of_time or task.done(best):
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        best = dataclasses.replace(best, interrupted=True)
    if best is None:
        task.check_horizon()
        raise Infeasible(
            f"method {search.method} found no schedule within {search.limit:g} s of "
            "an idle core; "
            f"none takes less than {task.bound:.6g} s; take method auto or greedy, or "
            "a longer --time-limit."
        )
    task.check_within(best)
    return best


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
        time_limit=search.wall_limit,
        work=search.limit,
        seed=search.seed,
        watch=lambda progress: watch(stage, progress),
    )
    front = frontier(plan.schedule, gpu, how, model=plan.model)
    best, other = pick(front, goal), plan
    if best.schedule is not plan.schedule:
        other = rescheduled(plan, best.schedule)
    late = plan.out_of_time or front.out_of_time
    how_ended = dict(interrupted=front.interrupted, out_of_time=late)
    return dataclasses.replace(other, **how_ended), front


def leaner(plan: Plan, prices: Float[np.ndarray, " link"]) -> Plan:
    """The plan without what nobody needs, at `prices` (J/B of each link) cheaper and no
    later, in epochs neither; the plan itself if it has nothing of that kind."""
    joules = schedule_price(plan.schedule, prices)
    start = SecondStage(plan.schedule, plan.finish, joules, floor=0.0)
    found = least_energy(start, prices)
    if found.schedule is plan.schedule:
        return dataclasses.replace(plan, interrupted=found.interrupted)
    other = rescheduled(plan, found.schedule)
    before, after = plan.schedule.epochs, other.schedule.epochs
    if before is not None and (after is None or after > before):
        return plan
    return dataclasses.replace(other, interrupted=found.interrupted)
