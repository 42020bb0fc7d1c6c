"""`ring_order`: a ring through all GPUs whose worst and whose total hops are short.

An assignment of successors of least cost gives cycles (Karp's patching, 1979), which
are joined where that costs least; exchanges of segments then improve the ring. Costs
are raised to a power, so that the worst hop counts before the sum. Deterministic.
"""

from typing import Final

import numpy as np
from jaxtyping import Float, Int

_POWER: Final = 4.0
"""Power of the costs; with 4 a hop that is twice as long counts as 16."""
_MOST_SEGMENTS: Final = 48
"""GPUs up to which exchanges of two segments are tried: their number cubed, each."""
_MOST_TURNS: Final = 256
"""GPUs up to which segments are turned round."""
_ROUNDS: Final = 100
_TIE: Final = 1e-6
"""Share of a weight that decides between equals."""


def ring_order(
    cost: Float[np.ndarray, "gpu gpu"], tries: int = 8
) -> Int[np.ndarray, " gpu"]:
    """Places of the GPUs in order round the ring, from 0 on; `cost`: s from one (row)
    to the next."""
    count = len(cost)
    if count < 3:
        return np.arange(count)
    apart = ~np.eye(count, dtype=bool)
    weight = np.where(apart, cost / cost[apart].min(), 1.0) ** _POWER
    # Of rings that are as short, the one in order of the numbers.
    number = np.arange(count)
    weight += _TIE * ((number[None] - number[:, None] - 1) % count) / count
    random = np.random.default_rng(0)
    best, order = np.inf, number
    for _ in range(tries):
        found, least = _ring(weight)
        along = float(weight[found, np.roll(found, -1)].sum())
        if along < best:
            best, order = along, found
        if best <= least * (1 + 10 * _TIE):
            break
        weight = weight * (1 + _TIE * random.random(weight.shape))
    return np.roll(order, -int(np.argmin(order)))


def _ring(
    weight: Float[np.ndarray, "gpu gpu"],
) -> tuple[Int[np.ndarray, " gpu"], float]:
    """A ring, and what none can be less than."""
    successor, least = _cycles(weight)
    order = _cycle(_joined(weight, successor))
    for _ in range(_ROUNDS):
        along = weight[order, np.roll(order, -1)].sum()
        better = _exchanged(weight, order)
        if along <= least * (1 + 10 * _TIE) or better is None:
            break
        order = better
    return order, least


def _cycles(
    weight: Float[np.ndarray, "gpu gpu"],
) -> tuple[Int[np.ndarray, " gpu"], float]:
    """Successors of least total weight, none its own, and that weight."""
    from scipy.optimize import linear_sum_assignment

    closed = weight.copy()
    np.fill_diagonal(closed, 1e3 * weight.sum())
    rows, successor = linear_sum_assignment(closed)
    return np.asarray(successor, int), float(closed[rows, successor].sum())


def _joined(
    weight: Float[np.ndarray, "gpu gpu"], successor: Int[np.ndarray, " gpu"]
) -> Int[np.ndarray, " gpu"]:
    """Successors in one ring: two cycles swap a successor, the cheapest swap first."""
    successor = successor.copy()
    cycle = np.full(len(successor), -1)
    for first in range(len(successor)):
        if cycle[first] < 0:
            cycle[_cycle(successor, first)] = first
    here = np.arange(len(successor))
    while (cycle != cycle[0]).any():
        ahead = weight[:, successor]  # from a to the successor of b
        swap = ahead + ahead.T - (ahead[here, here] + ahead[here, here][:, None])
        swap[cycle[:, None] == cycle] = np.inf
        a, b = np.unravel_index(int(swap.argmin()), swap.shape)
        successor[[a, b]] = successor[[b, a]]
        cycle[cycle == cycle[b]] = cycle[a]
    return successor


def _cycle(
    successor: Int[np.ndarray, " gpu"], first: int = 0
) -> Int[np.ndarray, " place"]:
    """Places in order from the first on, until it comes again."""
    order = [first]
    while successor[order[-1]] != first:
        order.append(int(successor[order[-1]]))
    return np.array(order)


def _exchanged(
    weight: Float[np.ndarray, "gpu gpu"], order: Int[np.ndarray, " gpu"]
) -> Int[np.ndarray, " gpu"] | None:
    """The ring after the best exchange; None if none makes it shorter."""
    count = len(order)
    along = weight[np.ix_(order, order)]
    ahead = np.roll(along, -1, axis=1)  # from the place of the row to one after
    now = np.diagonal(ahead)
    near = -1e-9 * now.sum()
    best: tuple[float, Int[np.ndarray, " gpu"]] | None = None
    if count <= _MOST_TURNS:
        gain, (i, j) = _best_turn(along, now)
        if gain < near:
            turned = order[i + 1 : j + 1][::-1]
            best = gain, np.concatenate([order[: i + 1], turned, order[j + 1 :]])
    if count <= _MOST_SEGMENTS:
        gain, (i, j, k) = _best_swap(ahead, now)
        if gain < (best[0] if best else near):
            parts = (order[: i + 1], order[j + 1 : k + 1], order[i + 1 : j + 1])
            best = gain, np.concatenate([*parts, order[k + 1 :]])
    return best[1] if best else None


def _best_turn(
    along: Float[np.ndarray, "gpu gpu"], now: Float[np.ndarray, " gpu"]
) -> tuple[float, tuple[int, int]]:
    """Change of weight if what lies after place i up to j is turned round."""
    count = len(now)
    i, j = np.triu_indices(count, 1)
    after = (j + 1) % count
    back = np.diagonal(np.roll(along, -1, axis=0))  # from each place to the one before
    gone, come = (np.concatenate([[0.0], np.cumsum(x)]) for x in (now, back))
    change = along[i, j] + along[i + 1, after] - now[i] - now[j]
    change += (come[j] - come[i + 1]) - (gone[j] - gone[i + 1])
    best = int(change.argmin())
    return float(change[best]), (int(i[best]), int(j[best]))


def _best_swap(
    ahead: Float[np.ndarray, "gpu gpu"], now: Float[np.ndarray, " gpu"]
) -> tuple[float, tuple[int, int, int]]:
    """Change of weight if the segments (i, j] and (j, k] change places."""
    i, j, k = np.ogrid[: len(now), : len(now), : len(now)]
    change = ahead[:, :, None] + ahead.T[:, None, :] + ahead[None]
    change = change - now[:, None, None] - now[:, None] - now
    change = np.where((i < j) & (j < k), change, np.inf)
    best = np.unravel_index(int(change.argmin()), change.shape)
    return float(change[best]), (int(best[0]), int(best[1]), int(best[2]))
