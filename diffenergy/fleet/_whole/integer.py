"""Integer programs by HiGHS, scaled so that its tolerances do not matter."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from ...search import LinearModel, highs
from .work import PER_CHECK, Work, checks_in, program_work

_SIZE = 1e4
"""Costs are scaled to this: HiGHS ends at an absolute gap of 1e-6."""
_LEAST = 0.05
"""Work (s) that a search is given at least."""


@dataclasses.dataclass(frozen=True)
class Found:
    """`values`: the best found, None without any; no solution costs less than `bound`
    (infinite: there is none at all); `proven`: the search ended by itself."""

    values: Float[np.ndarray, "*slot column"] | None
    bound: float
    proven: bool


def least(
    cost: Float[np.ndarray, " column"],
    matrix: sparse.csr_array,
    low: Float[np.ndarray, " limit"],
    high: Float[np.ndarray, " limit"],
    most: Float[np.ndarray, " column"],
    *,
    work: Work,
    gap: float = 0.0,
    whole: Bool[np.ndarray, " column"] | None = None,
) -> Found:
    """Least `cost @ x` with low <= matrix @ x <= high and 0 <= x <= most, within the
    `work` or the relative `gap`; x is whole, or where `whole` says so."""
    unit = float(np.abs(cost).max(initial=0.0)) / _SIZE or 1.0
    kind = np.ones(len(cost), bool) if whole is None else whole
    if not len(cost):
        fits = bool((low <= 0).all() and (high >= 0).all())
        return Found(np.zeros(0) if fits else None, 0.0 if fits else np.inf, True)

    model = LinearModel(matrix, low, high, np.zeros(len(cost)), most, cost / unit, kind)
    size, wall = matrix.nnz, max(_LEAST, work.wall_left)
    checks = checks_in(max(_LEAST, work.left), size)
    found = highs(model, time_limit=wall, gap=gap, checks=checks)
    work.add(program_work(size) + PER_CHECK * size * found.checks)
    if found.status == "infeasible":
        return Found(None, np.inf, True)
    bound = -np.inf if found.bound is None else float(found.bound * unit)
    values = found.values
    if values is not None:
        values = np.where(kind, np.round(values), values)
    return Found(values, bound, found.status == "optimal")
