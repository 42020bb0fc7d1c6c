"""A linear program with real or whole variables, and what a solver says of it."""

import dataclasses
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
LEAST: Final = 0.1
"""s that a solver has at least, of wall time and of work."""


@dataclasses.dataclass(frozen=True)
class LinearModel:
    """Minimise `cost @ x` with row_low <= matrix @ x <= row_high and low <= x <= high,
    infinite where there is no limit; x is whole numbers where `whole` (one for all, or
    one a column)."""

    matrix: sparse.csr_array
    row_low: Float[np.ndarray, " row"]
    row_high: Float[np.ndarray, " row"]
    low: Float[np.ndarray, " column"]
    high: Float[np.ndarray, " column"]
    cost: Float[np.ndarray, " column"]
    whole: bool | Bool[np.ndarray, " column"] = False

    @classmethod
    def at_most(
        cls,
        cost: Float[np.ndarray, " column"],
        matrix: Any,
        level: Float[np.ndarray, " row"],
        low: float | Float[np.ndarray, " column"] = 0.0,
        high: float | Float[np.ndarray, " column"] = np.inf,
    ) -> "LinearModel":
        """Minimise `cost @ x`, real, with matrix @ x <= level and low <= x <= high;
        the matrix is any sparse one."""
        low, high = (np.broadcast_to(x, cost.shape).astype(float) for x in (low, high))
        none = np.full(len(level), -np.inf)
        return cls(sparse.csr_array(matrix), none, level, low, high, cost)


@dataclasses.dataclass(frozen=True)
class Answer:
    """Result of a solver so far: `values`, and what they cost (`incumbent`), are there
    when `status` is optimal or feasible; `bound`: no solution costs less (None: none
    known). `seconds`: wall time in the solver; `work`: what it counts of its steps, in
    s of an idle core (0: nothing). `interrupted`: by Ctrl-C. `duals`: what a unit more
    of a row's limit adds to the least cost (of `highs`, real variables). `message`: the
    solver's own words, if it has any. `checks`: how often `highs` looked at its limits,
    and `iterations` of its simplex method: the same on any machine."""

    status: Status
    values: Float[np.ndarray, " column"] | None
    incumbent: float | None
    bound: float | None
    seconds: float
    interrupted: bool = False
    duals: Float[np.ndarray, " row"] | None = None
    message: str = ""
    checks: int = 0
    iterations: int = 0
    work: float = 0.0

    @property
    def gap(self) -> float | None:
        """(incumbent - bound) / |incumbent|."""
        if self.incumbent is None or self.bound is None:
            return None
        return abs(self.incumbent - self.bound) / max(abs(self.incumbent), 1e-12)
