"""Searches without gradients on a `Problem`: random, Optuna's TPE, CMA-ES.

All score designs with the exact `Judge`, begin at the base design, know the legal
values, and draw continuous axes on a logarithmic scale, discrete ones by index.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import pytest
from jaxtyping import Float

from diffenergy.codesign._problem.exact import Judge, Judged, run, scores
from diffenergy.codesign._problem.problem import Problem
from diffenergy.codesign._search.descent import advance
from diffenergy.codesign._search.engine import GRADIENT
from diffenergy.codesign._space.axes import Axis

cma: Any = pytest.importorskip("cma", reason="needs the extra bench")
optuna: Any = pytest.importorskip("optuna", reason="needs the extra bench")

_BATCH: Final = 64
_TPE_BATCH: Final = 8
_TPE_STARTUP: Final = 32
_PENALTY: Final = 3.0
"""Of ln(objective) for a limit passed by 100 %: active limits have multipliers near 1
here. 3 did better than 10 and than ranking feasible designs first."""
_SIGMA: Final = 0.3
_FEW: Final = 50
"""Axes with more legal values than this are drawn as continuous ones."""
_STALLED: Final = 30


class Mark(NamedTuple):
    """Best design that keeps the limits after so much work."""

    evaluations: int
    seconds: float
    best: float  # infinite: none yet


class Course:
    """How far a search got, and when."""

    def __init__(self, problem: Problem):
        self.problem, self.goal = problem, problem.targets[0]
        self.marks: list[Mark] = [Mark(0, 0.0, np.inf)]
        self._began = time.monotonic()

    def note(self, evaluations: int, judged: Judged | None) -> None:
        """Adds the designs that were just judged."""
        best = self.marks[-1].best
        if judged is not None:
            legal = judged.violation(self.goal) == 0
            best = min([best, *judged.objective(self.goal)[legal]])
        seconds = time.monotonic() - self._began
        self.marks.append(Mark(evaluations, seconds, float(best)))

    def at(self, evaluations: float = np.inf, seconds: float = np.inf) -> float:
        """Best objective found within both."""
        return [
            mark.best
            for mark in self.marks
            if mark.evaluations <= evaluations and mark.seconds <= seconds
        ][-1]


class Watched(Course):
    """Stands in for `run` of `search`, and notes the designs that it asks for."""

    def __call__(
        self, function: Callable[..., Any], task: Any, *arguments: Any, once=False
    ) -> Any:
        leaves = jax.block_until_ready(run(function, task, *arguments, once=once))
        count, judged = self.marks[-1].evaluations, None
        if function is advance:
            states, _, rates, _ = arguments
            moved = bool(np.asarray(rates).any())
            count += GRADIENT * len(states.z) * (len(rates) if moved else 1)
        elif function is scores and task is self.problem.task:
            values = np.asarray(arguments[0])
            metrics, custom, crowding, feasible = map(np.asarray, leaves)
            faults = np.concatenate([crowding, 1 - 2.0 * feasible[:, None]], axis=-1)
            judged = Judged(values, metrics, custom, faults)
            count += len(np.unique(values, axis=0))  # padded with copies
        self.note(count, judged)
        return leaves


class Arena(Course):
    """Scores points of the unit cube until `evaluations` and `seconds` are both used
    up, or `seconds` and `longest` are."""

    def __init__(
        self, problem: Problem, evaluations: int, seconds: float, longest: float
    ):
        super().__init__(problem)
        self.axes = problem.axes
        self._judge = Judge(problem.task)
        self._evaluations, self._seconds = evaluations, seconds
        self._longest = max(longest, seconds)
        base = problem.legal(problem.base[None])[0]
        self.base = np.array(
            [_share(a, b) for a, b in zip(self.axes, base, strict=True)]
        )

    @property
    def done(self) -> bool:
        """Whether to stop."""
        seconds = time.monotonic() - self._began
        used = self.marks[-1].evaluations >= self._evaluations
        return seconds > self._longest or (used and seconds >= self._seconds)

    def __call__(
        self, points: Float[np.ndarray, "design axis"]
    ) -> tuple[Float[np.ndarray, " design"], Float[np.ndarray, " design"]]:
        """(ln of the objective, by how much the worst limit is passed); tiles are
        made legal as the search by gradient does it."""
        columns = [_value(a, points[:, n]) for n, a in enumerate(self.axes)]
        judged = self._judge(self.problem.legal(np.stack(columns, axis=-1)))
        self.note(self._judge.evaluations, judged)
        return np.log(judged.objective(self.goal)), judged.violation(self.goal)


def _value(axis: Axis, share: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    if axis.legal is None:
        return axis.low * (axis.high / axis.low) ** share
    index = (share * len(axis.legal)).astype(int)
    return axis.values[np.minimum(index, len(axis.legal) - 1)]


def _share(axis: Axis, value: float) -> float:
    if axis.legal is None:
        return float(np.log(value / axis.low) / np.log(axis.high / axis.low))
    return (axis.legal.index(value) + 0.5) / len(axis.legal)


def at_random(arena: Arena, seed: int) -> None:
    """Independent draws."""
    rng = np.random.default_rng(seed)
    arena(arena.base[None])
    while not arena.done:
        arena(rng.uniform(size=(_BATCH, len(arena.axes))))


def cma_es(arena: Arena, seed: int) -> None:
    """CMA-ES with restarts of twice the population (IPOP) from random points; limits
    by a penalty, discrete axes by rounding."""
    rng = np.random.default_rng(seed)
    population = 4 + int(3 * np.log(len(arena.axes)))  # the default
    start = np.clip(arena.base, 0.02, 0.98)
    while not arena.done:
        seed = int(rng.integers(1, 2**31))
        options = {"bounds": [0, 1], "popsize": population, "seed": seed}
        options |= {"verbose": -9, "verb_log": 0}
        strategy = cma.CMAEvolutionStrategy(start, _SIGMA, options)
        stalled = 0
        while not (strategy.stop() or arena.done or stalled > _STALLED):
            points, before = strategy.ask(), arena.marks[-1].evaluations
            value, violation = arena(np.array(points))
            strategy.tell(points, (value + _PENALTY * violation).tolist())
            stalled = stalled + 1 if arena.marks[-1].evaluations == before else 0
        population, start = 2 * population, rng.uniform(size=len(arena.axes))


def tpe(arena: Arena, seed: int) -> None:
    """Optuna's multivariate TPE with its own treatment of constraints, in batches."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, n_startup_trials=_TPE_STARTUP
    )
    study = optuna.create_study(sampler=sampler)
    spaces = {str(n): _distribution(axis) for n, axis in enumerate(arena.axes)}
    base = [_drawn(a, s) for a, s in zip(arena.axes, arena.base, strict=True)]
    study.enqueue_trial(dict(zip(spaces, base, strict=True)))
    while not arena.done:
        trials = [study.ask(spaces) for _ in range(_TPE_BATCH)]
        points = [_point(arena.axes, list(trial.params.values())) for trial in trials]
        scored = zip(trials, *arena(np.array(points)), strict=True)
        for trial, value, violation in scored:
            trial.set_constraint("limits", float(violation))
            study.tell(trial, float(value))


def _by_index(axis: Axis) -> bool:
    return axis.legal is not None and len(axis.legal) <= _FEW


def _distribution(axis: Axis) -> Any:
    if _by_index(axis):
        return optuna.distributions.IntDistribution(0, len(axis.values) - 1)
    return optuna.distributions.FloatDistribution(0.0, 1.0)


def _drawn(axis: Axis, share: float) -> float | int:
    return int(share * len(axis.values)) if _by_index(axis) else float(share)


def _point(axes: Sequence[Axis], drawn: list[Any]) -> list[float]:
    """Point of the unit cube."""
    return [
        (x + 0.5) / len(axis.values) if _by_index(axis) else x
        for axis, x in zip(axes, drawn, strict=True)
    ]


METHODS: Final = {"random": at_random, "TPE": tpe, "CMA-ES": cma_es}
