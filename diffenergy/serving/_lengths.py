"""Lengths of prompts and outputs: `512`, `lognormal:MEAN:CV`, `uniform:LOW:HIGH`,
`exponential:MEAN`."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy.special import ndtr, ndtri

NODES: Final = 16
"""Equally likely strata of a distribution, each known by its mean."""
EDGES: Final = np.concatenate(
    [np.linspace(0, 0.9, 17)[:-1], np.linspace(0.9, 0.99, 6)[:-1], [0.99, 0.995, 0.999]]
)
"""Lower ends of the strata of a tail: finer where it is told."""
TAIL: Final = np.diff(np.append(EDGES, 1.0))
"""Their weights."""
_FORMS: Final = "512, lognormal:MEAN:CV, uniform:LOW:HIGH or exponential:MEAN"
_MOST: Final = 1e9
"""Tokens; more is a slip of the keyboard."""


@dataclasses.dataclass(frozen=True)
class Lengths:
    """A distribution of lengths in tokens: its `mean`, its second moment over the
    square of the mean (`spread`, at least 1), the means of 16 equally likely strata
    over the mean (`nodes`), those of the strata `TAIL` (`tail`), the longest that
    occurs (`longest`; None: any, or not with every other length)."""

    text: str
    mean: float
    spread: float
    nodes: tuple[float, ...]
    tail: tuple[float, ...]
    longest: float | None = None

    def times(self, share: float) -> "Lengths":
        """The distribution of such a share of each length."""
        if share == 1:
            return self
        longest = None if self.longest is None else share * self.longest
        return dataclasses.replace(self, mean=share * self.mean, longest=longest)


def read_lengths(name: str, value: Any) -> Lengths:
    """A distribution from its text, or a number.

    Raises `ValueError` for what is none.

    >>> read_lengths("output_len", "uniform:100:300").mean
    200.0
    >>> round(read_lengths("output_len", "lognormal:256:0.8").spread, 2)
    1.64
    """
    if isinstance(value, Lengths):
        return value
    kind, *numbers = str(value).strip().split(":")
    if not numbers:
        return fixed(_number(name, value, kind))
    values = [_number(name, value, x, least=0.0) for x in numbers]
    match kind, values:
        case "lognormal", [mean, cv] if mean >= 1 and cv <= 100:
            return lognormal(mean, cv)
        case "uniform", [low, high] if low >= 1:
            if low > high:
                raise ValueError(
                    f"`{name}` is '{value}', whose low end is above the high one; give "
                    "uniform:LOW:HIGH."
                )
            return uniform(low, high)
        case "exponential", [mean] if mean >= 1:
            return exponential(mean)
    raise ValueError(f"`{name}` is '{value}'; allowed is {_FORMS}, tokens from 1 on.")


def _number(name: str, whole: Any, text: str, least: float = 1.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= _MOST:
        raise ValueError(
            f"`{name}` is '{whole}'; allowed is {_FORMS}, tokens from 1 on."
        )
    return value


def fixed(length: float) -> Lengths:
    """The distribution of one length."""
    ones = (1.0,) * NODES, (1.0,) * len(TAIL)
    return Lengths(f"{length:g}", length, 1.0, *ones, length)


def uniform(low: float, high: float) -> Lengths:
    """Any length from `low` to `high`."""
    mean = (low + high) / 2
    second = (low**2 + low * high + high**2) / 3

    def below(share: np.ndarray) -> np.ndarray:  # of the mean, up to a quantile
        return (low * share + (high - low) * share**2 / 2) / mean

    text = f"uniform:{low:g}:{high:g}"
    return Lengths(text, mean, second / mean**2, *_strata(below), high)


def exponential(mean: float) -> Lengths:
    """Exponential lengths."""

    def below(share: np.ndarray) -> np.ndarray:
        # the last edge is 1, where the limit of rest * log(rest) is 0
        rest = np.maximum(1 - share, 1e-300)
        return 1 - rest * (1 - np.log(rest))

    return Lengths(f"exponential:{mean:g}", mean, 2.0, *_strata(below))


def lognormal(mean: float, cv: float) -> Lengths:
    """Lengths whose logarithm is normal; `cv`: standard deviation / mean."""
    if cv == 0:
        return fixed(mean)
    sigma = math.sqrt(math.log1p(cv**2))
    text = f"lognormal:{mean:g}:{cv:g}"
    nodes = _strata(lambda share: ndtr(ndtri(share) - sigma))
    return Lengths(text, mean, 1 + cv**2, *nodes)


def of_values(values: np.ndarray) -> Lengths:
    """The lengths of a trace."""
    mean = float(values.mean())
    sums = np.append(0.0, np.cumsum(np.sort(values))) / values.sum()
    shares = np.linspace(0, 1, len(sums))
    nodes = _strata(lambda share: np.interp(share, shares, sums))
    text = f"{len(values)} of a trace, mean {mean:.4g}"
    spread = float((values**2).mean() / mean**2)
    return Lengths(text, mean, spread, *nodes)  # the longest ones need not meet


def _strata(
    below: Callable[[np.ndarray], np.ndarray],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means of the even strata and of those of the tail, over the mean; `below`: share
    of the mean that lies below a quantile."""
    even = NODES * np.diff(below(np.linspace(0, 1, NODES + 1)))
    tail = np.diff(below(np.append(EDGES, 1.0))) / TAIL
    return tuple(even.tolist()), tuple(tail.tolist())
