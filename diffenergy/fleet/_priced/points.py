"""What one replica does at every clock and batch: the one place where the fleet asks
how it is served.

The server in balance of `diffenergy.serving`, all in one program: its steps are priced
once for each clock, and rates are mapped over them.
"""

from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...compiling import compiler_options
from ...hardware import GpuCard
from ...serving import Load, deploy
from ...serving._steady.figures import LEVELS

_FREE: Final = 2.0
"""Batch limit over the largest batch: requests queue for slots rarely."""
_P95: Final = LEVELS.index(0.95)


class Points(NamedTuple):
    """One replica in balance: requests/s, 95th percentiles (s), mean power of its
    boards (W), its batch limit; NaN where it does not run."""

    rate: Float[np.ndarray, "clock batch"]
    ttft: Float[np.ndarray, "clock batch"]
    tpot: Float[np.ndarray, "clock batch"]
    power: Float[np.ndarray, "clock batch"]
    max_batch: Float[np.ndarray, "clock batch"]


def serving_points(
    model: str,
    card: GpuCard,
    tp: int,
    clocks: Float[np.ndarray, " clock"],
    batches: Float[np.ndarray, " batch"],
    input_len: int,
    output_len: int,
    dtype: str | None = None,
) -> Points:
    """Points of `model` on `tp` GPUs at every SM clock (Hz) and batch.

    The rate of a batch is that of a saturated server with so many slots; latencies and
    power are those of an open loop (Poisson) at this rate with slots enough. Raises
    `ValueError` or `Infeasible` where the model cannot run there at all.
    """
    lengths = {"input_len": input_len, "output_len": output_len}
    top = _FREE * float(batches.max())
    full, open_ = (
        deploy(model, card, Load(**way, max_batch=top, **lengths), tp=tp, dtype=dtype)
        for way in ({}, {"rate": 1.0})
    )

    def at(clock: jax.Array) -> Any:
        point = eqx.tree_at(lambda x: x.sm_clock, open_.point, clock)
        costs = open_.costs(point=point, differentiable=False)
        slots = jnp.asarray(batches)
        flow = jax.vmap(lambda x: full.steady(costs, max_batch=x).flow)(slots)
        rate = flow / output_len
        found = jax.vmap(lambda x: open_.steady(costs, rate=x))(rate)
        good = costs.feasible & (found.load < 1)
        levels = found.ttft.quantiles, found.tpot.quantiles
        return rate, *levels, tp * found.power, good

    options = compiler_options(once=True)
    run = jax.jit(lambda x: jax.lax.map(at, x), compiler_options=options)
    rate, ttft, tpot, power, good = jax.device_get(run(jnp.asarray(clocks)))
    limit = np.full_like(rate, top)
    columns = rate, ttft[..., _P95], tpot[..., _P95], power, limit
    return Points(*(np.where(good & np.isfinite(x), x, np.nan) for x in columns))
