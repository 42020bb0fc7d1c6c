"""Choices of one item per row for every budget at once, by dynamic programming."""

from typing import Final

import numpy as np
from jaxtyping import Float, Int

STEPS: Final = 20_000
"""Steps of weight between the lightest and the heaviest choice."""
_CELLS: Final = 4_000_000
"""Most rows x steps; above, steps are fewer."""


def choices(
    weight: Float[np.ndarray, "row item"],
    cost: Float[np.ndarray, "row item"],
    most: float = np.inf,
    prune: bool = True,
    steps: int = STEPS,
) -> Int[np.ndarray, "choice row"]:
    """Near-cheapest item of every row, for many total weights up to `most`.

    Weights are rounded to the nearest of `steps` steps, so a choice may be a little
    heavier or lighter than its budget: total it exactly before use. Items that are not
    finite are left out. `prune` drops items that are heavier and not cheaper than
    another of their row, which is right unless a heavier choice is wanted for its own
    sake.
    """
    usable = np.isfinite(weight) & np.isfinite(cost)
    weight = np.where(usable, weight, np.inf)
    lightest = weight.min(1)
    heaviest = np.where(usable, weight, -np.inf).max(1)
    span = min(most, float(heaviest.sum())) - float(lightest.sum())
    if span <= 0:
        return _lightest(weight, cost)[None]
    steps = max(min(steps, _CELLS // len(weight)), 200)
    # a margin for choices whose roundings add up
    room = steps + len(weight)
    bins = np.where(usable, (weight - lightest[:, None]) / (span / steps), room)
    bins = np.rint(np.minimum(bins, room)).astype(np.int64)
    wanted = usable & (bins < room)
    best, taken = np.full(room, np.inf), []
    best[0] = 0.0
    for row, items in enumerate(wanted):
        kept = np.flatnonzero(items)
        if prune:
            kept = kept[np.sort(undominated(weight[row, kept], cost[row, kept]))]
        best, item = _extend(best, bins[row], cost[row], kept)
        taken.append(item)
    return _traced(np.flatnonzero(np.isfinite(best)), bins, taken)


def undominated(
    weight: Float[np.ndarray, " item"], cost: Float[np.ndarray, " item"]
) -> Int[np.ndarray, " kept"]:
    """Items that are cheaper than all lighter ones, by rising weight."""
    order = np.lexsort((cost, weight))
    least = np.minimum.accumulate(cost[order])
    before = np.concatenate([[np.inf], least[:-1]])
    return order[cost[order] < before]


def _lightest(weight: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Lightest item of every row, the cheapest of equals."""
    light = weight <= weight.min(1, keepdims=True)
    return np.where(light, cost, np.inf).argmin(1)


def _extend(
    best: np.ndarray, bins: np.ndarray, cost: np.ndarray, items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least cost for every weight with one more row, and the item that attains it."""
    longer, taken = np.full_like(best, np.inf), np.zeros(len(best), np.int32)
    for item in items:
        shift = bins[item]
        value = best[: len(best) - shift] + cost[item]
        better = value < longer[shift:]
        np.copyto(longer[shift:], value, where=better)
        np.copyto(taken[shift:], item, where=better)
    return longer, taken


def _traced(
    end: np.ndarray, bins: np.ndarray, taken: list[np.ndarray]
) -> Int[np.ndarray, "choice row"]:
    """Items along the best path to every weight in `end`."""
    chosen = np.empty((len(end), len(taken)), np.int64)
    for row in reversed(range(len(taken))):
        chosen[:, row] = taken[row][end]
        end = end - bins[row, chosen[:, row]]
    return chosen
