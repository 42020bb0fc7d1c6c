"""Tokens per expert of a mixture of experts, by the rules of the AIConfigurator
collector; made on the host, as they depend on shapes alone.
"""

import bisect
import functools
import re
from typing import Final

import numpy as np

BINS: Final = 64
"""Expert loads are held as at most this many sorted values with weights."""
DISTRIBUTIONS: Final = ("balanced", "power_law_X")
"""Words of `distribution`; X is a number."""
_POWER_LAW: Final = re.compile(r"power_law_(\d+(?:\.\d+)?)")
_DRAWS: Final = 5
_LEAST_TILE: Final = 16
"""Rows of the smallest tile; divides those of all others."""


def balanced_counts(tokens: int, experts: int, topk: int) -> np.ndarray:
    """Tokens of each expert, in order: choice j of token i goes to expert
    i + j stride, stride = ceil(experts/topk); fewer tokens than that are spread."""
    stride = -(-experts // topk)
    part = tokens % experts
    i = np.arange(part)
    if tokens < stride:
        i = i * stride // tokens
    picked = (i[:, None] + stride * np.arange(topk)) % experts
    return np.bincount(picked.ravel(), minlength=experts) + tokens // experts * topk


def power_law_counts(
    tokens: int, topk: int, ranks: int, exponent: float, u: np.ndarray
) -> np.ndarray:
    """Tokens of each expert from a bounded power law at probabilities `u`.

    Rounded, at most `tokens` each. What the sum lacks of `tokens` x `topk` goes to the
    smallest counts, what it has too much comes off the largest, rank by rank in turns.
    """
    counts, cut, lack = _rounded(tokens, topk, exponent, u)
    groups = counts.reshape(ranks, -1)
    for units in (cut, lack):
        sign = 1 if units > 0 else -1
        room = np.sum(tokens - groups if units > 0 else groups, axis=1)
        shares = _in_turns(abs(units), room)
        groups = sign * _filled(sign * groups, shares)
    return groups.ravel()


def units_dealt(tokens: int, experts: int, topk: int, distribution: str) -> float:
    """Units that a power law's rounding moves one by one, mean of five fixed draws.

    The collector does so on the host before it measures: the board idles meanwhile.
    """
    exponent = _exponent(distribution)
    if exponent is None:
        return 0.0
    moved = [_rounded(tokens, topk, exponent, u)[1:] for u in _draws(experts)]
    return float(np.abs(moved).sum() / _DRAWS)


def _draws(experts: int) -> np.ndarray:
    """Probabilities of every expert in each of the draws."""
    return np.random.default_rng(0).random((_DRAWS, experts))


def _rounded(
    tokens: int, topk: int, exponent: float, u: np.ndarray
) -> tuple[np.ndarray, int, int]:
    """(rounded counts of at most `tokens`, units that this limit cut off, units that
    they lacked before of `tokens` x `topk`; negative: too many)."""
    total, a = tokens * topk, exponent
    low, high = (1.0, 0.8 * tokens) if total > len(u) else (0.01, 2.0)
    high = max(high, low * (1 + 1e-6))
    if abs(a - 1) < 1e-9:
        x = low * (high / low) ** u
    else:
        x = ((high ** (1 - a) - low ** (1 - a)) * u + low ** (1 - a)) ** (1 / (1 - a))
    raw = np.round(x / x.sum() * total).astype(int)
    counts = np.minimum(raw, tokens)
    return counts, int(raw.sum() - counts.sum()), total - int(raw.sum())


def _in_turns(n: int, room: np.ndarray) -> np.ndarray:
    """`n` units dealt one by one, in turns, to those that have room left."""
    whole = range(1, int(room.max()) + 1)
    turns = bisect.bisect(whole, n, key=lambda t: np.minimum(room, t).sum())
    dealt = np.minimum(room, turns)
    dealt[np.flatnonzero(room > turns)[: n - dealt.sum()]] += 1
    return dealt


def _filled(groups: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Each row of `groups` with its `units` added one by one, each to the smallest (the
    first of equals)."""
    order = np.argsort(groups, axis=1, kind="stable")
    low = np.take_along_axis(groups, order, 1)
    width = np.arange(1, groups.shape[1] + 1)
    cost = low * width - np.cumsum(low, axis=1)  # to raise all before to this one
    raised = np.sum(cost <= units[:, None], axis=1)
    last = np.arange(len(groups)), raised - 1
    level = (low[last] + (units - cost[last]) // raised)[:, None]
    filled = np.maximum(groups, level)
    rest = units - np.sum(filled - groups, axis=1)
    turn = np.cumsum(filled == level, axis=1)
    return filled + ((filled == level) & (turn <= rest[:, None]))


def expert_counts(
    tokens: int, experts: int, topk: int, distribution: str
) -> np.ndarray:
    """Tokens per expert, ascending; their sum is `tokens` x `topk`.

    `balanced`: spread evenly. `power_law_X`: quantiles of a bounded power law with
    exponent X. Raises `ValueError` for any other name.
    """
    exponent = _exponent(distribution)
    if exponent is None:
        return np.sort(balanced_counts(tokens, experts, topk))
    middles = (np.arange(experts) + 0.5) / experts
    return np.sort(power_law_counts(tokens, topk, 1, exponent, middles))


def _exponent(distribution: str) -> float | None:
    """Exponent of a power law, None for `balanced`."""
    if distribution == "balanced":
        return None
    match = _POWER_LAW.fullmatch(distribution)
    if match is None:
        raise ValueError(
            f"`distribution` is '{distribution}'; allowed are balanced and power_law_X "
            "with a number X."
        )
    return float(match[1])


def _most_loaded(counts: np.ndarray, ranks: int) -> np.ndarray:
    """Counts on the (first) rank with most rows; ranks hold neighbouring experts."""
    groups = counts.reshape(ranks, -1)
    return groups[groups.sum(1).argmax()]


@functools.lru_cache(maxsize=4096)
def loads(
    tokens: int, experts: int, topk: int, ranks: int, distribution: str
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, weight) of `BINS` load bins on the most loaded rank; of a power law over
    several ranks the mean of five fixed draws."""
    exponent = _exponent(distribution)
    if exponent is None:
        counts = _most_loaded(balanced_counts(tokens, experts, topk), ranks)
    elif ranks == 1:
        counts = expert_counts(tokens, experts, topk, distribution)
    else:
        drawn = [
            power_law_counts(tokens, topk, ranks, exponent, u) for u in _draws(experts)
        ]
        counts = np.concatenate([_most_loaded(draw, ranks) for draw in drawn])
    draws = counts.size * ranks / experts
    return _binned(counts[counts > 0], 1 / draws)


def _binned(counts: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(mean, weight) of `BINS` bins; where they suffice, all counts of a bin fill the
    same number of tiles, whatever the tile."""
    tiles, place = np.unique(-(-counts // _LEAST_TILE), return_inverse=True)
    if len(tiles) > BINS:
        place = place * BINS // len(tiles)
    number = np.bincount(place, minlength=BINS)
    total = np.bincount(place, counts, minlength=BINS)
    return total / np.maximum(number, 1), share * number
