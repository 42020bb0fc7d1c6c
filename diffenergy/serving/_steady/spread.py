"""Distributions as weighted values: quantiles, and the gaps between tokens.

Prompts enter a step at random (Poisson), so that a gap is a decoding step and whatever
prompts add: a compound Poisson sum.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import gammaln
from scipy.special import ndtri

from .._lengths import EDGES, NODES, TAIL

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
"""Quantiles of every latency."""
_MIDDLES: Final = tuple((EDGES + TAIL / 2).tolist())
"""Middles of the strata `TAIL`."""
_TOGETHER: Final = 24
"""Prompts of a step that are distinguished at most."""
_TRIED: Final = 256


def _orders() -> np.ndarray:
    """Which node each of the prompts of a step has, in 16 sums: each node once, and
    those of a prompt as little like the sums before it as can be found."""
    # a fixed seed: equal requests have equal answers
    random = np.random.default_rng(0)
    nodes = -np.log1p(-(np.arange(NODES) + 0.5) / NODES)  # of an exponential one
    rows, sums = [np.arange(NODES)], nodes
    for _ in range(_TOGETHER - 1):
        tried = random.permuted(np.tile(np.arange(NODES), (_TRIED, 1)), axis=1)
        alike = np.abs((nodes[tried] - nodes.mean()) @ (sums - sums.mean()))
        rows.append(tried[alike.argmin()])
        sums = sums + nodes[rows[-1]]
    return np.array(rows)


_ORDERS: Final = _orders()


class Atoms(NamedTuple):
    """`values` with `weights` that add up to 1."""

    values: Array
    weights: Array

    @property
    def mean(self) -> Array:
        """Their mean."""
        return jnp.sum(self.values * self.weights)

    @property
    def variance(self) -> Array:
        """Their variance."""
        return jnp.sum(self.values**2 * self.weights) - self.mean**2

    def quantiles(self, levels: tuple[float, ...] = QUANTILES) -> Array:
        """The least values that so many are at most."""
        order = _rising(self.values)
        reached = jnp.cumsum(self.weights[order])
        # Rounding must not move a level that a value reaches exactly to the next value.
        targets = jnp.asarray(levels) * reached[-1] * (1 - 1e-12)
        place = jnp.searchsorted(reached, targets)
        return self.values[order][jnp.minimum(place, len(reached) - 1)]

    def between(self, levels: tuple[float, ...]) -> Array:
        """Quantiles of a distribution without jumps, of which these are strata; one of
        no weight is none."""
        occurs = self.weights > 0
        least = jnp.min(jnp.where(occurs, self.values, jnp.inf))
        values = jnp.where(occurs, self.values, least * (1 - 1e-9))
        order = _rising(values)
        weights = self.weights[order]
        middles = jnp.cumsum(weights) - weights / 2
        return jnp.interp(jnp.asarray(levels), middles, values[order])

    def below(self, limit: Array) -> Array:
        """Share that is at most `limit`."""
        return jnp.sum(jnp.where(self.values <= limit, self.weights, 0.0))


def _rising(values: Array) -> Array:
    """Places of `values`, none below 0, from the least to the greatest.

    Sorted as whole numbers (IEEE 754 orders them alike) whose last bits, less than
    1e-11 of a value, are the place: XLA sorts single integers on a CPU five times as
    fast as numbers with their places.
    """
    if values.dtype != jnp.float64:
        return jnp.argsort(values)
    bits = len(values).bit_length()
    keys = lax.bitcast_convert_type(values, jnp.int64) >> bits << bits
    return jnp.sort(keys | jnp.arange(len(values))) & ((1 << bits) - 1)


def gaps(
    decode: Array,
    added: Array,
    entering: Array,
    mixing: Array,
    crowding: Array | float = 0.0,
) -> Atoms:
    """Gaps between two tokens of a stream: `decode` s, and for each of K prompts one of
    the equally likely times `added` (16 of them) and once `mixing`; K is Poisson of
    mean `entering`, or with `crowding` c > 0 generalized Poisson (Consul, 1989) of that
    mean and of a variance 1 / (1 - c)^2 times it.

    >>> result = gaps(*(jnp.asarray(x) for x in (0.01, [8e-3] * 16, 0.2, 0.0)))
    >>> [round(1e3 * float(x), 1) for x in (result.mean, *result.quantiles())]
    [11.6, 10.0, 18.0, 18.0, 26.0]
    """
    number = jnp.arange(1.0, _TOGETHER + 1.0)
    sums = jnp.cumsum(added[jnp.asarray(_ORDERS)], axis=0)
    # Without prompts the logarithm would be -inf and its gradient NaN.
    mean = jnp.maximum(entering, 1e-300)
    start = mean * (1 - crowding)
    each = start + number * crowding
    logs = jnp.log(start) + (number - 1) * jnp.log(each) - each - gammaln(number + 1)
    chance = jnp.exp(logs)
    # Steps with more than `_TOGETHER` prompts count as that many: chances sum to 1.
    chance = chance.at[-1].add(jnp.maximum(-jnp.expm1(-start) - jnp.sum(chance), 0.0))
    values = decode + mixing + sums
    weights = jnp.broadcast_to(chance[:, None] / NODES, values.shape)
    none = jnp.exp(-start)
    return Atoms(jnp.append(values.ravel(), decode), jnp.append(weights.ravel(), none))


def bursts(steps: Atoms, tokens: Array) -> Atoms:
    """Gaps between tokens that come `tokens` at once in the mean, once in each of
    `steps`: those of one step have no gap.

    >>> step = Atoms(jnp.asarray([0.02]), jnp.asarray([1.0]))
    >>> [float(x) for x in bursts(step, jnp.asarray(2.5)).quantiles((0.5, 0.9))]
    [0.0, 0.02]
    """
    values, weights = jnp.append(steps.values, 0.0), steps.weights / tokens
    return Atoms(values, jnp.append(weights, 1 - 1 / tokens))


def exponential_tail(mean: Array) -> Array:
    """Means of the strata `TAIL` of an exponential distribution."""
    edges = -np.log1p(-EDGES)
    rest = np.append((1 + edges) * np.exp(-edges), 0.0)
    return mean * jnp.asarray((rest[:-1] - rest[1:]) / TAIL)


def normal_tail(mean: Array, sd: Array) -> Array:
    """Means of the strata `TAIL` of a normal distribution, none below 0."""
    edges = np.append(EDGES, 1.0)
    z = np.asarray(ndtri(edges))
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return jnp.maximum(mean + sd * jnp.asarray(-np.diff(density) / TAIL), 0.0)


def together(
    first: Atoms, second: Atoms, join: Callable[[Array, Array], Array] = jnp.add
) -> Atoms:
    """Sums of two independent ones, or what else `join` makes of them."""
    values = join(first.values[:, None], second.values)
    return Atoms(values.ravel(), (first.weights[:, None] * second.weights).ravel())


def coarse(atoms: Atoms) -> Atoms:
    """A distribution in the strata of `TAIL`, with its mean kept."""
    values = atoms.between(_MIDDLES)
    weights = jnp.asarray(TAIL)
    return Atoms(values + atoms.mean - jnp.sum(values * weights), weights)


def stepped(atoms: Atoms) -> Atoms:
    """A distribution in the strata of `TAIL`, each at its middle quantile: jumps
    between values that occur stay jumps, the mean is not kept."""
    return Atoms(atoms.quantiles(_MIDDLES), jnp.asarray(TAIL))
