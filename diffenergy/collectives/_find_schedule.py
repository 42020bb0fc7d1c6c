"""`find_schedule`: a verified schedule for a demand, with a lower bound beside it.

`auto` stops as soon as a bound is met, in epochs or in continuous time:

1. bounds (`bounds`);
2. randomised list scheduling, of blocks with one taker in continuous time (`greedy`);
3. the standard algorithms (`baselines`);
4. of an all-reduce the best reduce-scatter and the best all-gather (`attempts.halves`);
5. integer search at the bound, bound + 1, ... (`milp`); for blocks with one taker the
   linear program (`lp`);
6. where the gap is above 2 % and no epochs are asked for: list scheduling in continuous
   time, and the linear program in short epochs.

Whatever is found is run in continuous time as early as its order allows, sends that
nobody needs are left out, and independent code verifies it.

`second_stage`: the schedule that another objective than time prefers.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ..hardware import GpuSpec
from ..results import Infeasible
from ..search import Answer, Solving
from ._baselines import MOST_SENDS, baselines
from ._bounds import cut_bound, epoch_bound
from ._demand import Demand
from ._duals import flow_bound
from ._epoch_schedule import reach
from ._greedy import Effort, greedy
from ._least_energy import Front, Goal, frontier, pick
from ._lp import lp
from ._milp import least_finish, rounds
from ._plan import COARSE, Plan, Search, Task, Watch, better, in_epochs, rescheduled
from ._routes import EpochModel, epoch_length, epoch_model
from ._schedule import Schedule, Sends
from ._simulate import prune, retime, run_epochs
from ._time_reversal import reduction
from ._topology import Topology

# --- Attempts at a schedule, one after the other, as the methods make them.

_CHOICE: Final = 2e-5
"""s of an idle core to build the integer program and try a jump, for each (block, link,
epoch); where the work left does not suffice for that, `auto` leaves it out."""
_MOST_FLOWS: Final = 1e5
"""(source, link, epoch) above which `auto` leaves the linear program out."""
_MOST_SENDS: Final = 6_000
"""Sends above which standard algorithms are not tried on what is certain anyway."""
_MOST_NODES: Final = 300
"""Nodes above which cuts are not looked for (one max-flow for each GPU)."""
_GREEDY_SHARE: Final = 0.3
"""Of the work for list scheduling before a solver has its turn."""
_MOST_FINE: Final = 2e4
"""The same for short epochs."""
_FINER: Final = 4
"""Short epochs in one of the fastest link."""
_FIRST_SHARE: Final = 0.5
"""Of the work left for the reduce-scatter of an all-reduce."""
_SOLVER: Final = "highs"

Finder = Callable[[Topology, Demand, Search, Watch], Plan]
"""Plans a half of an all-reduce."""


def attempts(task: Task, find: Finder, watch: Watch) -> Iterator[Plan]:
    """Schedules, one after the other, as the method makes them; `find` plans halves."""
    method = task.search.method
    only = {
        "greedy": _list_schedules,
        "milp": _integer_search,
        "lp": _linear_program,
        "rounds": _round_search,
    }
    if method in only:
        yield from only[method](task, watch)
        return
    yield from _list_schedules(task, watch)
    yield from _standard_algorithms(task, watch)
    yield from _raise_bound(task, watch)
    if task.demand.collective == "all_reduce":
        yield _plan_halves(task, find, watch)
    if task.single and task.model is not None:
        if _flow_count(task, task.model) <= _MOST_FLOWS:
            yield from _linear_program(task, watch)
    if task.single:
        yield from _fine_linear_program(task, watch)
    if not task.single and task.spread is not None and task.model is not None:
        yield from _integer_search(task, watch)
    coarse = task.best is not None and task.best.gap > COARSE
    if task.in_time and not task.single and task.model is not None and coarse:
        watch("list scheduling in continuous time", None)
        schedule = _greedy(task, None, task.bound)
        yield task.plan(in_epochs(schedule, task.model), "greedy")


def _list_schedules(task: Task, watch: Watch) -> Iterator[Plan]:
    """List scheduling; its epochs, of single-taker blocks those of a flow."""
    watch("list scheduling", None)
    if not task.single and task.model is not None and task.least is not None:
        yield task.plan(_greedy(task, task.model.tau, task.least), "greedy")
        return
    schedule = _greedy(task, None, task.bound)
    yield task.plan(in_epochs(schedule, task.model), "greedy")


def _standard_algorithms(task: Task, watch: Watch) -> Iterator[Plan]:
    """Best of the standard algorithms, which may be optimal on regular machines."""
    watch("standard algorithms", None)
    certain = task.best is not None and task.best.certified
    most_sends = _MOST_SENDS if certain else MOST_SENDS
    task.standard = baselines(task.topology, task.demand, most_sends)
    best: Plan | None = None
    for name, baseline in task.standard.algorithms.items():
        plan = task.plan(in_epochs(baseline.schedule, task.model), name)
        worse = best is not None and not better(plan, best, task.in_time)
        best = best if worse else plan
    if best is not None:
        yield best


def _raise_bound(task: Task, watch: Watch) -> Iterator[Plan]:
    """The bound by prices of the links for blocks with one taker, else by cuts."""
    if task.best is None:
        return
    if task.single:
        watch("bound by link prices", None)
        # not `whole`: the linear program may cut blocks up, and would end below a bound
        # for whole ones
        bound = flow_bound(task.demand, task.topology, whole=False, how=task.solving())
    elif len(task.topology.nodes) <= _MOST_NODES:
        watch("bound by cuts", None)
        bound = cut_bound(task.demand, task.topology)
    else:
        return
    if bound > task.bound:
        task.bound = float(bound)
        yield dataclasses.replace(task.best, bound=task.bound)


def _greedy(task: Task, tau: float | None, bound: int | float) -> Schedule:
    share = 1.0 if task.search.method == "greedy" else _GREEDY_SHARE
    limit = task.left() * share
    effort = Effort(seed=task.search.seed, work=limit, ends=task.ends)
    return greedy(task.topology, task.demand, tau, bound, effort)


def _integer_search(task: Task, watch: Watch) -> Iterator[Plan]:
    """Integer search for fewer epochs than the best so far."""
    model, machine, spread = _epochs_of(task, "milp")
    if task.best is not None and task.best.least_epochs:
        return
    fewest = task.best.fewest if task.best is not None else None
    low, high = task.least, task.search.horizon
    high = fewest - 1 if fewest is not None else high
    reached = reach(machine, spread.source, spread.wanted, model.hop, low or 0)
    if task.search.method == "auto" and reached.choices * _CHOICE > task.left():
        return
    how = _solving(task, watch, f"integer search from {low} epochs on")
    result = least_finish(machine, spread, model, how, low=low or 0, high=high)
    task.spend(result)
    if result.infeasible_at and task.least is not None:
        task.least = max(task.least, result.infeasible_at + 1)  # proven too short
        if task.best is not None:
            yield task.best
    if result.schedule is not None:
        yield _plan_of_epochs(task, result.schedule, model, "milp")


def _solving(task: Task, watch: Watch, stage: str) -> Solving:
    """A solver's limits: the work left."""
    watch(stage, None)
    return dataclasses.replace(
        task.solving(), watch=lambda progress: watch(stage, progress)
    )


