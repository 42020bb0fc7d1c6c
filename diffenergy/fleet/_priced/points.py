"""What one replica does at every clock and batch: the one place where the fleet asks
how it is served.

One table of steps answers all clocks; figures at all clocks and batches are one
compiled call more. The programs are found again by the shapes of their arguments alone,
so that GPUs, and models of one structure, share them.
"""

from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...compiling import kept
from ...hardware import GpuCard
from ...serving import LEVELS, Load, Server, asked, deploy, steady

_FREE: Final = 2.0
"""Batch limit over the largest batch: requests queue for slots rarely."""
_P95: Final = LEVELS.index(0.95)
_STATES: Final = 640
"""States of an open loop: more than the batch limit, the same for all, so that one
program serves all."""
_AT_ONCE: Final = 16
"""Clocks of a program: boards with other numbers of clocks share it."""


class Points(NamedTuple):
    """One replica in balance: requests/s, 95th percentiles (s), mean power of its
    boards (W), its batch limit; NaN where it does not run."""

    rate: Float[np.ndarray, "clock batch"]
    ttft: Float[np.ndarray, "clock batch"]
    tpot: Float[np.ndarray, "clock batch"]
    power: Float[np.ndarray, "clock batch"]
    max_batch: Float[np.ndarray, "clock batch"]


def replica_points(
    model: str,
    card: GpuCard,
    tp: int,
    clocks: Float[np.ndarray, " clock"],
    batches: Float[np.ndarray, " batch"],
    input_len: int,
    output_len: int,
    dtype: str | None = None,
) -> Points:
    """Points of `model` on `tp` GPUs at rising SM `clocks` (Hz) with every batch.

    The rate of a batch is that of a saturated server with so many slots; latencies and
    power are those of an open loop (Poisson) at this rate with slots enough. Raises
    `ValueError` or `Infeasible` where the model cannot run there at all.
    """
    top = _FREE * float(batches.max())
    load = Load(rate=1.0, max_batch=top, input_len=input_len, output_len=output_len)
    deployment = deploy(model, card, load, tp=tp, dtype=dtype)
    server, parts = deployment.server(deployment.costs()), []
    for first in range(0, len(clocks), _AT_ONCE):
        part = np.resize(clocks[first : first + _AT_ONCE], _AT_ONCE)
        arguments = server, jnp.asarray(part), jnp.asarray(batches)
        parts.append(_run(figures, *arguments))
    rate, ttft, tpot, power = np.concatenate(parts, axis=1)[:, : len(clocks)]
    limit = np.full_like(rate, top)
    points = rate, ttft, tpot, tp * power, limit
    runs = np.isfinite(np.stack(points)).all(axis=0)
    return Points(*(np.where(runs, x, np.nan) for x in points))


def figures(
    server: Server, clocks: Float[Array, " clock"], batches: Float[Array, " batch"]
) -> Float[Array, "figure clock batch"]:
    """Rate, 95th percentiles of both latencies (s) and power (W a GPU) of a server; NaN
    where it cannot serve or keep its power limit."""

    def at(clock: Array) -> Float[Array, "batch figure"]:
        here = eqx.tree_at(lambda x: x.sm_clock, server, clock)
        most = jnp.maximum(jnp.minimum(here.fits, _FREE * batches[-1]), 1.0)

        def one(batch: Array) -> Array:
            slots = jnp.clip(jnp.minimum(here.fits, batch), 1.0)
            flow = steady(here, asked(slots), "saturated").flow
            rate = flow / here.traffic.output
            found = steady(here, asked(most, rate=rate), "open", _STATES)
            p95 = (x.quantiles[..., _P95] for x in (found.ttft, found.tpot))
            good = found.feasible & (found.load < 1)
            return jnp.where(good, jnp.stack([rate, *p95, found.power]), jnp.nan)

        return jax.vmap(one)(batches)

    return jnp.moveaxis(jax.lax.map(at, clocks), -1, 0)


def _run(function: Any, *arguments: Any) -> np.ndarray:
    values = kept(function, jax.tree.map(jnp.asarray, arguments))
    return np.asarray(jax.device_get(values))
