"""Tokens per expert of a mixture of experts, by the rules of the AIConfigurator
collector or by chance; made on the host, as they depend on shapes alone.

`balanced`: choice j of token i goes to expert i + j ceil(experts/top-k), modulo experts
(few tokens are spread). `power_law_X`: quantile mid-points of a bounded power law,
rounded, at most one row a token and expert; missing rows go to the smallest counts,
surplus comes off the largest, rank by rank in turns. With expert parallelism the most
loaded rank; of a power law the mean over five fixed random draws.

`lognormal_X`: a trained router likes some experts more than others. Their popularity
w_e = exp(X z_e), with z_e the E quantile mid-points of the standard normal
distribution; a token takes expert e by chance with

    p_e = 1 - exp(-lambda w_e)     sum of p_e = k

so that a count is binomial, B(tokens, p_e), and sum of 1 - (1 - p_e)^tokens experts
have a row. `random` is X = 0: p_e = k/E, all experts alike (51.6 of 128 have a row for
8 tokens of top 8; 46.2 with `lognormal_0.8`). Of several ranks the most loaded, mean of
fixed draws: experts lie on the ranks in any order, and rows on a rank vary around their
mean as sums of binomials do. Counts are held as at most 64 bins of experts that fill
the same number of 16-row tiles.
"""

import bisect
import functools
import re
import statistics
from typing import Final

import numpy as np

BINS: Final = 64
"""Expert loads are held as at most this many sorted values with weights."""
DISTRIBUTIONS: Final = ("balanced", "random", "lognormal_X", "power_law_X")
"""Words of `distribution`; X is a number. `random`: every token takes its experts by
chance, all alike."""
_POWER_LAW: Final = re.compile(r"power_law_(\d+(?:\.\d+)?)")
_LOGNORMAL: Final = re.compile(r"lognormal_(\d+(?:\.\d+)?)")
_DRAWS: Final = 5
_RANK_DRAWS: Final = 32
_GROUPS: Final = 128
"""Chances of experts on ranks are held as at most this many."""
_REACH: Final = 9.0
"""Standard deviations around its mean within which a count lies."""
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
    exponent = None if _is_by_chance(distribution) else _exponent(distribution)
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
    exponent X. Raises `ValueError` for any other name; what falls by chance has no
    fixed counts.
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
            f"`distribution` is '{distribution}'; allowed are "
            f"{', '.join(DISTRIBUTIONS)} with a number X."
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
    """(tokens, weight) of `BINS` load bins on the most loaded rank; of several ranks
    the mean of fixed draws, but for `balanced`."""
    if _is_by_chance(distribution):
        p = chances(experts, topk, _spread(distribution))
        return _binned(*_by_chance(tokens, p, ranks))
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


def _is_by_chance(distribution: str) -> bool:
    return distribution == "random" or bool(_LOGNORMAL.fullmatch(distribution))


def _spread(distribution: str) -> float:
    """Standard deviation of the logarithm of the experts' popularity."""
    match = _LOGNORMAL.fullmatch(distribution)
    return float(match[1]) if match else 0.0


@functools.lru_cache(maxsize=256)
def chances(experts: int, topk: int, spread: float) -> np.ndarray:
    """Chance of each expert to be one of the `topk` of a token, ascending; their sum is
    `topk`. `spread`: standard deviation of the logarithm of their popularity.

    >>> chances(4, 1, 0.0).round(3).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> chances(4, 2, 1.0).round(3).tolist()
    [0.182, 0.37, 0.582, 0.866]
    """
    if spread == 0 or topk == experts:
        return np.full(experts, topk / experts)
    normal = statistics.NormalDist()
    middles = (np.arange(experts) + 0.5) / experts
    logs = spread * np.array([normal.inv_cdf(x) for x in middles])

    def at(level: float) -> np.ndarray:  # ln lambda
        return -np.expm1(-np.exp(np.clip(logs + level, -600, 600)))

    low, high = -logs[-1] - 50, -logs[0] + 50
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).sum() < topk else (low, middle)
    return at(high)


def _by_chance(tokens: int, p: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """(counts above 0, expected number of experts that have them) on the most loaded
    rank, where experts are chosen with chances `p`."""
    if ranks == 1:
        return binomial_counts(tokens, *np.unique(p, return_counts=True))
    generator = np.random.default_rng(0)
    placed = generator.permuted(np.tile(p, (_RANK_DRAWS, 1)), axis=1)
    placed = placed.reshape(_RANK_DRAWS, ranks, -1)
    mean = tokens * placed.sum(-1)
    scatter = np.sqrt(tokens * (placed * (1 - placed)).sum(-1))
    scatter *= generator.standard_normal(mean.shape)
    rows = mean + scatter - scatter.mean(axis=1, keepdims=True)  # of all: tokens k
    most = np.arange(_RANK_DRAWS), rows.argmax(axis=1)
    there = np.minimum(placed[most] * (rows[most] / mean[most])[:, None], 1.0)
    chance, number = np.unique(there, return_counts=True)
    return binomial_counts(tokens, *_alike(chance, number / _RANK_DRAWS))


def _alike(p: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean chance, number) of groups of neighbours among ascending chances."""
    first = np.unique(np.arange(_GROUPS) * len(p) // _GROUPS)
    total, many = (np.add.reduceat(x, first) for x in (p * number, number))
    return total / many, many


def binomial_counts(
    tokens: int, p: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(counts above 0, expected number of experts that have them), where `number`
    experts each have a chance `p` at a token: each count is binomial, B(tokens, p)."""
    p = np.minimum(p, 1 - 1e-15)  # of 1 the count is that of the tokens, too
    mean, scatter = tokens * p, np.sqrt(tokens * p * (1 - p))
    reach = _REACH * scatter + 20  # beyond it less than 1e-15
    first = np.maximum(mean - reach, 0).astype(int)[:, None]
    width = int(np.ceil(2 * reach.max())) + 1
    counts = first + np.arange(min(width, tokens + 1))
    inside = counts <= tokens
    n = np.minimum(counts, tokens)
    ways = np.log(np.maximum(tokens - n[:, :-1], 1) / np.maximum(n[:, 1:], 1))
    steps = ways + (np.log(p) - np.log1p(-p))[:, None]
    logs = np.concatenate([np.zeros_like(mean)[:, None], steps.cumsum(axis=1)], axis=1)
    logs = np.where(inside, logs, -np.inf)
    share = np.exp(logs - logs.max(axis=1, keepdims=True))
    share *= (number / share.sum(axis=1))[:, None]
    there = inside & (counts > 0)
    return counts[there], share[there]


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
