"""Power over time of a served trace."""

import numpy as np

from ...power_time import Boards, PowerCurve, Smoothed, Smoothing, smoothed
from .._deployment import Deployment
from .._step.table import StepCosts
from .simulation import Outcome
from .trace import Trace


def drawn_power(
    deployment: Deployment,
    costs: StepCosts,
    trace: Trace,
    runs: list[Outcome],
    smooth: Smoothing | None,
) -> Smoothed:
    """What all boards draw from the first request to the end of the last, smoothed as
    asked for: those of a replica run its steps together and wait between them."""
    idle = float(deployment.server(costs).idle)
    first, last = float(trace.arrival[0]), max(float(x.end) for x in runs)
    boards = [
        Boards(_curve(run, idle, first, last), deployment.plan.tp) for run in runs
    ]
    how = Smoothing() if smooth is None else smooth
    limit = deployment.setting.power_limit
    return smoothed(boards, how, deployment.card.values["tdp"], limit, idle)


def _curve(run: Outcome, idle: float, first: float, last: float) -> PowerCurve:
    """Power of a board of one replica: the mean of every turn, `idle` W between."""
    start, time, steps, energy = (
        np.asarray(getattr(run.turns, name), float)[: run.taken]
        for name in ("start", "time", "steps", "energy")
    )
    taken = time * steps
    ends = np.append(start[1:], last)
    edges = np.column_stack([start, np.minimum(start + taken, ends)]).ravel()
    power = np.divide(energy, taken, out=np.full(len(start), idle), where=taken > 0)
    watts = np.column_stack([power, np.full(len(start), idle)]).ravel()
    edges = np.maximum.accumulate(np.concatenate([[first], edges, [last]]))
    return PowerCurve(edges - first, np.append(idle, watts))
