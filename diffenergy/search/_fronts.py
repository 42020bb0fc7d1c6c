"""Points that are worth choosing: Pareto front, lower convex hull, best within limits.

Smaller is better in every column. Points that are not finite are left out.
"""

import numpy as np
from jaxtyping import Float, Int, Num


def pareto_front(
    *columns: Num[np.ndarray, " point"], group: Num[np.ndarray, " point"] | None = None
) -> Int[np.ndarray, " front"]:
    """Indices of the points that no other one of their group beats.

    One point beats another if it is as good in every column and better in one. Of equal
    points the first stays. In order of group, then of the columns, the first outermost.

    Args:
        columns: one figure of every point each, to be small.
        group: points of different groups do not beat each other [one group].

    >>> pareto_front(np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 2.0])).tolist()
    [1, 0]
    """
    table = np.array(columns)
    groups = np.zeros(table.shape[1]) if group is None else group
    usable = np.flatnonzero(np.isfinite(table).all(axis=0))
    rest = usable[np.lexsort((*table[::-1, usable], groups[usable]))]
    if len(columns) == 2:
        return rest[_below_all_before(groups[rest], table[1, rest])]
    front = []
    # A point can only be beaten by one before it: the first of those left is in the
    # front, and takes away all that it beats.
    while len(rest):
        front.append(rest[0])
        beaten = (table[:, rest] >= table[:, rest[:1]]).all(axis=0)
        rest = rest[~(beaten & (groups[rest] == groups[rest[0]]))]
    return np.array(front, int)


def lower_hull(
    x: Num[np.ndarray, " point"],
    y: Num[np.ndarray, " point"],
    group: Num[np.ndarray, " point"] | None = None,
) -> Int[np.ndarray, " vertex"]:
    """Indices of the vertices of the lower convex hull of every group.

    In order of group, then of `x`; points on a straight line between two vertices are
    none, and of equal points the first stays.

    >>> x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 3.5, 1.0])
    >>> lower_hull(x, y).tolist()
    [0, 2]
    """
    groups = np.zeros(len(x)) if group is None else group
    usable = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    order = usable[np.lexsort((y[usable], x[usable], groups[usable]))]
    xs, ys, of = x[order].tolist(), y[order].tolist(), groups[order].tolist()
    hull: list[int] = []
    for i in range(len(order)):
        if hull and (of[i], xs[i]) == (of[hull[-1]], xs[hull[-1]]):
            continue
        while len(hull) > 1 and of[hull[-2]] == of[i]:
            a, b = hull[-2:]
            if (ys[b] - ys[a]) * (xs[i] - xs[b]) < (ys[i] - ys[b]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(i)
    return order[hull]


def best_within(
    x: Num[np.ndarray, " point"],
    y: Num[np.ndarray, " point"],
    limits: Float[np.ndarray, " limit"],
) -> Int[np.ndarray, " limit"]:
    """Index of the point of least `y` with `x` within each limit; -1 where none is.

    Of equal `y` the least `x`.
    """
    front = pareto_front(x, y)
    last = np.searchsorted(x[front], limits, "right") - 1
    return np.where(last < 0, -1, np.append(front, -1)[last])


def _below_all_before(
    group: Num[np.ndarray, " point"], value: Num[np.ndarray, " point"]
) -> np.ndarray:
    """Whether each value is below all before it in its group; groups are in order."""
    starts = np.append(False, group[1:] != group[:-1])[: len(value)]
    if starts.any():
        # One running minimum for all: ranks, those of a group below all of the groups
        # before it.
        _, rank = np.unique(value, return_inverse=True)
        value = rank - np.cumsum(starts) * len(value)
    least = np.minimum.accumulate(value)
    return np.append(True, value[1:] < least[:-1])[: len(value)]
