"""`Engine`: descends, judges and counts for one problem."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ...search import State
from .._design_request import Effort
from .._problem.exact import Judge, Judged, Target, nan_free, run
from .._problem.legal import Point, Points, moved, moves, polish, roundings
from .._problem.problem import Problem
from .descent import STEPS, STIFFNESS, Aim, Slopes, advance, begin, start_points

GRADIENT: Final = 3
"""Evaluations that one gradient counts as."""
_FIRST, _LAST = 0.4, 0.02
"""Step of Adam at the first and last round, in units of the sigmoid's argument."""
_POLISHED: Final = 4
"""Designs that single steps are tried from."""
_SWEEPS: Final = 12
"""Steps of a design that is polished beside others."""
_SETTLING: Final = 0.5
"""Rounds of continuous axes at given discrete ones / those of a search."""
_CAPS, _LOW_CAP = ("power_cap", "tdp"), -1.0
"""Limits of power, and where they begin at most, as an argument of the sigmoid."""
_FEW: Final = 32
"""Most values of an axis that is chosen, not descended, in the end."""
_SETTLE: Final = 0.15
"""Step of Adam where only they move."""
_EXACT, _EDGE = 1e-6, 0.005
_ROOM: Final = 0.02
"""Most room below a limit that counts for a design, as a share of it."""
_SAME: Final = 1e-6
"""Relative difference of objectives below which two designs count as one."""
_INSIDE: Final = 0.03
"""Nearest that a start comes to its bounds, as a share of the box."""

Tell = Callable[[int, int, float], None]
"""Called with rounds done, rounds in all, best objective so far."""


