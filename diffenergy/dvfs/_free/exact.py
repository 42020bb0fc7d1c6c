"""Exact finish of one plan: the multiple-choice knapsack as an integer programme.

HiGHS proves the optimum. Host time makes the stage time convex in the GPU time; it is
bounded below by tangents, to which every round adds those at the last answer.
"""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from ...physics import stage_slope, stage_time
from ...search import Answer, LinearModel, highs
from .._problem.plan import Objective
from .._problem.problem import TIE, Problem, by_stage, default_total, listed
from .hulls import Line

_ROUNDS: Final = 4
"""Most rounds of tangents."""
_TANGENTS: Final = 12
_SECONDS: Final = 60.0
"""Wall time, s: the last resort."""
_BRANCHED: Final = 2e5
"""Most nodes x columns of a search, about two seconds of an idle core."""
_NODES: Final = 50_000
_GAP: Final = 1e-7
"""Share of the optimum at which HiGHS may stop."""
_SIZE: Final = 1e3
"""Time and energy of the default in the solver, whose tolerances are 1e-6."""


class Proof(NamedTuple):
    """Launches of every kernel at every setting in some answers, and a bound.

    Where there is host time an answer may pass a limit by a little: total it. `bound`,
    of the objective, is -inf if caps on stages with host time keep it from being one.
    `out_of_time`: wall time ended a search, so that an idler machine may say more.
    """

    launches: list[Float[np.ndarray, "kernel setting"]]
    bound: float
    out_of_time: bool = False


def prove(
    problem: Problem,
    objective: Objective,
    allowed: Bool[np.ndarray, "kernel setting"],
    whole: bool,
) -> Proof:
    """Least energy (or time) with `allowed` settings.

    `whole`: all launches of a kernel share a setting; else they may be split.
    """
    default = default_total(problem)
    second, joule = (float(x) / _SIZE for x in default)
    watt = joule / second
    scaled = _scaled(problem, second, joule)
    asked = objective._replace(power_cap=objective.power_cap / watt)
    model = _Model(scaled, asked, allowed, whole)
    answers, bound, late = [], -np.inf, False
    for _ in range(_ROUNDS):
        result = model.solve()
        late |= result.seconds >= _SECONDS
        if result.bound is not None:
            bound = max(bound, result.bound)
        if result.values is None:
            break
        answers.append(model.launches(result.values))
        if not model.refine(answers[-1]):
            break
    unit = second if objective.goal == "time" else joule
    return Proof(answers, bound * unit if model.bounds else -np.inf, late)


def price_of_time(line: Line, most_time: float) -> float:
    """Energy that a second is worth at the time limit, from the bound line (W)."""
    if not np.isfinite(most_time) or len(line.x) < 2:
        return 0.0
    i = int(np.clip(np.searchsorted(line.x, most_time), 1, len(line.x) - 1))
    slope = (line.y[i] - line.y[i - 1]) / (line.x[i] - line.x[i - 1])
    return float(max(-slope, 0.0))


def worthwhile(
    problem: Problem,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    energy: float,
    most_time: float,
    price: float,
) -> Bool[np.ndarray, "kernel setting"]:
    """Settings that a plan with less than `energy` within `most_time` may use.

    `rows`: kernel, setting and launches of a plan that is near the optimum. Energy +
    `price` x (time - limit) of a better plan lies below `energy`. With a tangent of
    each stage time that is a sum over kernels, each of which has a cheapest setting;
    one whose cost above that exceeds what is left of `energy` above the sum of the
    cheapest is in no better plan.
    """
    gpu = listed(problem, *rows).time
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


def _scaled(problem: Problem, second: float, joule: float) -> Problem:
    watt = joule / second
    return dataclasses.replace(
        problem,
        time=problem.time / second,
        energy=problem.energy / joule,
        default_time=problem.default_time / second,
        default_energy=problem.default_energy / joule,
        power_cap=problem.power_cap / watt,
        host_time=problem.host_time / second,
        wait_power=problem.wait_power / watt,
    )


