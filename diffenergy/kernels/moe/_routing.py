"""Tokens per expert of a mixture of experts, by the rules of the AIConfigurator
collector or at random; made on the host, as they depend on shapes alone.

`balanced`: choice j of token i goes to expert i + j ceil(experts/top-k), modulo experts
(few tokens are spread). `power_law_X`: quantile mid-points of a bounded power law,
rounded, at most one row a token and expert; missing rows go to the smallest counts,
surplus comes off the largest, rank by rank in turns. With expert parallelism the most
loaded rank; of a power law the mean over five fixed random draws. `random`: every token
takes its k of E experts by chance, so that a count is binomial, B(tokens, k/E), and
E (1 - (1 - k/E)^tokens) experts have a row (51.6 of 128 for 8 tokens of top 8); the
most loaded of R ranks gets tokens k/R rows and the excess of 32 fixed draws (of at most
256 tokens: it grows with their root), binomial again among its E/R experts. Counts are
held as at most 64 bins of experts that fill the same number of 16-row tiles.
"""

import bisect
import functools
import re
from typing import Final

import numpy as np

BINS: Final = 64
"""Expert loads are held as at most this many sorted values with weights."""
DISTRIBUTIONS: Final = ("balanced", "random", "power_law_X")
"""Words of `distribution`; X is a number. `random`: every token takes its experts by
chance, all alike."""
_POWER_LAW: Final = re.compile(r"power_law_(\d+(?:\.\d+)?)")
_DRAWS: Final = 5
_RANK_DRAWS: Final = 32
_DRAWN_TOKENS: Final = 256
"""Tokens that a draw of ranks follows one by one (0.1 s at most)."""
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
    if distribution == "random":
        return 0.0
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
    exponent X. Raises `ValueError` for any other name; `random` has no fixed counts.
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
            f"`distribution` is '{distribution}'; allowed are balanced, random and "
            "power_law_X with a number X."
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
    if distribution == "random":
        rows = most_loaded_rows(tokens, experts, topk, ranks)
        return _binned(*random_counts(tokens, experts // ranks, rows))
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
    counts = counts[counts > 0]
    return _binned(counts, np.ones(counts.shape), 1 / draws)


def random_counts(
    tokens: int, experts: int, rows: float
) -> tuple[np.ndarray, np.ndarray]:
    """(counts above 0, expected number of experts that have them) of `experts` that
    together get `rows` of the choices of `tokens` by chance.

    Each count is binomial, B(tokens, p) with p = rows/(experts tokens): the experts of
    one token are distinct, so that it adds at most one to a count. On average experts
    (1 - (1 - p)^tokens) are touched.
    """
    p = rows / (experts * tokens)
    if p >= 1:
        return np.array([tokens]), np.array([float(experts)])
    reach = 12 * np.sqrt(tokens * p * (1 - p)) + 30  # beyond it less than 1e-20
    first = max(int(tokens * p - reach), 0)
    counts = np.arange(first, min(int(tokens * p + reach), tokens) + 1)
    ratios = np.log((tokens - counts[:-1]) / counts[1:] * (p / (1 - p)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])  # ln of B(n)/B(first)
    share = np.exp(logs - logs.max())
    share *= experts / share.sum()
    there = counts > 0
    return counts[there], share[there]


@functools.lru_cache(maxsize=4096)
def most_loaded_rows(tokens: int, experts: int, topk: int, ranks: int) -> float:
    """Rows that the most loaded of `ranks` gets at random, on average.

    Mean of fixed draws of the experts of each token. Of more than `_DRAWN_TOKENS`
    tokens those are followed: what the most loaded rank has beyond the mean grows with
    the square root of the tokens (sums of independent draws).
    """
    mean = tokens * topk / ranks
    if ranks == 1:
        return mean
    drawn = min(tokens, _DRAWN_TOKENS)
    experts_of_rank = np.full(ranks, experts // ranks)
    generator = np.random.default_rng(0)
    rows = generator.multivariate_hypergeometric(
        experts_of_rank, topk, (drawn, _RANK_DRAWS)
    )
    most = rows.sum(axis=0).max(axis=-1).mean()
    return float(mean + np.sqrt(tokens / drawn) * (most - drawn * topk / ranks))


def _binned(
    counts: np.ndarray, experts: np.ndarray, share: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(mean, weight) of `BINS` bins of counts that so many `experts` have; where they
    suffice, all counts of a bin fill the same number of tiles, whatever the tile.
    Weights are `share` times the experts."""
    tiles, place = np.unique(-(-counts // _LEAST_TILE), return_inverse=True)
    if len(tiles) > BINS:
        place = place * BINS // len(tiles)
    number = np.bincount(place, experts, minlength=BINS)
    total = np.bincount(place, counts * experts, minlength=BINS)
    return total / np.where(number > 0, number, 1.0), share * number