class Engine:
    """Descends and judges for one problem, and counts what that takes."""

    def __init__(self, problem: Problem, effort: Effort):
        self.problem, self.effort = problem, effort
        self.judge = Judge(problem.task)
        self.rng = np.random.default_rng(effort.seed)
        self.gradients = 0
        self.path: list[dict[str, Any]] = []
        self.interrupted = False

    @property
    def evaluations(self) -> int:
        """Model evaluations so far; a gradient counts as three."""
        return self.judge.evaluations + GRADIENT * self.gradients

    def advance(
        self, states: State, aims: Aim, rates: np.ndarray, stiffness: np.ndarray
    ) -> tuple[State, Slopes]:
        """States and slopes of all starts after one more round."""
        task = self.problem.task
        advanced = run(advance, task, states, aims, rates, stiffness, once=True)
        steps = STEPS if rates.any() else 1
        self.gradients += steps * len(states.multipliers)
        return advanced

    def descend(
        self,
        targets: list[Target],
        rounds: int,
        z: Points,
        tell: Tell = lambda *_: None,
        multipliers: np.ndarray | None = None,
        free: Float[np.ndarray, " axis"] | None = None,
        first: float = _FIRST,
    ) -> tuple[Points, Float[np.ndarray, "start limit"]]:
        """Where the starts `z` end, each after its own target, on the axes that are
        `free` (all), and the multipliers of the limits there. Every round ends with the
        nearest legal designs scored, so that an interruption loses nothing. `first`:
        step size of the first round."""
        moving = np.ones(z.shape[1]) if free is None else free
        start_multipliers = (
            np.zeros((len(z), self.limits)) if multipliers is None else multipliers
        )
        states = begin(z, start_multipliers)
        after, stiffness = aims(targets, self.scale, moving), np.full(len(z), STIFFNESS)
        values, best = self.values(z), np.inf
        try:
            for number in range(rounds):
                share = number / max(rounds - 1, 1)
                rates = np.full(STEPS, first * (_LAST / first) ** share)
                states, _ = self.advance(states, after, rates, stiffness)
                values = self.values(np.asarray(states.x[0]))
                nan = np.isnan(values).any(axis=1)
                values[nan] = self.values(z)[nan]
                best = self._note(targets, values, number, best)
                tell(number + 1, rounds, best)
        except KeyboardInterrupt:
            self.interrupted = True
        return values, np.asarray(states.multipliers)

    def _note(
        self, targets: list[Target], values: Points, number: int, best: float
    ) -> float:
        """Scores the nearest legal designs and writes the path down."""
        judged = self.judge(self.problem.legal(values))
        nan_free(judged, self.problem.task)
        goal = targets[0]
        top = int(judged.order(goal)[0])
        score = self.problem.score(judged, top, goal)
        if not score.violation:
            best = min(best, score.objective)
        self.path.append(
            {
                "round": number + 1,
                "evaluations": self.evaluations,
                "objective": score.objective,
                "violation": score.violation,
                "fields": score.fields,
            }
        )
        return best

    def values(self, z: Points) -> Points:
        """Values on the axes, SI."""
        low, high = self.problem.bounds
        return low * (high / low) ** (1 / (1 + np.exp(-z)))

    @functools.cached_property
    def limits(self) -> int:
        """Number of limits of a descent: one for each metric, and those of tiles."""
        judged = self.judge(self.start[None])
        return judged.metrics.shape[1] + judged.faults.shape[1] - 1

    @functools.cached_property
    def start(self) -> Point:
        """Legal design nearest to the base."""
        return self.problem.legal(self.problem.base[None])[0]

    @functools.cached_property
    def scale(self) -> float:
        """Size of the caller's own objective, to descend it like the others."""
        return float(np.abs(self.judge(self.start[None]).custom[0])) or 1.0

    def starts(self, count: int) -> Points:
        """Where descents begin, as arguments of the sigmoid. A power cap above what is
        drawn has no slope: it begins low."""
        z = start_points(self.inverse(self.problem.base), count, self.rng)
        caps = np.array([axis.name in _CAPS for axis in self.problem.axes])
        z[1:, caps] = np.minimum(z[1:, caps], _LOW_CAP)
        return z

    def inverse(
        self, values: Float[np.ndarray, "*design axis"], inside: float = _INSIDE
    ) -> Float[np.ndarray, "*design axis"]:
        """Arguments of the sigmoid at `values`, at least the share `inside` of the box
        away from its bounds."""
        low, high = self.problem.bounds
        room = np.log(high / low)
        share = np.log(values / low) / np.where(room > 0, room, 1.0)
        share = np.clip(np.where(room > 0, share, 0.5), inside, 1 - inside)
        return np.log(share / (1 - share))

    def search(self, goal: Target, tell: Tell) -> None:
        """Descents from many starts, made legal and polished: `judge` knows them."""
        axes, z = self.problem.axes, self.starts(self.effort.starts)
        values, multipliers = self.descend([goal] * len(z), self.effort.rounds, z, tell)
        judged, owner = self.rounded(values)
        at_best = self._settle(goal, judged, multipliers[owner])
        if at_best is not None and not self.interrupted:
            near = self._neighbours(self.best(goal, 1)[0])
            self._settle(goal, self.judge(near), np.repeat(at_best, len(near), axis=0))
        try:
            for point in self.best(goal, _POLISHED):
                polish(self.judge, axes, goal, point, self.rng, _SWEEPS)
            polish(self.judge, axes, goal, self.best(goal, 1)[0], self.rng)
        except KeyboardInterrupt:
            self.interrupted = True

    def rounded(self, values: Points) -> tuple[Judged, Int[np.ndarray, " rounding"]]:
        """Legal designs around each of `values`, scored, and around which one."""
        parts = [roundings(self.problem.axes, value, self.rng) for value in values]
        judged = self.judge(self.problem.legal(np.concatenate(parts)))
        nan_free(judged, self.problem.task)
        return judged, np.repeat(np.arange(len(parts)), [len(part) for part in parts])

    def best(self, goal: Target, count: int) -> Points:
        """The best designs so far, of different objectives."""
        everything = self.judge.everything
        order = everything.order(goal)
        values = everything.objective(goal)[order]
        apart = np.abs(np.diff(values, prepend=np.inf)) > _SAME * np.abs(values)
        return everything.values[order[apart][:count]]

    def _neighbours(self, point: Point) -> Points:
        """`point` and the designs one step away on a coarse axis."""
        steps = moves(self.problem.axes, point)
        there = [moved(point, [step]) for step in steps if self._coarse[step[0]]]
        return np.stack([point, *there])

    @functools.cached_property
    def _coarse(self) -> Bool[np.ndarray, " axis"]:
        """Axes of few legal values: a step changes much."""
        legal = [axis.legal for axis in self.problem.axes]
        return np.array([x is not None and len(x) <= _FEW for x in legal])

    def _settle(
        self, goal: Target, judged: Judged, multipliers: np.ndarray
    ) -> np.ndarray | None:
        """The other axes descend once more at the best choices of coarse ones: those of
        the least Lagrangian, since what a rounding passes of a limit they take back.
        Gives the multipliers of the best choice; None if there is nothing to do."""
        starts, coarse = self.effort.starts, self._coarse
        if self.interrupted or coarse.all() or not coarse.any():
            return None
        merit = np.log(np.abs(judged.objective(goal)))
        passed = np.maximum(judged.excess(goal), -_ROOM)
        merit = merit + (multipliers[:, : passed.shape[1]] * passed).sum(axis=1)
        order = np.lexsort((merit, judged.faults.max(axis=1) > 0))
        _, first = np.unique(judged.values[order][:, coarse], axis=0, return_index=True)
        rows = order[np.sort(first)][:starts]
        rows = np.concatenate([rows, np.repeat(rows[-1:], starts - len(rows))])
        inside = self.inverse(judged.values[rows], _EDGE)
        z = np.where(coarse, self.inverse(judged.values[rows], _EXACT), inside)
        _, settled = self.descend(
            [goal] * starts,
            max(1, round(self.effort.rounds * _SETTLING)),
            z,
            multipliers=multipliers[rows],
            free=1.0 - coarse,
            first=_SETTLE,
        )
        return settled[:1]


def aims(
    targets: Sequence[Target], scale: float, free: Float[np.ndarray, " axis"]
) -> Aim:
    """Targets as the descents read them, one a start."""
    rows = [(t.powers, 1 / t.limits, float(t.custom) / scale, free) for t in targets]
    return Aim(*(jnp.asarray(np.stack(column)) for column in zip(*rows, strict=True)))