class _Model:
    """Columns: launches of every allowed (kernel, setting), then stage times."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        allowed: Bool[np.ndarray, "kernel setting"],
        whole: bool,
    ):
        self.problem, self.objective = problem, objective
        self.kernel, self.setting = np.nonzero(allowed & problem.usable)
        integral = problem.count == np.rint(problem.count)
        self.units = np.where(integral & (not whole), problem.count, 1.0)
        self.share = (problem.count / self.units)[self.kernel]
        stage = problem.stage[self.kernel]
        self.in_stage = np.equal.outer(np.arange(len(problem.stages)), stage)
        self.time = self.share * problem.time[self.kernel, self.setting]
        energy = self.share * problem.energy[self.kernel, self.setting]
        self.spent = energy - problem.wait_power[stage] * self.time
        self.bent = problem.host_time > 0
        self.bounds = not np.any(self.bent & np.isfinite(problem.power_cap))
        # GPU times at which the first tangents touch
        times = self.units[self.kernel] * self.time
        low, high = (
            np.full(len(problem.kernels), np.inf),
            np.zeros(len(problem.kernels)),
        )
        np.minimum.at(low, self.kernel, times)
        np.maximum.at(high, self.kernel, times)
        ends = zip(by_stage(problem, low), by_stage(problem, high), strict=True)
        self.points = [np.linspace(*pair, _TANGENTS) for pair in ends]
        self.centre = np.array([points[len(points) // 2] for points in self.points])

    def solve(self) -> Answer:
        """Answer of HiGHS."""
        p, columns = self.problem, len(self.kernel)
        stages = len(p.stages)
        rows, low, high = self._rows()
        cost = np.concatenate([self.spent, p.wait_power])
        if self.objective.goal == "time":
            cost = np.concatenate([np.zeros(columns), np.ones(stages)])
        upper = np.concatenate([self.units[self.kernel], np.full(stages, np.inf)])
        whole = np.arange(columns + stages) < columns
        model = LinearModel(
            sparse.csr_array(rows), low, high, np.zeros(len(cost)), upper, cost, whole
        )
        nodes = min(_NODES, max(1, round(_BRANCHED / columns)))
        return highs(model, time_limit=_SECONDS, gap=_GAP, nodes=nodes, presolve=False)

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p, stages = self.problem, len(self.problem.stages)
        kernels = np.equal.outer(np.arange(len(p.kernels)), self.kernel).astype(float)
        parts = [
            (np.c_[kernels, np.zeros((len(kernels), stages))], self.units, self.units)
        ]
        unit = np.eye(stages)
        for s, points in enumerate(self.points):
            # stage time - slope x GPU time >= time at the point - slope x point
            host = p.host_time[s]
            slope = stage_slope(points, host)
            rest = stage_time(points, host) - slope * points
            left = np.c_[
                -np.outer(slope, self.in_stage[s] * self.time), unit[[s] * len(points)]
            ]
            high = np.full(len(points), np.inf) if self.bent[s] else rest
            parts.append((left, rest, high))
            if np.isfinite(p.power_cap[s]):
                parts.append(self._cap(s, float(host)))
        parts += self._limits()
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # pyright: ignore[reportReturnType]

    def _cap(self, s: int, host: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energy beyond waiting <= (cap - wait power) x a tangent of the stage time."""
        at = self.centre[s]
        slope = float(stage_slope(at, host))
        power = self.problem.power_cap[s] - self.problem.wait_power[s]
        left = self.in_stage[s] * (self.spent - power * slope * self.time)
        most = power * (float(stage_time(at, host)) - slope * at)
        zeros = np.zeros((1, len(self.problem.stages)))
        return np.c_[left[None], zeros], np.array([-np.inf]), np.array([most])

    def _limits(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        p, stages = self.problem, len(self.problem.stages)
        found = []
        most = self.objective.most_time(default_total(p))
        none = np.array([-np.inf])
        if np.isfinite(most):
            row = np.c_[np.zeros((1, len(self.kernel))), np.ones((1, stages))]
            found.append((row, none, np.array([most])))
        if np.isfinite(self.objective.power_cap):
            row = np.c_[
                self.spent[None], (p.wait_power - self.objective.power_cap)[None]
            ]
            found.append((row, none, np.zeros(1)))
        return found

    def launches(self, x: np.ndarray) -> Float[np.ndarray, "kernel setting"]:
        """Launches of every kernel at every setting."""
        found = np.zeros(self.problem.time.shape)
        found[self.kernel, self.setting] = np.rint(x[: len(self.kernel)]) * self.share
        return found

    def refine(self, launches: np.ndarray) -> bool:
        """Adds tangents at an answer; whether that could change it."""
        if not self.bent.any():
            return False
        time = np.where(launches > 0, self.problem.time, 0.0)
        gpu = by_stage(self.problem, (launches * time).sum(1))
        moved = False
        for s in np.flatnonzero(self.bent):
            if np.abs(self.points[s] - gpu[s]).min() > 1e-9 * gpu[s]:
                self.points[s] = np.append(self.points[s], gpu[s])
                moved = True
        self.centre = gpu
        return moved