def _plan_of_epochs(
    task: Task, schedule: Schedule, model: EpochModel, method: str
) -> Plan:
    """A schedule in epochs as one of the demand itself, as early as can be."""
    whole = prune(run_epochs(schedule, model))
    if task.demand.reduces:
        whole = retime(reduction(task.topology, task.demand, whole))
    return task.plan(whole, method, _SOLVER)


def _epochs_of(task: Task, method: str) -> tuple[EpochModel, Topology, Demand]:
    """Model, machine and demand that a search in epochs works on."""
    if task.machine is None or task.spread is None:
        raise ValueError(
            f"`method` is {method}, which has no model of an all_reduce; take auto or "
            "greedy, or plan reduce_scatter and all_gather one by one."
        )
    if task.model is None:
        raise ValueError(
            f"`method` is {method}, which needs chunks of one size; take auto or "
            "greedy."
        )
    return task.model, task.machine, task.spread


def _flow_count(task: Task, model: EpochModel) -> float:
    """Number of (source, link, epoch) in the linear program."""
    sources = len(np.unique(task.demand.source))
    horizon = epoch_bound(task.demand, task.topology, model, whole=False)
    return float(sources * len(task.topology.links) * horizon)


def _linear_program(task: Task, watch: Watch) -> Iterator[Plan]:
    """Linear program with horizons from the bound on."""
    model, machine, spread = _epochs_of(task, "lp")
    best = task.best.fewest if task.best is not None else None
    high = best if best is not None else task.search.horizon
    stage = f"linear program from {task.least} epochs on"
    schedule = _solve_linear(task, watch, stage, machine, spread, model, high)
    if schedule is not None:
        yield task.plan(schedule, "lp", _SOLVER)


