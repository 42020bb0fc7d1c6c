"""Curves of a server for pictures: latencies by rate, joules by batch and by clock."""

import dataclasses
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...compiling import compiler_options
from ...hardware import sm_clocks, spread_clocks
from .._deployment import Deployment
from .._steady.figures import LEVELS
from .._step.table import StepCosts

_RATES: Final = 48
_CLOCKS: Final = 6
_BATCHES: Final = 24
_FULL: Final = 0.98
"""Share of the saturation up to which latencies are drawn."""
_P95: Final = LEVELS.index(0.95)


@dataclasses.dataclass(frozen=True)
class Curves:
    """`rates` (requests/s of all replicas) with mean and 95th percentile of both
    latencies (s); `batches` with J a token at each of `clocks` (Hz); `most`: rate that
    saturates."""

    rates: np.ndarray
    ttft: np.ndarray
    tpot: np.ndarray
    most: float
    clocks: np.ndarray
    batches: np.ndarray
    energy: np.ndarray


def curves(found: Deployment, costs: StepCosts) -> Curves:
    """Curves of a deployment around its load."""
    load = found.load
    alone = {"concurrency": None, "waves": None}
    rate = dataclasses.replace(load, rate=1.0, **alone)
    limit = dataclasses.replace(load, rate=None, max_batch=found.slots, **alone)
    flowing = dataclasses.replace(found, load=rate)
    full = dataclasses.replace(found, load=limit)
    options = compiler_options(once=True)

    def by_rate(share: Any) -> Any:
        top = full.steady(costs).saturation / load.output.mean * found.replicas
        x = flowing.steady(costs, rate=share * top)
        pair = lambda y: jnp.stack([y.mean, y.quantiles[_P95]])  # noqa: E731
        return share * top, pair(x.ttft), pair(x.tpot), top

    shares = jnp.linspace(0.02, _FULL, _RATES)
    rates, ttft, tpot, most = jax.jit(jax.vmap(by_rate), compiler_options=options)(
        shares
    )
    clocks = spread_clocks(sm_clocks(found.card)[::-1], _CLOCKS)
    batches = np.unique(np.round(np.geomspace(1, found.slots, _BATCHES)))

    top = jnp.asarray(clocks[-1])
    all_clocks = found.costs(point=eqx.tree_at(lambda x: x.sm_clock, found.point, top))

    def by_clock(clock: Any) -> Any:
        def one(batch: Any) -> Any:
            return full.steady(all_clocks, max_batch=batch, sm_clock=clock).energy

        return found.plan.tp * jax.vmap(one)(jnp.asarray(batches))

    energy = jax.jit(lambda x: jax.lax.map(by_clock, x), compiler_options=options)
    return Curves(
        np.asarray(rates), np.asarray(ttft), np.asarray(tpot), float(most[0]), clocks,
        batches, np.asarray(energy(jnp.asarray(clocks))),
    )  # fmt: skip
