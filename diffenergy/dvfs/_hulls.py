"""Lower convex hulls, their sums, and the bound that they prove.

Whatever settings the kernels of a stage take, the sum of times and energies lies above
the sum of the kernels' lower hulls. Host time bends that curve; straight lines below
the bent curve keep it a bound.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..physics import Seconds, gpu_time_of_slope, stage_slope, stage_time
from ..search import lower_hull
from ._problem import Problem

_PIECES: Final = 64
"""Points at which a curve that host time bends is touched by straight lines."""


class Line(NamedTuple):
    """Vertices of a convex polyline, from left to right."""

    x: Float[np.ndarray, " vertex"]
    y: Float[np.ndarray, " vertex"]

    def at(self, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        """Least y at or left of `x`; infinite left of the line, or without one."""
        if len(self.x) == 0:
            return np.full(x.shape, np.inf)
        lowest = int(np.argmin(self.y))
        falling = np.interp(x, self.x[: lowest + 1], self.y[: lowest + 1])
        return np.where(x < self.x[0], np.inf, falling)

    def price(self, x: float) -> float:
        """By how much y falls for each x more, at `x`; 0 where it rises."""
        if not np.isfinite(x) or len(self.x) < 2:
            return 0.0
        i = int(np.clip(np.searchsorted(self.x, x), 1, len(self.x) - 1))
        slope = (self.y[i] - self.y[i - 1]) / (self.x[i] - self.x[i - 1])
        return float(max(-slope, 0.0))


class HullSum(NamedTuple):
    """Sum of hulls; every vertex is one vertex of each summand."""

    line: Line
    hulls: tuple[Int[np.ndarray, " vertex"], ...]  # indices into the summands' points
    steps: tuple[Int[np.ndarray, " step"], ...]  # vertex at which each summand moves on

    def choice(
        self, vertices: Int[np.ndarray, " vertex"]
    ) -> Int[np.ndarray, "vertex summand"]:
        """Point of every summand at some vertices of the sum."""
        moved = [np.searchsorted(step, vertices, "right") for step in self.steps]
        pairs = zip(self.hulls, moved, strict=True)
        return np.stack([hull[i] for hull, i in pairs], axis=-1)


def hull_sum(points: Sequence[tuple[np.ndarray, np.ndarray]]) -> HullSum:
    """Sum of the lower hulls of several point sets (x, y): slopes merged.

    Each set needs a finite point.
    """
    hulls = tuple(lower_hull(x, y) for x, y in points)
    run = [np.diff(x[h]) for (x, _), h in zip(points, hulls, strict=True)]
    rise = [np.diff(y[h]) for (_, y), h in zip(points, hulls, strict=True)]
    owner = np.repeat(np.arange(len(points)), [len(r) for r in run])
    runs, rises = np.concatenate(run), np.concatenate(rise)
    order = np.argsort(rises / runs, kind="stable")
    start = [(x[h[0]], y[h[0]]) for (x, y), h in zip(points, hulls, strict=True)]
    x0, y0 = np.sum(start, axis=0)
    line = Line(
        np.concatenate([[x0], x0 + np.cumsum(runs[order])]),
        np.concatenate([[y0], y0 + np.cumsum(rises[order])]),
    )
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    steps = tuple(rank[owner == k] for k in range(len(points)))
    return HullSum(line, hulls, steps)


def kernel_points(problem: Problem, stage: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(time, energy beyond waiting) of every kernel of a stage at every setting.

    With E = sum of energies + wait power (stage time - GPU time), a kernel that runs
    longer saves waiting: its own part is energy - wait power x time.
    """
    rows = np.flatnonzero(problem.stage == stage)
    time = problem.count[rows, None] * problem.time[rows]
    energy = problem.count[rows, None] * problem.energy[rows]
    # inf - inf where a kernel cannot run
    with np.errstate(invalid="ignore"):
        spent = energy - problem.wait_power[stage] * time
    return list(zip(time, spent, strict=True))


def stage_bound(problem: Problem, stage: int, line: Line) -> Line:
    """Polyline below every (stage time, stage energy) that the caps allow.

    `line` is the hull of (GPU time, energy beyond waiting). With x the GPU time and
    T(x) the stage time, the curve (T(x), line(x) + wait power T(x)) is convex where
    `line` falls: chords of tangents bound it. A piece that rises is concave, and its
    own chord does. No vertices if nothing keeps the cap.
    """
    host, wait = problem.host_time[stage], problem.wait_power[stage]
    x = _from_cap(line, host, wait, problem.power_cap[stage])
    if len(x) == 0:
        return Line(x, x)
    if host == 0:
        y = np.interp(x, line.x, line.y) + wait * x
        return Line(x, y)
    x = _refined(x, host)
    time = stage_time(x, host)
    energy = np.interp(x, line.x, line.y) + wait * time
    slope = np.diff(np.interp(x, line.x, line.y)) / np.diff(x)
    # slope 0 (the host decides alone) would be divided by below
    bend = np.maximum(stage_slope(x, host), 1e-12)
    left, right = wait + slope / bend[:-1], wait + slope / bend[1:]
    corner = _crossing(time, energy, left, right)
    bent = slope < 0
    xs = np.concatenate([time, corner[0][bent]])
    ys = np.concatenate([energy, corner[1][bent]])
    hull = lower_hull(xs, ys)
    return Line(xs[hull], ys[hull])


def _from_cap(line: Line, host: float, wait: float, cap: float) -> np.ndarray:
    """GPU times of the vertices from where the cap is first kept."""
    if np.isinf(cap):
        return line.x

    def over(x: Seconds) -> Float[np.ndarray, "..."] | float:
        time = stage_time(x, host)
        return np.interp(x, line.x, line.y) + (wait - cap) * time

    x = _refined(line.x, host) if host > 0 else line.x
    inside = np.flatnonzero(over(x) <= 0)
    if len(inside) == 0:
        return np.empty(0)
    first = inside[0]
    if first == 0:
        return line.x
    low, high = x[first - 1], x[first]
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if over(middle) > 0 else (low, middle)
    return np.concatenate([[low], line.x[line.x > low]])


def _refined(x: np.ndarray, host: float) -> np.ndarray:
    """`x` and points between, dense where the host bends the stage time."""
    slopes = np.linspace(0, 1, _PIECES + 2)[1:-1]
    bends = gpu_time_of_slope(slopes, host)
    even = np.linspace(x[0], x[-1], _PIECES)
    inside = np.concatenate([bends, even])
    inside = inside[(inside > x[0]) & (inside < x[-1])]
    return np.unique(np.concatenate([x, inside]))


def _crossing(
    time: np.ndarray, energy: np.ndarray, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the tangents at both ends of every piece meet."""
    run = np.diff(time)
    rise = np.diff(energy)
    bend = right - left
    safe = bend > 1e-9 * np.abs(left)
    share = (right * run - rise) / np.where(safe, bend, 1.0)
    share = np.clip(np.where(safe, share, 0.5 * run), 0.0, run)
    straight = energy[:-1] + np.where(run > 0, share, 0.0) * left
    steep = run < 1e-12 * time[1:]
    low = np.minimum(energy[:-1], energy[1:])
    return time[:-1] + share, np.where(steep, low, straight)
