"""`Meter`: what counts as energy, that of the board or that at the wall; and the keys
of a schedule at the wall.

Wall power is convex in that of the board, and nearly a line: with the tangent A + B P
at a mean power P energy at the wall is A T + B E. Every kernel, wait and change of
clocks then costs B E + A T, and a limit of P watts is one of A + B P: the same problem
in other numbers. The tangent lies below the curve, so that a bound by it is one of the
exact energy at the wall, which answers state.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..nodes import Site
from ._costs import PowerCurve
from ._plan import Objective, Plan, Rules
from ._problem import Problem, Total, default_spent, default_total, stage_totals

_INTERVALS = ("time_s", "avg_power_w", "energy_j")


class Meter(NamedTuple):
    """Energy that counts: `base` (W) x time + `slope` x energy. The usual one counts
    the energy itself."""

    base: float = 0.0
    slope: float = 1.0

    def __invert__(self) -> "Meter":
        """The meter that gives energy back."""
        return Meter(-self.base / self.slope, 1 / self.slope)

    def power(self, power: Any) -> Any:
        """W that count."""
        return self.slope * power + self.base

    def energy(self, time: Any, energy: Any) -> Any:
        """J that count; infinite where a time is."""
        finite = np.isfinite(time)
        return np.where(
            finite, self.slope * energy + self.base * np.where(finite, time, 0), np.inf
        )

    def problem(self, problem: Problem) -> Problem:
        """The problem in energies and powers that count."""
        if self == Meter():
            return problem
        default = self.energy(problem.default_time, problem.default_energy)
        return dataclasses.replace(
            problem,
            energy=self.energy(problem.time, problem.energy),
            default_energy=default,
            power_cap=self.power(problem.power_cap),
            wait_power=self.power(problem.wait_power),
        )

    def rules(self, rules: Rules) -> Rules:
        """Rules whose changes of clocks cost what counts."""
        if self == Meter() or rules.switching is None:
            return rules
        changes, stall = rules.switching, rules.stall_power
        return dataclasses.replace(
            rules,
            switching=changes._replace(energy=self.slope * changes.energy),
            stall_power=None if stall is None else self.power(stall),
        )

    def objective(self, objective: Objective) -> Objective:
        """The objective under a limit of the power that counts."""
        return objective._replace(power_cap=self.power(objective.power_cap))

    def plan(self, plan: Plan) -> Plan:
        """A plan with the energies that count; value and bound stay."""
        if self == Meter():
            return plan
        return dataclasses.replace(
            plan,
            energy=float(self.energy(plan.time, plan.energy)),
            bound_energy=float(self.energy(plan.time, plan.bound_energy)),
        )


BOARD = Meter()


class Boards(NamedTuple):
    """Boards that run a schedule alike, and where they stand."""

    site: Site
    number: int = 1

    def power(self, power: Any) -> Any:
        """W at the wall of all boards, which draw `power` W together."""
        return self.site.power(power / self.number, self.number)

    def figures(
        self, time: np.ndarray, power: np.ndarray, about: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Keys of the wall: spans (s) and what all boards draw in them (W)."""
        each = (power / self.number).tolist()
        return self.site.figures(time.tolist(), each, self.number, about)


def tangent(boards: Boards | None, total: Total) -> Meter:
    """The meter at the wall of boards whose mean power is that of a total; that of the
    boards without a site."""
    if boards is None:
        return BOARD
    power = float(total.energy / total.time)
    return Meter(*boards.site.line(power / boards.number, boards.number))


def spans(problem: Problem, plan: Plan | None) -> Float[np.ndarray, "2 span"]:
    """s and mean W of the stages of a plan (None: at default clocks) and of changes of
    clocks, of a step of many GPUs as a whole; energies are the boards'."""
    if problem.rounds[0]:  # whose parts run beside each other
        whole = default_total(problem) if plan is None else plan.total
        return np.array([[whole.time], [whole.energy / whole.time]], float)
    spent = default_spent(problem) if plan is None else plan.spent(problem)
    time, energy = stage_totals(problem, spent)
    if plan is not None:
        time = np.append(time, plan.time - time.sum())
        energy = np.append(energy, plan.energy - energy.sum())
    there = time > 1e-9 * time.sum()
    return np.stack([time[there], energy[there] / time[there]])


def wall_energy(boards: Boards, problem: Problem, plan: Plan | None) -> float:
    """Energy at the wall (J) of a plan (None: at default clocks), each stage at its own
    mean power; energies are the board's."""
    time, power = spans(problem, plan)
    return float(np.sum(time * boards.power(power)))


def at_wall(boards: Boards | None, curve: PowerCurve) -> PowerCurve:
    """Energies at the wall of a workload under power limits, each at its mean power."""
    if boards is None:
        return curve
    wall = curve.time * boards.power(curve.energy / curve.time)
    return dataclasses.replace(curve, energy=wall)


def wall_figures(
    boards: Boards, problem: Problem, plan: Plan, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Keys of a schedule at the wall beside those of its board in `summary`; a measured
    table is exact."""
    exact = {
        f"{name}_p5_p95": [value, value]
        for name, value in zip(
            _INTERVALS, (plan.time, plan.energy / plan.time, plan.energy), strict=True
        )
    }
    about = {"grade": "calibrated", **exact, **summary}
    time, power = spans(problem, plan)
    return boards.figures(time, power, about)
