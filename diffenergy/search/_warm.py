"""A linear program kept in HiGHS while limits of its rows move.

Each answer starts from the basis of the last one: a few steps of the dual simplex,
where `highs` would begin anew. For searches that ask thousands of near-alike programs.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from ._highs import SILENT, new_solver
from ._linear_model import LinearModel


@dataclasses.dataclass(frozen=True)
class Solution:
    """`activity` of the rows; `reduced` costs of the variables: what a unit of each
    adds at least; `duals`: what a unit more of a row's limit adds to the least cost."""

    activity: Float[np.ndarray, " row"]
    reduced: Float[np.ndarray, " column"]
    duals: Float[np.ndarray, " row"]


class Warm:
    """`model`, its variables taken as real ones. `iterations`: simplex ones, of all
    answers so far."""

    def __init__(self, model: LinearModel) -> None:
        import highspy

        status: Any = highspy.HighsModelStatus
        self._found: Any = status.kOptimal
        self._none: Any = (status.kInfeasible, status.kObjectiveBound)
        with SILENT:
            self._highs: Any = new_solver(
                dataclasses.replace(model, whole=False),
                {"presolve": "off", "solver": "simplex"},
            )
        self.iterations = 0
        self.row_low = model.row_low.astype(float)
        self.row_high = model.row_high.astype(float)

    def least(
        self,
        row_low: Float[np.ndarray, " row"],
        row_high: Float[np.ndarray, " row"],
        below: float = np.inf,
    ) -> float:
        """The least cost within these limits; infinite where there is none, or none
        less than `below`; NaN where HiGHS found neither."""
        moved = np.flatnonzero((row_low != self.row_low) | (row_high != self.row_high))
        if len(moved):
            at = moved.astype(np.int32)
            self._highs.changeRowsBounds(len(at), at, row_low[moved], row_high[moved])
        self.row_low, self.row_high = row_low, row_high
        self._highs.setOptionValue("objective_bound", below)
        self._run()
        if self._highs.getModelStatus() not in (self._found, *self._none):
            self._highs.clearSolver()  # without the last basis
            self._run()
        ended = self._highs.getModelStatus()
        if ended in self._none:
            return np.inf
        if ended != self._found:
            return np.nan
        cost = float(self._highs.getObjectiveValue())
        return cost if cost < below else np.inf

    def _run(self) -> None:
        self._highs.run()
        self.iterations += max(0, self._highs.getInfo().simplex_iteration_count)

    @property
    def solution(self) -> Solution:
        """Of the last answer."""
        found = self._highs.getSolution()
        return Solution(
            *(np.array(x) for x in (found.row_value, found.col_dual, found.row_dual))
        )
