"""`find_schedule`: a verified schedule for a demand, with a lower bound beside it.

`auto` stops as soon as a bound is met, in epochs or in continuous time:

1. bounds (`bounds`);
2. randomised list scheduling, of blocks with one taker in continuous time (`greedy`);
3. the standard algorithms (`baselines`);
4. integer search for a symmetric schedule at the bound, bound + 1, ..., then without
   symmetry (`milp`); for blocks with one taker the linear program (`lp`);
5. where the gap is above 2 % and no epochs are asked for: list scheduling in continuous
   time, and the linear program in short epochs.

Whatever is found is run in continuous time as early as its order allows, sends that
nobody needs are left out, and independent code verifies it.
"""

import dataclasses

from ...results import Infeasible
from .._demand.demand import Demand
from .._exact.solver import Answer
from .._machine.topology import Topology
from .attempts import Watch, attempts
from .search import Plan, Search, better, make_task


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
    task = make_task(topology, demand, search)
    task.check_horizon()
    best: Plan | None = None
    try:
        for found in attempts(task, watch):
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
            )
            task.best = best
            if task.done(best):
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        best = dataclasses.replace(best, interrupted=True)
    if best is None:
        task.check_horizon()
        raise Infeasible(
            f"method {search.method} found no schedule in {search.limit:g} s; "
            f"none takes less than {task.bound:.6g} s; take method auto or greedy, or "
            "a longer --time-limit."
        )
    task.check_within(best)
    return best
