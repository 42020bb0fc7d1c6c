"""Integer programs by HiGHS, in a thread of their own so that Ctrl-C is heard."""

import concurrent.futures
import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

_SIZE = 1e4
"""Costs are scaled to this: HiGHS ends at an absolute gap of 1e-6."""
_LEAST = 0.05
"""s that a search is given at least."""


@dataclasses.dataclass(frozen=True)
class Found:
    """`values`: the best found, None without any; no solution costs less than `bound`
    (infinite: there is none at all); `proven`: the search ended by itself."""

    values: Float[np.ndarray, " column"] | None
    bound: float
    proven: bool


def least(
    cost: Float[np.ndarray, " column"],
    matrix: sparse.csr_array,
    low: Float[np.ndarray, " limit"],
    high: Float[np.ndarray, " limit"],
    most: Float[np.ndarray, " column"],
    *,
    seconds: float,
    gap: float = 0.0,
    whole: Float[np.ndarray, " column"] | None = None,
) -> Found:
    """Least `cost @ x` with low <= matrix @ x <= high and 0 <= x <= most, within
    `seconds` or the relative `gap`; x is whole, or where `whole` is 1."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    unit = float(np.abs(cost).max(initial=0.0)) / _SIZE or 1.0
    options = {"time_limit": max(_LEAST, seconds), "mip_rel_gap": gap}
    kind = np.ones(len(cost)) if whole is None else whole
    if not len(cost):
        fits = bool((low <= 0).all() and (high >= 0).all())
        return Found(np.zeros(0) if fits else None, 0.0 if fits else np.inf, True)

    def solve() -> Any:
        return milp(
            cost / unit,
            integrality=kind,
            bounds=Bounds(0, most),  # pyright: ignore[reportArgumentType]
            constraints=LinearConstraint(matrix, low, high),  # pyright: ignore[reportArgumentType]
            options=options,
        )

    with hushed(), concurrent.futures.ThreadPoolExecutor(1) as thread:
        found = thread.submit(solve).result()
    if found.status == 2:
        return Found(None, np.inf, True)
    bound = -np.inf if found.mip_dual_bound is None else found.mip_dual_bound * unit
    values = None if found.x is None else np.where(kind, np.round(found.x), found.x)
    return Found(values, float(bound), found.status == 0)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Within it, what HiGHS prints by itself goes nowhere: our output may be JSON.

    Searches side by side are within one that is around them all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
