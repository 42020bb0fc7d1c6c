"""Settings that a plan better than a known one may use; the others need no search."""

import numpy as np
from jaxtyping import Bool, Float

from .._problem.problem import Problem
from .._problem.totals import TIE, listed, stage_slope, stage_time
from .hulls import Line


def price_of_time(line: Line, most_time: float) -> float:
    """Energy that a second is worth at the time limit, from the bound line (W)."""
    if not np.isfinite(most_time) or len(line.x) < 2:
        return 0.0
    i = int(np.clip(np.searchsorted(line.x, most_time), 1, len(line.x) - 1))
    slope = (line.y[i] - line.y[i - 1]) / (line.x[i] - line.x[i - 1])
    return float(max(-slope, 0.0))


def worthwhile(
    problem: Problem,
    launches: Float[np.ndarray, "kernel setting"],
    energy: float,
    most_time: float,
    price: float,
) -> Bool[np.ndarray, "kernel setting"]:
    """Settings that a plan with less than `energy` within `most_time` may use.

    `launches` is a plan that is near the optimum. Energy + `price` x (time - limit) of
    a better plan lies below `energy`. With a tangent of each stage time that is a sum
    over kernels, each of which has a cheapest setting; one whose cost above that
    exceeds what is left of `energy` above the sum of the cheapest is in no better plan.
    """
    kernel, setting = np.nonzero(launches)
    gpu = listed(problem, kernel, setting, launches[kernel, setting]).time
    slope = stage_slope(gpu, problem.host_time)
    rate = problem.wait_power + price
    rest = np.sum(rate * (stage_time(gpu, problem.host_time) - slope * gpu))
    if np.isfinite(most_time):
        rest -= price * most_time
    per_second = (rate * slope - problem.wait_power)[problem.stage, None]
    usable = problem.usable
    finite_time = np.where(usable, problem.time, 0.0)
    each = problem.count[:, None] * (problem.energy + per_second * finite_time)
    each = np.where(usable, each, np.inf)
    least = each.min(1, keepdims=True)
    left = energy - float(least.sum() + rest)
    return each - least <= left + TIE * energy
