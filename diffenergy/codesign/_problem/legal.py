"""From numbers of a descent to designs that hardware offers: rounding, single steps."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from .._space.axes import Axis
from .exact import Judge, Judged, Target

MOST_ROUNDINGS: Final = 64
"""All combinations of up to six discrete axes; more are drawn."""
_SPANS: Final = (0.001, 0.004, 0.015, 0.05, 0.15)
"""Steps of continuous axes, as shares of the logarithm of high / low."""
_FINER: Final = (2, 1, 0)
"""Spans of next steps, in turn."""
_REACH: Final = 7
"""Longest step: 2^6 values, which crosses the plateau of clocks above a power cap."""
_MOST_VALUES: Final = 32
"""Values of an axis that are tried as such."""
_MOST_PAIRS: Final = 192
_MOST_SWEEPS: Final = 200
_GAIN: Final = 1e-9
"""Relative gain that counts as one."""

Point = Float[np.ndarray, " axis"]
Points = Float[np.ndarray, "design axis"]
Move = tuple[int, float]
"""Axis and its new value."""


def nearest(axes: Sequence[Axis], values: Points) -> Points:
    """Every number moved to the nearest legal one."""
    moved = values.copy()
    for n, axis in enumerate(axes):
        if axis.legal is None:
            moved[:, n] = np.clip(values[:, n], axis.low, axis.high)
        else:
            away = np.abs(np.log(values[:, n, None] / axis.values))
            moved[:, n] = axis.values[np.argmin(away, axis=1)]
    return moved


def roundings(axes: Sequence[Axis], values: Point, rng: np.random.Generator) -> Points:
    """Every discrete number rounded both ways: all combinations, or the nearest one
    and draws by nearness where there are more than `MOST_ROUNDINGS`."""
    down, up = _brackets(axes, values)
    gap = np.log(up / down)
    split = np.flatnonzero(gap > 0)
    share = np.zeros(len(axes))
    share[split] = np.log(values[split] / down[split]) / gap[split]
    if 2 ** len(split) <= MOST_ROUNDINGS:
        bits = np.arange(2 ** len(split))[:, None] >> np.arange(len(split)) & 1
        ups = np.zeros((2 ** len(split), len(axes)), bool)
        ups[:, split] = bits > 0
    else:
        ups = rng.uniform(size=(MOST_ROUNDINGS, len(axes))) < share
        ups[0] = share > 0.5
    return np.unique(np.where(ups, up, down), axis=0)


def _brackets(axes: Sequence[Axis], values: Point) -> tuple[Point, Point]:
    """Legal neighbours below and above every number; both the number itself for a
    continuous axis."""
    down, up = values.copy(), values.copy()
    for n, axis in enumerate(axes):
        if axis.legal is None:
            down[n] = up[n] = np.clip(values[n], axis.low, axis.high)
            continue
        legal, above = axis.values, int(np.searchsorted(axis.values, values[n]))
        down[n] = legal[max(above - 1, 0)]
        up[n] = legal[min(above, len(legal) - 1)]
    return down, up


def moves(axes: Sequence[Axis], point: Point, reach: int = 0) -> list[Move]:
    """Single steps from `point`: (axis, new value). `reach` 0: to the next legal value,
    or by the least span of a continuous axis; n: 2^n values, the n-th span."""
    steps = []
    for n, axis in enumerate(axes):
        if axis.legal is None:
            factor = (axis.high / axis.low) ** _SPANS[min(reach, len(_SPANS) - 1)]
            ways = [point[n] / factor, point[n] * factor]
            ways = [min(max(way, axis.low), axis.high) for way in ways]
        else:
            here = int(np.argmin(np.abs(np.log(axis.values / point[n]))))
            ways = [here - 2**reach, here + 2**reach]
            ways = [axis.legal[i] for i in ways if 0 <= i < len(axis.legal)]
        steps += [(n, float(way)) for way in ways if way != point[n]]
    return steps


def moved(point: Point, changes: Sequence[Move]) -> Point:
    """`point` with some numbers changed."""
    there = point.copy()
    for axis, value in changes:
        there[axis] = value
    return there


def polish(
    judge: Judge,
    axes: Sequence[Axis],
    target: Target,
    point: Point,
    rng: np.random.Generator,
    sweeps: int | None = None,
) -> Point:
    """Design from which no single legal step is better, nor any of the longer steps
    and of the drawn pairs of steps. Steps that gain are also tried together. With
    `sweeps`: after so many, or as soon as no single step is better."""
    level, gained = 0, False
    levels = len(_FINER) + (1 if sweeps else 2)
    for _ in range(sweeps or _MOST_SWEEPS):
        there = _best(judge, target, point, _tries(axes, point, level, rng))
        if there is not None:
            point, gained = there, True
            level = level if level < len(_FINER) else 0
            continue
        level += 1
        if level == levels and not gained:
            return point
        if level == levels:
            level, gained = 0, False
    return point


def _thinned(legal: Sequence[float]) -> list[float]:
    count = min(len(legal), _MOST_VALUES)
    return [legal[i] for i in np.linspace(0, len(legal) - 1, count).astype(int)]


def _tries(
    axes: Sequence[Axis], point: Point, level: int, rng: np.random.Generator
) -> list[list[Move]]:
    """What to change: next steps, finer and finer on continuous axes, then longer ones
    and legal values all over an axis (under a power limit the clocks above the held one
    are a plateau), then pairs of any steps."""
    if level < len(_FINER):
        return [[move] for move in next_moves(axes, point, _FINER[level])]
    tried = dict.fromkeys(next_moves(axes, point, _FINER[0]))
    every = dict.fromkeys(move for n in range(_REACH) for move in moves(axes, point, n))
    if level == len(_FINER):
        far = {
            (n, float(value)): None
            for n, axis in enumerate(axes)
            for value in _thinned(axis.legal or ())
            if value != point[n]
        }
        return [[move] for move in every | far if move not in tried]
    return _pairs([[move] for move in every | tried], rng)


def next_moves(axes: Sequence[Axis], point: Point, span: int) -> list[Move]:
    """Steps to the next legal value, by the `span`-th span of continuous axes."""
    steps = [step for step in moves(axes, point) if axes[step[0]].legal is not None]
    further = moves(axes, point, span)
    return [*steps, *(step for step in further if axes[step[0]].legal is None)]


def _pairs(singles: list[list[Move]], rng: np.random.Generator) -> list[list[Move]]:
    """Two steps at once, on different axes; drawn if there are many."""
    first, second = np.triu_indices(len(singles), 1)
    axis = np.array([change[0][0] for change in singles])
    apart = np.flatnonzero(axis[first] != axis[second])
    if len(apart) > _MOST_PAIRS:
        apart = rng.choice(apart, _MOST_PAIRS, replace=False)
    return [[*singles[first[i]], *singles[second[i]]] for i in apart]


def _best(
    judge: Judge, target: Target, point: Point, changes: list[list[Move]]
) -> Point | None:
    """The best of the changed designs and of gains taken together; None: no better."""
    if not changes:
        return None
    tried = np.stack([point, *(moved(point, change) for change in changes)])
    judged = judge(tried)
    order = judged.order(target)
    gains = [int(n) - 1 for n in order if better(judged, target, int(n), 0)]
    if not gains:
        return None
    together = _together([changes[n] for n in gains])
    if together:
        more = np.stack([moved(point, change) for change in together])
        judged = judge(np.concatenate([tried[:1], tried[order[:1]], more]))
        return judged.values[judged.order(target)[0]]
    return tried[order[0]]


def _together(gains: list[list[Move]]) -> list[list[Move]]:
    """The best two, three, ... gains on different axes as one step."""
    joint: list[Move] = []
    sums = []
    for change in gains:
        if not {axis for axis, _ in joint} & {axis for axis, _ in change}:
            joint = [*joint, *change]
            sums.append(joint)
    return sums[1:]


def better(judged: Judged, target: Target, a: int, b: int) -> bool:
    """Whether design `a` beats `b`: less of a limit passed, or, with both keeping the
    limits, a lower objective."""
    violation, value = judged.violation(target), judged.objective(target)
    if violation[a] or violation[b]:
        return bool(violation[a] < violation[b] * (1 - _GAIN))
    return bool(value[a] < value[b] - _GAIN * abs(value[b]))
