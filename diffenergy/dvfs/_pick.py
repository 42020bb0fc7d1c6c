"""From many plans and a bound line to the best plan and its bound."""

from typing import NamedTuple

import numpy as np

from ..results import Infeasible
from ._hulls import Line
from ._plan import Objective
from ._problem import TIE, Total


class Answer(NamedTuple):
    """The best of some plans. `plan` is its index; -1 leaves every clock alone."""

    plan: int
    value: float
    total: Total


def best(plans: Total, objective: Objective, default: Total) -> Answer | None:
    """Best plan that keeps the limits; `None` if none does, nor the default."""
    answer = None
    if bool(objective.keeps(default, default)):
        answer = Answer(-1, float(objective.value(default)), default)
    value = np.where(objective.keeps(plans, default), objective.value(plans), np.inf)
    if len(value) == 0:
        return answer
    plan = int(np.argmin(value))
    if np.isinf(value[plan]) or (answer and answer.value < value[plan]):
        return answer
    return Answer(plan, float(value[plan]), Total(plans.time[plan], plans.energy[plan]))


def least_value(line: Line, objective: Objective, default: Total) -> float:
    """Least value on or above `line` within the limits; infinite if there is none.

    E T^n and T are quasi-concave, so a corner of that region has the least.
    """
    corners = _corners(line, objective, default)
    allowed = objective.keeps(corners, default)
    return float(
        np.where(allowed, objective.value(corners), np.inf).min(initial=np.inf)
    )


def _corners(line: Line, objective: Objective, default: Total) -> Total:
    """Vertices of `line`, and where it crosses the limits."""
    most = objective.most_time(default)
    x, y = [line.x], [line.y]
    if len(line.x) and line.x[0] <= most < line.x[-1]:
        x.append(np.array([most]))
        y.append(np.interp(x[-1], line.x, line.y))
    if np.isfinite(objective.power_cap):
        over = line.y - objective.power_cap * line.x
        i = np.flatnonzero(over[:-1] * over[1:] < 0)
        share = over[i] / (over[i] - over[i + 1])
        x.append(line.x[i] + share * (line.x[i + 1] - line.x[i]))
        y.append(line.y[i] + share * (line.y[i + 1] - line.y[i]))
    return Total(np.concatenate(x), np.concatenate(y))


def infeasible(plans: Total, objective: Objective, default: Total) -> Infeasible:
    """`Infeasible` with the least slowdown and power that the plans reach."""
    time = np.append(plans.time, default.time)
    power = np.append(plans.energy, default.energy) / time
    least = float(power.min())
    cool = power <= objective.power_cap * (1 + TIE)
    fastest = np.where(cool, time, np.inf).min()
    slowdown = float(100 * (fastest / default.time - 1))
    if not cool.any():
        return Infeasible(
            f"`power_limit`: no schedule draws {objective.power_cap:g} W or less; "
            f"the least mean power is {least:.2f} W.",
            max_slowdown=float(100 * (time.min() / default.time - 1)),
            power_limit=least,
        )
    # up, so that asking for it succeeds; + 0: zero without a sign
    shown = np.ceil(slowdown * 100 - 1e-6) / 100 + 0.0
    return Infeasible(
        f"`max_slowdown`: no schedule keeps a slowdown of "
        f"{objective.max_slowdown:g} %; the least reachable is {shown:.2f} %.",
        max_slowdown=slowdown,
        power_limit=least,
    )
