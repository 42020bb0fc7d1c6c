"""Second stage: of schedules that end as soon, the one that takes least energy."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from ...hardware._spec import GpuSpec
from .._exact.solver import Watch
from .._planning.search import Plan, rescheduled
from .energy_search import least_energy
from .frontier import Front, Goal, frontier, pick


def leaner(plan: Plan, prices: Float[np.ndarray, " link"]) -> Plan:
    """The plan without what nobody needs, at `prices` (J/B of each link) cheaper and no
    later, in epochs neither; the plan itself if it has nothing of that kind."""
    found = least_energy(plan.schedule, prices, limit=plan.finish)
    if found.schedule is plan.schedule:
        return dataclasses.replace(plan, interrupted=found.interrupted)
    other = rescheduled(plan, found.schedule)
    before, after = plan.schedule.epochs, other.schedule.epochs
    if before is not None and (after is None or after > before):
        return plan
    return dataclasses.replace(other, interrupted=found.interrupted)


def chosen(
    plan: Plan,
    gpu: GpuSpec,
    objective: Goal | float,
    time_limit: float,
    seed: int = 0,
    watch: Watch | None = None,
) -> tuple[Plan, Front]:
    """The plan that `objective` prefers on the front of finish time and energy."""
    front = frontier(
        plan.schedule,
        gpu,
        model=plan.model,
        time_limit=time_limit,
        seed=seed,
        watch=watch,
    )
    best = pick(front, objective)
    other = plan
    if best.schedule is not plan.schedule:
        other = rescheduled(plan, best.schedule)
    return dataclasses.replace(other, interrupted=front.interrupted), front


def front_rows(front: Front) -> list[dict[str, Any]]:
    """The front for JSON, by rising finish: `moved_j` of links and memory, `energy_j`
    with the GPUs that wait."""
    return [
        {"finish_s": p.finish, "moved_j": p.active, "energy_j": p.total}
        for p in front.trades
    ]
