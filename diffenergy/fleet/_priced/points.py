"""What one replica does at every clock and batch: the one place where the fleet asks
how it is served.

Tables of steps at all clocks are one compiled call, figures at all clocks and batches
another; the programs are found again by the shapes of their arguments alone, so that
GPUs, and models of one structure, share them.
"""

import dataclasses
import functools
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...compiling import kept
from ...hardware import GpuCard, GpuSpec, OperatingPoint
from ...serving import Load, deploy
from ...serving._deployment import Deployment
from ...serving._steady.figures import LEVELS, asked, steady
from ...serving._steady.server import Server
from ...serving._step.table import Knots, StepCosts, step_costs
from ...workload import Workload

_FREE: Final = 2.0
"""Batch limit over the largest batch: requests queue for slots rarely."""
_P95: Final = LEVELS.index(0.95)
_STATES: Final = 1024
"""States of an open loop: more than the batch limit, the same for all, so that one
program serves all."""


class Points(NamedTuple):
    """One replica in balance: requests/s, 95th percentiles (s), mean power of its
    boards (W), its batch limit; NaN where it does not run."""

    rate: Float[np.ndarray, "clock batch"]
    ttft: Float[np.ndarray, "clock batch"]
    tpot: Float[np.ndarray, "clock batch"]
    power: Float[np.ndarray, "clock batch"]
    max_batch: Float[np.ndarray, "clock batch"]


@dataclasses.dataclass(frozen=True)
class Replica:
    """A model on `tp` GPUs, asked for its points at `size` clocks at a time.

    The rate of a batch is that of a saturated server with so many slots; latencies and
    power are those of an open loop (Poisson) at this rate with slots enough.
    """

    deployment: Deployment
    tp: int
    batches: Float[np.ndarray, " batch"]
    size: int

    def points(self, clocks: Float[np.ndarray, " clock"]) -> Points:
        """Points at up to `size` SM clocks (Hz), with every batch."""
        found = self.deployment
        sweep = jnp.asarray(np.resize(clocks, self.size))
        at = [eqx.tree_at(lambda x: x.sm_clock, found.point, x) for x in sweep]
        each = jax.tree.map(lambda *x: jnp.stack(x), *at)
        costs = _kept(tables, *found.program, found.gpu, each)
        batches = jnp.asarray(self.batches)
        run = _kept(figures, found.server(costs), batches)
        rate, ttft, tpot, power = np.asarray(jax.device_get(run))[:, : len(clocks)]
        limit = np.full_like(rate, _FREE * self.batches.max())
        points = rate, ttft, tpot, self.tp * power, limit
        runs = np.isfinite(np.stack(points)).all(axis=0)
        return Points(*(np.where(runs, x, np.nan) for x in points))


def replica(
    model: str,
    card: GpuCard,
    tp: int,
    batches: Float[np.ndarray, " batch"],
    input_len: int,
    output_len: int,
    dtype: str | None = None,
    *,
    size: int,
) -> Replica:
    """`model` on `tp` GPUs under such requests. Raises `ValueError` or `Infeasible`
    where the model cannot run there at all."""
    top = _FREE * float(batches.max())
    load = Load(rate=1.0, max_batch=top, input_len=input_len, output_len=output_len)
    return Replica(deploy(model, card, load, tp=tp, dtype=dtype), tp, batches, size)


def tables(
    workload: Workload, knots: Knots, gpu: GpuSpec, points: OperatingPoint
) -> StepCosts:
    """Costs of steps at every point; the point leads."""
    return jax.lax.map(functools.partial(step_costs, workload, knots, gpu), points)


def figures(
    server: Server, batches: Float[Array, " batch"]
) -> Float[Array, "figure point batch"]:
    """Rate, 95th percentiles of both latencies (s) and power (W a GPU), of a server
    whose costs are those of several points; NaN where it cannot serve or keep its power
    limit."""

    def at(costs: StepCosts) -> Float[Array, "batch figure"]:
        here = eqx.tree_at(lambda x: x.costs, server, costs)
        most = jnp.maximum(jnp.minimum(here.fits, _FREE * batches[-1]), 1.0)

        def one(batch: Array) -> Array:
            slots = jnp.clip(jnp.minimum(here.fits, batch), 1.0)
            flow = steady(here, asked(slots), "saturated").flow
            rate = flow / here.traffic.output
            found = steady(here, asked(most, rate=rate), "open", _STATES)
            p95 = (x.quantiles[..., _P95] for x in (found.ttft, found.tpot))
            good = costs.feasible & (found.load < 1)
            return jnp.where(good, jnp.stack([rate, *p95, found.power]), jnp.nan)

        return jax.vmap(one)(batches)

    return jnp.moveaxis(jax.lax.map(at, server.costs), -1, 0)


def _kept(function: Any, *arguments: Any) -> Any:
    return kept(function, jax.tree.map(jnp.asarray, arguments))
