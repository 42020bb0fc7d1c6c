"""What a finer schedule is compared with, at the same objective and limits."""

import dataclasses

from .._problem.plan import Infeasible, Objective, Plan
from .._problem.problem import Problem
from .solve import ANY, STRICT, Rules, solve


def baselines(
    problem: Problem, objective: Objective = STRICT, rules: Rules = ANY
) -> dict[str, Plan | None]:
    """Best single setting ("iteration") and best per stage ("phase").

    The limits are kept by the sum, whatever `rules.aggregation` says; changes between
    stages cost what `rules` says. `None` where nothing keeps the limits.
    """
    found: dict[str, Plan | None] = {}
    for granularity in ("iteration", "phase"):
        coarse = dataclasses.replace(
            rules, granularity=granularity, aggregation="global", per_launch=False
        )
        try:
            found[granularity] = solve(problem, objective, coarse)
        except Infeasible:
            found[granularity] = None
    return found