def _fine_linear_program(task: Task, watch: Watch) -> Iterator[Plan]:
    """The linear program in epochs so short that parts of chunks hardly wait for
    them."""
    best, topology, demand = task.best, task.topology, task.demand
    if not task.in_time or best is None:
        return
    chunk = float(demand.size.max())
    fine = epoch_model(topology, chunk, epoch_length(topology, chunk) / _FINER)
    if best.gap <= COARSE or _flow_count(task, fine) > _MOST_FINE:
        return
    stage, high = "linear program in short epochs", int(best.finish / fine.tau) + 1
    schedule = _solve_linear(task, watch, stage, topology, demand, fine, high)
    if schedule is not None:
        # its short epochs are not those of the task
        whole = dataclasses.replace(schedule, epoch=None, epochs=None)
        yield task.plan(whole, "lp", _SOLVER)


def _solve_linear(
    task: Task,
    watch: Watch,
    stage: str,
    machine: Topology,
    spread: Demand,
    model: EpochModel,
    high: int | None,
) -> Schedule | None:
    """What the linear program finds in up to `high` epochs, in continuous time; the
    least epochs of the task's model are then known."""
    low = epoch_bound(task.demand, task.topology, model, whole=False)
    how = _solving(task, watch, stage)
    result = lp(machine, spread, model, how, low=low, high=high)
    task.spend(result)
    if result.schedule is None:
        return None
    least = result.schedule.epochs
    if model is task.model and result.status == "optimal" and least is not None:
        task.least = least
    return run_epochs(result.schedule, model, parts=True)


def _round_search(task: Task, watch: Watch) -> Iterator[Plan]:
    """Integer search in rounds of a few epochs."""
    model, machine, spread = _epochs_of(task, "rounds")
    how = _solving(task, watch, "rounds")
    result = rounds(machine, spread, model, how, high=task.search.horizon)
    task.spend(result)
    if result.schedule is not None:
        yield _plan_of_epochs(task, result.schedule, model, "rounds")


# --- halves of an all-reduce


def halves(demand: Demand) -> tuple[Demand, Demand]:
    """Reduce-scatter and all-gather that an all-reduce consists of."""
    home = np.zeros_like(demand.wanted)
    home[np.arange(len(home)), demand.source] = True
    return (
        dataclasses.replace(demand, collective="reduce_scatter", wanted=home),
        dataclasses.replace(
            demand, collective="all_gather", parts=np.zeros_like(demand.parts)
        ),
    )


def _plan_halves(task: Task, find: Finder, watch: Watch) -> Plan:
    """An all-reduce as a reduce-scatter and an all-gather, each planned by itself:
    integer search and the linear program know neither sums nor two phases at once, but
    each half is what spreads, on the reversed machine or on the machine itself. The
    all-gather then begins as soon as its data and links allow.

    Raises:
        KeyboardInterrupt: Ctrl-C came while a half was planned.
    """
    plans: list[Plan] = []
    for demand, share in zip(halves(task.demand), (_FIRST_SHARE, 1.0), strict=True):
        limit = task.left() * share
        search = dataclasses.replace(task.search, time_limit=limit, horizon=None)
        plan = find(task.topology, demand, search, watch)
        task.seconds += plan.solver_seconds
        task.work += plan.work
        task.cut = task.cut or plan.out_of_time
        if plan.interrupted:
            raise KeyboardInterrupt
        plans.append(plan)
    names = [f"{plan.schedule.demand.collective} ({plan.method})" for plan in plans]
    solvers = ", ".join(dict.fromkeys(x.solver for x in plans if x.solver))
    return task.plan(_join_halves(task, *plans), " + ".join(names), solvers or None)


def _join_halves(task: Task, first: Plan, second: Plan) -> Schedule:
    """Both halves one after the other, then every send as early as possible."""
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


# --- `find_schedule`


def silent(stage: str, progress: Answer | None) -> None:
    """A `Watch` that does nothing."""


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
        for plan in attempts(task, find_schedule, watch):
            epochs = [x.fewest for x in (plan, best) if x is not None]
            if best is None or better(plan, best, task.in_time):
                best = plan
            best = dataclasses.replace(
                best,
                fewest=min((n for n in epochs if n is not None), default=None),
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
    if plan.interrupted or goal == "time" or gpu is None:
        return plan, None
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
