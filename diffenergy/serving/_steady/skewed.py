"""A time known by its mean, variance and skewness, and an exponential wait before it.

The distribution is Pearson's type III (a shifted gamma), by its quantiles at the edges
of `TAIL` from a table over the skewness; between them it is uniform.
"""

import functools
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import gammainc, gammaincinv, ndtri

from .._lengths import EDGES, TAIL
from .first_token import Cumulants
from .spread import QUANTILES, Atoms, coarse, exponential_tail, together

_LEAST_SKEW: Final = -4.0
_MOST_SKEW: Final = 16.0
_STEP: Final = 0.125
"""Skewness between two rows of the table."""
_HALVINGS: Final = 30


class Skewed(NamedTuple):
    """The sum of a time of cumulants `own` and of a wait: none with probability
    1 - `taken`, else exponential of mean `wait` s."""

    own: Cumulants
    taken: Array
    wait: Array

    @property
    def mean(self) -> Array:
        """Mean of the sum, s."""
        return self.own.mean + self.taken * self.wait

    @property
    def edges(self) -> Array:
        """Quantiles of the time at the edges of `TAIL`, and its end."""
        # A fixed time has no variance: its skewness would be 0 / 0.
        variance = jnp.maximum(self.own.variance, (1e-6 * self.own.mean) ** 2)
        sd = jnp.sqrt(variance)
        skew = jnp.clip(self.own.third / (variance * sd), _LEAST_SKEW, _MOST_SKEW)
        place = (skew - _LEAST_SKEW) / _STEP
        # The row is piecewise constant; derivatives go through `share`.
        row = jnp.clip(lax.stop_gradient(place).astype(int), 0, len(_table()) - 2)
        table, share = jnp.asarray(_table()), place - row
        edges = (1 - share) * table[row] + share * table[row + 1]
        return jnp.maximum(self.own.mean + sd * edges, 0.0)

    def below(self, limit: Array) -> Array:
        """Share that is at most `limit`, of any shape."""
        edges, wait = self.edges, jnp.maximum(self.wait, 1e-12)
        limit = jnp.asarray(limit)[..., None]
        wide = jnp.maximum(jnp.diff(edges), 1e-12)
        inside = jnp.clip((limit - edges[:-1]) / wide, 0.0, 1.0)
        # the wait beside a uniform time, integrated over it
        rest = jnp.exp(-jnp.maximum(limit - edges, 0.0) / wait)
        late = wait / wide * jnp.diff(rest, axis=-1)
        return (inside - self.taken * late) @ jnp.asarray(TAIL)

    def quantiles(self) -> Array:
        """Quantiles at `QUANTILES`, s: bisection, then a step of Newton's method, which
        has the derivative."""
        levels = jnp.asarray(QUANTILES)
        edges = lax.stop_gradient(self.edges)
        # beyond 8 means of an exponential wait lie 0.03 %
        top = edges[-1] + 8 * lax.stop_gradient(self.wait)

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            over = self.below(middle) > levels
            return jnp.where(over, low, middle), jnp.where(over, middle, high)

        ends = jnp.full_like(levels, edges[0]), jnp.full_like(levels, top)
        root = lax.stop_gradient(lax.fori_loop(0, _HALVINGS, halve, ends)[1])
        share, slope = jax.jvp(self.below, (root,), (jnp.ones_like(root),))
        slope = lax.stop_gradient(jnp.maximum(slope, 1e-9 / root))
        return root - (share - lax.stop_gradient(share)) / slope

    @property
    def atoms(self) -> Atoms:
        """The distribution in the strata of `TAIL`, with its mean kept."""
        edges, weights = self.edges, jnp.asarray(TAIL)
        middles = (edges[:-1] + edges[1:]) / 2
        middles = middles + self.own.mean - jnp.sum(middles * weights)
        waits = Atoms(
            jnp.append(exponential_tail(self.wait), 0.0),
            jnp.append(self.taken * weights, 1 - self.taken),
        )
        return coarse(together(Atoms(middles, weights), waits))


@functools.cache
def _table() -> np.ndarray:
    """Edges of the strata at mean 0 and variance 1 [skewness, edge]."""
    count = round((_MOST_SKEW - _LEAST_SKEW) / _STEP) + 1
    return np.array([_row(x) for x in np.linspace(_LEAST_SKEW, _MOST_SKEW, count)])


def _row(skew: float) -> np.ndarray:
    """Quantiles at the edges; the first and the last one such that the outer strata
    have their means."""
    inner = EDGES[1:]
    if abs(skew) < _STEP / 2:
        z = np.asarray(ndtri(inner))
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        below, above = -density[0], density[-1]  # integrals of z over the outer ones
    else:
        shape = 4 / skew**2
        levels = inner if skew > 0 else 1 - inner
        x = np.asarray(gammaincinv(shape, levels))
        part = shape * np.asarray(gammainc(shape + 1, x)) - shape * levels
        z, part = (v * np.sign(skew) / np.sqrt(shape) for v in (x - shape, part))
        below, above = (part[0], -part[-1]) if skew > 0 else (-part[0], part[-1])
    first = 2 * below / TAIL[0] - z[0]
    last = 2 * above / TAIL[-1] - z[-1]
    return np.concatenate([[first], z, [last]])
