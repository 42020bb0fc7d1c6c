"""The clock and the batch limit of least energy, or most throughput, that keep limits
of latencies.

Batch limits are enumerated. The clock moves continuously: at a few clocks of the board
all figures and their derivatives by the clock are known, and between them the cubics
that have both; the clocks of the board that are best on these curves are looked at
next, and so on until none is better. Every pair is a point of one mapped program, whose
table of steps reaches up to the largest batch; what is answered keeps the limits by the
finer table of its own.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ...hardware import OperatingPoint
from ...results import Infeasible
from .._deployment import Deployment
from .._load import Load
from .._steady.figures import LEVELS, Steady
from .clock_curve import between, looker, spread, steps_of
from .solve import priced, solved

_CLOCKS: Final = 8
"""Clocks that are looked at in a round."""
_ROUNDS: Final = 3
"""Most rounds after the first."""
_BATCHES: Final = 24
_FULLEST: Final = 0.95
"""Share of the saturation that an open loop may have: beyond it the queue of hours
decides, and a slip in the rate leaves none that ends."""
_P95: Final = LEVELS.index(0.95)
_FAR: Final = 1e30
"""Beyond any energy or rate: where limits are not kept."""


class _Figures(NamedTuple):
    """Energy (J a token), tokens a second, 95th percentiles (s) of both latencies, and
    the load over what is served."""

    energy: Any
    flow: Any
    ttft: Any
    tpot: Any
    load: Any


class _Tried(NamedTuple):
    """Clocks (rising, Hz) that were looked at: `_Figures` on the last axis and their
    derivatives by the clock, and whether the power limit is kept."""

    clocks: Float[np.ndarray, " clock"]
    values: Float[np.ndarray, "clock limit figure"]
    slopes: Float[np.ndarray, "clock limit figure"]
    feasible: Bool[np.ndarray, " clock"]

    @property
    def figures(self) -> _Figures:
        """By name [clock, limit]."""
        return _Figures(*np.moveaxis(self.values, -1, 0))

    def stable(self, load: Load) -> Bool[np.ndarray, "clock limit"]:
        """Where the power limit is kept, and the rate with room to spare."""
        calm = (self.figures.load <= _FULLEST) | (load.rate is None)
        return calm & self.feasible[:, None]


def best(found: Deployment, objective: str) -> tuple[Deployment, dict[str, Any]]:
    """The deployment at the best point, and what is told of it.

    Raises `Infeasible` with what can be reached if no point keeps the limits.
    """
    given = found.setting.sm_clock
    steps = steps_of(found.card)
    steps = steps[steps <= given]
    if "sm_clock_mhz" not in found.assumed:
        steps = np.array([given])
    limits = _limits(found)
    look = _looker(found, limits, min(_CLOCKS, len(steps)))
    scores = functools.partial(_scores, found.load, objective)
    tried = look(spread(steps, _CLOCKS))
    for _ in range(_ROUNDS):
        rest = np.setdiff1d(steps, tried.clocks)
        if not len(rest):
            break
        before = scores(tried).min()
        promising = scores(_curves(tried, rest)).min(axis=1)
        next_ = np.sort(rest[np.argsort(promising, kind="stable")[:_CLOCKS]])
        tried = _together(tried, look(next_))
        if scores(tried).min() >= before:
            break
    while True:
        here = scores(tried)
        # of equals the higher clock
        row = len(here) - 1 - int(here.min(axis=1)[::-1].argmin())
        column = int(here[row].argmin())
        if here[row, column] >= _FAR:
            _refuse(found.load, tried)
        clock, limit = float(tried.clocks[row]), float(limits[column])
        better = _at(found, clock, limit)
        own = np.array(_figures(solved(better, priced(better))), float)
        tried.values[row, column] = own  # as it is answered
        alone = tried._replace(values=own[None, None], feasible=tried.feasible[[row]])
        if scores(alone)[0, 0] < _FAR:
            break
    told = {"objective": objective, "sm_clock_mhz": clock / 1e6, "max_batch": limit}
    return better, {"optimized": told}


def _at(found: Deployment, clock: float, limit: float) -> Deployment:
    """The deployment at a clock (Hz) with a batch limit."""
    setting = found.setting._replace(sm_clock=clock)
    load = dataclasses.replace(found.load, max_batch=limit)
    chosen = ("sm_clock_mhz", "max_batch")
    assumed = {k: v for k, v in found.assumed.items() if k not in chosen}
    return dataclasses.replace(found, setting=setting, load=load, assumed=assumed)


def _figures(x: Steady) -> _Figures:
    high = x.ttft.quantiles[_P95], x.tpot.quantiles[_P95]
    return _Figures(x.energy, x.flow, *high, x.load)


def _limits(found: Deployment) -> np.ndarray:
    """Batch limits that are tried: whole numbers, geometric."""
    top = max(math.floor(found.most), 1)
    return np.unique(np.round(np.geomspace(1, top, _BATCHES)))


def _looker(
    found: Deployment, limits: np.ndarray, size: int
) -> Callable[[np.ndarray], _Tried]:
    """What looks at clocks, at most `size` of them, with every limit."""

    def figures(clock: jax.Array) -> tuple[jax.Array, jax.Array]:
        point: OperatingPoint = eqx.tree_at(lambda x: x.sm_clock, found.point, clock)
        costs = found.costs(point=point)

        def one(limit: jax.Array) -> jax.Array:
            return jnp.stack(_figures(found.steady(costs, max_batch=limit)))

        return jax.vmap(one)(jnp.asarray(limits)), costs.feasible

    look = looker(figures, size)
    return lambda clocks: _Tried(clocks, *look(clocks))


def _together(a: _Tried, b: _Tried) -> _Tried:
    order = np.argsort(np.append(a.clocks, b.clocks))
    return _Tried(*(np.concatenate(x)[order] for x in zip(a, b, strict=True)))


def _curves(tried: _Tried, clocks: np.ndarray) -> _Tried:
    """Other clocks as they are on the curves."""
    values = between(tried.clocks, tried.values, tried.slopes, clocks)
    kept = np.full(len(clocks), tried.feasible.all())
    return _Tried(clocks, values, np.zeros_like(values), kept)


def _scores(load: Load, objective: str, tried: _Tried) -> Float[np.ndarray, "c l"]:
    """What is to be least: of points that keep the limits the objective, of others
    how far they are from them, beyond `_FAR`."""
    x = tried.figures
    value = -x.flow if objective == "throughput" else x.energy
    over = np.ones_like(value)
    for figure, limit in ((x.ttft, load.slo_ttft), (x.tpot, load.slo_tpot)):
        if limit is not None:
            over = np.fmax(over, np.where(np.isnan(figure), np.inf, figure / limit))
    stable = tried.stable(load)
    kept = stable & (over <= 1) & np.isfinite(value)
    return np.where(kept, value, np.where(stable, _FAR * over, np.inf))


def _refuse(load: Load, tried: _Tried):
    """Raises `Infeasible` with what can be had."""
    stable = tried.stable(load)
    if not stable.any():
        raise Infeasible(
            f"`optimize`: no clock and batch limit sustain the rate at "
            f"{100 * _FULLEST:g} % of saturation; give a lower `rate` or more GPUs."
        )
    x = tried.figures
    asked = [
        (name, float(np.nanmin(figure[stable])), limit)
        for name, figure, limit in (
            ("slo_ttft", x.ttft, load.slo_ttft),
            ("slo_tpot", x.tpot, load.slo_tpot),
        )
        if limit is not None
    ]
    name, reached, limit = max(asked, key=lambda x: x[1] / x[2])
    both = "" if reached > limit else ", but not together with the other limit"
    raise Infeasible(
        f"`{name}` is {1e3 * limit:g} ms, which no clock and batch limit keep; the "
        f"least 95th percentile is {1e3 * reached:.4g} ms{both}.",
        **{name: reached},
    )
