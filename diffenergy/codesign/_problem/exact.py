"""What a search makes small and must keep (`Target`), and exact scores of many designs
(`Judge`), with how many evaluations that took."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...compiling import call_compiled, compiler_options
from ...hardware import FIELDS
from .._space.task import METRICS, Measured, Task, measured

GOALS: Final[Mapping[str, Mapping[str, int]]] = {
    "energy": {"energy": 1},
    "time": {"time": 1},
    "edp": {"energy": 1, "time": 1},
    "ed2p": {"energy": 1, "time": 2},
    "energy_per_token": {"energy_per_token": 1},
    "area": {"area": 1},
    "cost": {"cost": 1},
}
"""Powers of the metrics whose product is made small."""
UNITS: Final = {
    "energy": "J",
    "time": "s",
    "edp": "J s",
    "ed2p": "J s^2",
    "energy_per_token": "J",
    "area": "mm2",
    "cost": "price",
    "power": "W",
    "ttft": "s",
    "tpot": "s",
    "memory": "share of DRAM",
}
CUSTOM: Final = "custom"
"""Name of a caller's own objective."""
BATCH: Final = 64
"""Designs a call. Every call is filled up to it, unlike those of `at_points`: a search
tries any number of designs, and each further size would compile the model once more. A
caller's own objective, a closure, has no name by which a program could be kept."""
ROOM: Final = 1e-9
"""By how much a limit may be passed: rounding."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Objective and limits of one descent, as arrays over `METRICS`.

    `powers`: exponents of the product to make small (all 0: the caller's own
    objective); `limits`: the most that each metric may be, infinite for none.
    """

    powers: Float[np.ndarray, " metric"]
    limits: Float[np.ndarray, " metric"]

    @property
    def custom(self) -> bool:
        """Whether the caller's own objective is made small."""
        return not self.powers.any()


def target(goal: str, limits: Mapping[str, float]) -> Target:
    """Target of a goal (`GOALS`, or `CUSTOM`) under `limits` by metric, SI."""
    powers = GOALS.get(goal, {})
    return Target(
        np.array([powers.get(metric, 0.0) for metric in METRICS]),
        np.array([limits.get(metric, math.inf) for metric in METRICS]),
    )


# --- exact scores


class Judged(NamedTuple):
    """Exact scores of designs, as columns; axes (design, ...)."""

    values: Float[np.ndarray, "design axis"]
    metrics: Float[np.ndarray, "design metric"]
    custom: Float[np.ndarray, " design"]
    faults: Float[np.ndarray, "design fault"]
    """Above 0: tiles that cannot run, a power cap that cannot be kept."""

    def objective(self, target: Target) -> Float[np.ndarray, " design"]:
        """Value of the objective of `target`, in its unit."""
        if target.custom:
            return self.custom
        return np.exp(np.log(self.metrics) @ target.powers)

    def excess(self, target: Target) -> Float[np.ndarray, "design metric"]:
        """By how much each limit is passed, as a share of it; -1: there is none."""
        limits = target.limits
        return np.where(np.isinf(limits), -1.0, self.metrics / limits - 1)

    def violation(self, target: Target) -> Float[np.ndarray, " design"]:
        """By how much the worst limit is passed, as a share of it; 0: none."""
        passed = np.concatenate([self.excess(target), self.faults], axis=-1)
        worst = passed.max(axis=-1)
        return np.where(worst > ROOM, worst, 0.0)

    def order(self, target: Target) -> np.ndarray:
        """Designs from best to worst: those that keep the limits, then the rest by how
        far they are from that."""
        return np.lexsort((self.objective(target), self.violation(target)))

    def take(self, rows: Any) -> "Judged":
        """Some of the designs."""
        return Judged(*(column[rows] for column in self))


def run(
    function: Callable[..., Any], task: Task, *arguments: Any, once: bool = False
) -> Any:
    """`function(task, *arguments)`, by a program that is kept; with an objective of the
    caller's own, whose name does not outlive the process, by `jax.jit`.

    `once`: a short run, which takes longer to optimise than to run.
    """
    arrays = jax.tree.map(jnp.asarray, (task, *arguments))
    if task.custom is None:
        return call_compiled(function, arrays, once)
    return _program(function, once)(*arrays)


@functools.cache
def _program(function: Callable[..., Any], once: bool) -> Callable[..., Any]:
    return jax.jit(function, compiler_options=compiler_options(once=once))


class Judge:
    """Scores designs exactly, each once."""

    def __init__(self, task: Task):
        self._task = task
        self._index: dict[bytes, int] = {}
        self._all: list[Judged] = []
        self.evaluations = 0

    def __call__(self, values: Float[np.ndarray, "design axis"]) -> Judged:
        """Scores of `values` (SI); those seen before are looked up."""
        keys = [row.tobytes() for row in values]
        fresh = [key for key in dict.fromkeys(keys) if key not in self._index]
        if fresh:
            new = values[[keys.index(key) for key in fresh]]
            firsts = range(0, len(new), BATCH)
            # an interruption in between leaves nothing half known
            self._all += [self._batch(new[first : first + BATCH]) for first in firsts]
            self.evaluations += len(new)
            start = len(self._index)
            self._index |= {key: start + n for n, key in enumerate(fresh)}
        return self.everything.take([self._index[key] for key in keys])

    def __len__(self) -> int:
        """Designs scored so far."""
        return len(self._index)

    @property
    def everything(self) -> Judged:
        """All designs scored so far."""
        if len(self._all) > 1:
            columns = zip(*self._all, strict=True)
            self._all = [Judged(*map(np.concatenate, columns))]
        return self._all[0]

    def _batch(self, values: np.ndarray) -> Judged:
        count = len(values)
        padded = np.concatenate([values, np.repeat(values[:1], BATCH - count, axis=0)])
        columns = run(scores, self._task, padded)
        metrics, custom, crowding, feasible = (np.asarray(x)[:count] for x in columns)
        faults = np.concatenate([crowding, 1.0 - 2.0 * feasible[:, None]], axis=-1)
        return Judged(values, metrics, custom, faults)


def scores(task: Task, values: Float[Any, "design axis"]) -> Measured:
    """Exact metrics of every design (leading axis of `values`, SI)."""
    nudge = jnp.zeros(len(FIELDS))
    return jax.vmap(lambda x: measured(task, x, nudge, exact=True))(values)


def nan_free(judged: Judged, task: Task) -> None:
    """Raises `ValueError` if a metric or a caller's objective is NaN, with the point
    where it happened."""
    columns = np.concatenate([judged.metrics, judged.custom[:, None]], axis=-1)
    bad = np.argwhere(~np.isfinite(columns))
    if not len(bad):
        return
    row, column = bad[0]
    custom_name = getattr(task.custom, "__name__", "objective")
    what = (*METRICS, custom_name)[column]
    point = ", ".join(
        f"{name} {value:g}"
        for name, value in zip(task.names, judged.values[row], strict=False)
    )
    raise ValueError(
        f"`{what}` is {columns[row, column]:g} at {point}; make it finite on the whole "
        "design space, or narrow the bounds."
    )
