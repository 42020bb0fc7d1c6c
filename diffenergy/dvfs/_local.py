"""Aggregation "local": every kernel keeps the limits by itself."""

import numpy as np
from jaxtyping import Float, Int

from ..physics import stage_slope, stage_time
from ..results import Infeasible
from ._free import restricted
from ._plan import Objective
from ._problem import (
    TIE,
    Problem,
    Total,
    by_stage,
    chosen,
    default_total,
    total,
    within_caps,
)


def keeping(problem: Problem, objective: Objective) -> Problem:
    """The problem with only those settings at which a kernel keeps the limits itself.

    For EDP and ED2P only the best of them is left. Raises `Infeasible` with the least
    slowdown that every kernel reaches, or the least power.
    """
    most = problem.default_time * (1 + objective.max_slowdown / 100) * (1 + TIE)
    allowed = problem.usable & (problem.time <= most[:, None])
    cap = objective.power_cap * (1 + TIE)
    power = problem.power
    allowed &= power <= cap
    if not np.all(allowed.any(1)):
        raise _infeasible(problem, objective, power)
    if objective.goal in ("edp", "ed2p"):
        value = objective.value(Total(problem.time, problem.energy))
        value = np.where(allowed, value, np.inf)
        allowed &= value == value.min(1, keepdims=True)
    return restricted(problem, allowed)


def leanest(
    problem: Problem, slowdowns: Float[np.ndarray, " limit"]
) -> tuple[
    Float[np.ndarray, " limit"],
    Float[np.ndarray, " limit"],
    Float[np.ndarray, " limit"],
]:
    """(time in s, energy and bound of it in J) with every kernel at its leanest setting
    within each slowdown (%) of its own.

    A tangent of the stage time says what waiting a second of a kernel saves. NaN where
    a kernel cannot keep the limit, a stage passes its cap or the sum the limit.
    """
    ratio = 1 + slowdowns / 100
    gpu = by_stage(problem, ratio[:, None] * problem.count * problem.default_time)
    choice, _ = _leanest_at(problem, ratio, gpu)
    # a second round, with the tangent at the times that the first one has chosen
    gpu = np.where(np.isfinite(gpu), chosen(problem, choice).time, gpu)
    choice, bound = _leanest_at(problem, ratio, gpu)
    time, energy = np.full((2, len(ratio)), np.nan)
    reachable = np.flatnonzero(np.isfinite(bound))
    spent = chosen(problem, choice[reachable])
    totals = total(problem, spent)
    limit = default_total(problem).time * ratio[reachable] * (1 + TIE)
    good = within_caps(problem, spent) & (totals.time <= limit)
    time[reachable[good]], energy[reachable[good]] = (
        totals.time[good],
        totals.energy[good],
    )
    return time, energy, bound


def _leanest_at(
    problem: Problem,
    ratio: Float[np.ndarray, " limit"],
    gpu: Float[np.ndarray, "limit stage"],
) -> tuple[Int[np.ndarray, "limit kernel"], Float[np.ndarray, " limit"]]:
    """Best settings for tangents at GPU times (s), and a bound of the energy (J)."""
    gpu = np.where(np.isfinite(gpu), gpu, 1.0)
    slope = stage_slope(gpu, problem.host_time)
    rest = stage_time(gpu, problem.host_time) - slope * gpu
    bound = rest @ problem.wait_power
    choice = np.empty((len(ratio), len(problem.kernels)), np.int64)
    for kernel, stage in enumerate(problem.stage):
        most = problem.default_time[kernel] * ratio * (1 + TIE)
        usable = problem.usable[kernel]
        time = np.where(usable, problem.time[kernel], 0.0)
        saved = (problem.wait_power[stage] * (1 - slope[:, stage]))[:, None]
        cost = problem.energy[kernel] - saved * time
        cost = np.where(usable & (time <= most[:, None]), cost, np.inf)
        choice[:, kernel] = cost.argmin(1)
        bound = bound + problem.count[kernel] * cost.min(1)
    return choice, bound


def _infeasible(
    problem: Problem, objective: Objective, power: Float[np.ndarray, "kernel setting"]
) -> Infeasible:
    cool = power <= objective.power_cap * (1 + TIE)
    fastest = np.where(cool, problem.time, np.inf).min(1) / problem.default_time
    worst = int(np.argmax(fastest))
    least, name = float(power.min(1).max()), problem.kernels[worst]
    slowdown = float(100 * (fastest[worst] - 1))
    if np.isinf(slowdown):
        return Infeasible(
            f"`power_limit`: kernel `{name}` draws more than "
            f"{objective.power_cap:g} W at every setting; all kernels can "
            f"keep {least:.2f} W.",
            max_slowdown=slowdown,
            power_limit=least,
        )
    return Infeasible(
        f"`max_slowdown`: kernel `{name}` cannot keep a slowdown of "
        f"{objective.max_slowdown:g} %; the least that every kernel reaches is "
        f"{np.ceil(slowdown * 100) / 100:.2f} %.",
        max_slowdown=slowdown,
        power_limit=least,
    )
