"""`PowerCurve`: power that is constant between edges; its joules, its bins, its Fourier
series and what a first-order filter leaves of it, all in closed form."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Complex, Float


@dataclasses.dataclass(frozen=True)
class PowerCurve:
    """`watts[i]` from `edges[i]` (s) until `edges[i + 1]`. `periodic`: the last edge is
    the first of the next period; a curve that is not lasts from its first edge to its
    last, and what lies outside of it is unknown.

    Raises `ValueError` unless edges rise and all numbers are finite.
    """

    edges: Float[np.ndarray, " i+1"]
    watts: Float[np.ndarray, " i"]
    periodic: bool = False

    def __post_init__(self):
        edges, watts = np.asarray(self.edges, float), np.asarray(self.watts, float)
        if len(edges) != len(watts) + 1 or len(watts) == 0:
            raise ValueError(
                f"`edges` has {len(edges)} numbers for {len(watts)} of `watts`; give "
                "one edge more than there are powers."
            )
        if not (np.isfinite(edges).all() and np.isfinite(watts).all()):
            raise ValueError("`edges` or `watts` has a number that is not finite.")
        wide = np.diff(edges) > 0
        if (np.diff(edges) < 0).any() or not wide.any():
            raise ValueError("`edges` must rise; sort them.")
        object.__setattr__(self, "edges", edges[np.append(True, wide)])
        object.__setattr__(self, "watts", watts[wide])

    @property
    def time(self) -> float:
        """Length (s): of a period, or of the whole."""
        return float(self.edges[-1] - self.edges[0])

    @property
    def energy(self) -> float:
        """Energy over its length (J)."""
        return float(self.watts @ np.diff(self.edges))

    @property
    def mean(self) -> float:
        """Mean power (W)."""
        return self.energy / self.time

    def joules(self, time: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """Energy from the first edge until each `time` (s), in J."""
        total = np.append(0.0, np.cumsum(self.watts * np.diff(self.edges)))
        since = np.asarray(time, float) - self.edges[0]
        if self.periodic:
            periods = np.floor(since / self.time)
            inside = self.edges[0] + since - periods * self.time
            return periods * total[-1] + np.interp(inside, self.edges, total)
        return np.interp(np.asarray(time, float), self.edges, total)

    def means(
        self, start: Float[np.ndarray, " t"], window: float
    ) -> Float[np.ndarray, " t"]:
        """Mean power (W) of the `window` s from each `start` (s): what a meter that
        averages so long shows."""
        start = np.asarray(start, float)
        return (self.joules(start + window) - self.joules(start)) / window

    def bins(self, step: float) -> Float[np.ndarray, " b"]:
        """Mean power (W) of every `step` s, without sampling error. What is left at the
        end of a curve that is not periodic is left out."""
        number = self.time / step
        count = int(round(number) if abs(number - round(number)) < 1e-9 else number)
        return self.means(self.edges[0] + step * np.arange(max(1, count)), step)

    def merged(self, step: float) -> "PowerCurve":
        """The curve in slices of `step` s at least, with the same joules."""
        number = max(1, int(self.time / step))
        edges = np.linspace(self.edges[0], self.edges[-1], number + 1)
        watts = np.diff(self.joules(edges[:-1]), append=self.energy) / np.diff(edges)
        return PowerCurve(edges, watts, self.periodic)

    def repeated(self, start: float, end: float) -> "PowerCurve":
        """What a periodic curve is from `start` to `end` (s from its first edge)."""
        first, last = (int(x // self.time) for x in (start, end))
        shifts = self.time * np.arange(first, last + 1)[:, None]
        edges = ((self.edges[:-1] - self.edges[0]) + shifts).ravel()
        edges = np.clip(np.append(edges, end), start, end)
        return PowerCurve(edges, np.tile(self.watts, last - first + 1))

    def filtered(self, lag: float) -> "Filtered":
        """The curve behind a first-order filter of `lag` s, such as a power supply;
        periodic ones are in their steady state, others begin in that of their mean."""
        decay = np.exp(-np.diff(self.edges) / lag).tolist()
        watts = self.watts.tolist()
        # y' = (w - y) / lag: y_{i+1} = w_i + (y_i - w_i) decay_i
        if self.periodic:
            added, whole = 0.0, 1.0
            for share, power in zip(decay, watts, strict=True):
                added, whole = power * (1 - share) + added * share, whole * share
            start = added / (1 - whole)
        else:
            start = self.mean
        values = [start]
        for share, power in zip(decay, watts, strict=True):
            values.append(power + (values[-1] - power) * share)
        return Filtered(self, np.array(values), lag)


@dataclasses.dataclass(frozen=True)
class Filtered:
    """What a first-order filter makes of a curve: `values` (W) at its edges, between
    them exponential, so that the extremes lie at edges."""

    curve: PowerCurve
    values: Float[np.ndarray, " i+1"]
    lag: float

    @property
    def means(self) -> Float[np.ndarray, " i"]:
        """Mean between two edges (W)."""
        width, power = np.diff(self.curve.edges), self.curve.watts
        share = self.lag / width * -np.expm1(-width / self.lag)
        return power + (self.values[:-1] - power) * share

    @property
    def variance(self) -> float:
        """Mean of the square of its deviation from the curve's mean (W^2)."""
        width, power = np.diff(self.curve.edges), self.curve.watts - self.curve.mean
        over = self.values[:-1] - self.curve.mean - power
        once = self.lag * -np.expm1(-width / self.lag)
        twice = self.lag / 2 * -np.expm1(-2 * width / self.lag)
        total = power**2 * width + 2 * power * over * once + over**2 * twice
        return float(total.sum() / self.curve.time)


def total(parts: Sequence[tuple[PowerCurve, float]]) -> PowerCurve:
    """The sum of curves over the same time, each as many times as its number says."""
    first, number = parts[0]
    if len(parts) == 1:
        return PowerCurve(first.edges, number * first.watts, first.periodic)
    at = np.concatenate([x.edges[:-1] for x, _ in parts])
    change = np.concatenate([n * np.diff(x.watts, prepend=0.0) for x, n in parts])
    edges, which = np.unique(at, return_inverse=True)
    watts = np.cumsum(np.bincount(which, change, len(edges)))
    last = max(x.edges[-1] for x, _ in parts)
    return PowerCurve(np.append(edges, last), watts, first.periodic)


def series(
    edges: Float[Array | np.ndarray, " i+1"],
    watts: Float[Array | np.ndarray, " i"],
    harmonics: Float[Array | np.ndarray, " k"],
) -> Complex[Array, " k"]:
    """Coefficients c_k (W) of the Fourier series of a periodic curve at the `harmonics`
    k > 0 of 1 / T, T its length:

        c_k = sum_j w_j (e^(-2 pi i k b_j / T) - e^(-2 pi i k a_j / T)) / (-2 pi i k)

    Differentiable by edges and watts; the mean square is sum 2 |c_k|^2.
    """
    phase = (jnp.asarray(edges) - edges[0]) / (edges[-1] - edges[0])
    turns = -2j * jnp.pi * jnp.asarray(harmonics)[:, None]
    corners = jnp.exp(turns * phase)
    return ((corners[:, 1:] - corners[:, :-1]) / turns) @ jnp.asarray(watts)
