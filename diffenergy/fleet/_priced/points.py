"""What one replica does at every clock and batch: the one place where the fleet asks
how it is served.

The server in balance of `diffenergy.serving`, all in one program: its steps are priced
once for each clock, and rates are mapped over them.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...hardware import GpuCard
from ...serving import Load, deploy
from ...serving._answers.clock_curve import looker as by_clock
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


Look = Callable[[Float[np.ndarray, " clock"]], tuple[Points, Points]]
"""Points at SM clocks (Hz), and their derivatives by the clock."""


def looker(
    model: str,
    card: GpuCard,
    tp: int,
    batches: Float[np.ndarray, " batch"],
    input_len: int,
    output_len: int,
    dtype: str | None = None,
    *,
    size: int,
) -> Look:
    """What gives points of `model` on `tp` GPUs at up to `size` SM clocks, with every
    batch, all by one program.

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

    costs = open_.costs()

    def figures(clock: jax.Array) -> tuple[Any, jax.Array]:
        def saturated(slots: jax.Array) -> jax.Array:
            return full.steady(costs, max_batch=slots, sm_clock=clock).flow

        rate = jax.vmap(saturated)(jnp.asarray(batches)) / output_len
        found = jax.vmap(lambda x: open_.steady(costs, rate=x, sm_clock=clock))(rate)
        levels = (x.quantiles[..., _P95] for x in (found.ttft, found.tpot))
        limit = jnp.full_like(rate, top)
        good = found.feasible & (found.load < 1)
        return (rate, *levels, tp * found.power, limit), good

    run = by_clock(figures, size)

    def look(clocks: Float[np.ndarray, " clock"]) -> tuple[Points, Points]:
        *both, good = run(clocks)
        values, slopes = (
            Points(*(np.where(good & np.isfinite(x), x, np.nan) for x in part))
            for part in both
        )
        return values, slopes

    return look
