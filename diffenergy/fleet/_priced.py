"""What one replica does at every clock and batch: the one place where the fleet asks
how it is served.

One table of steps answers all clocks; figures at all clocks and batches are one
compiled call more. The programs are found again by the shapes of their arguments alone,
so that GPUs, and models of one structure, share them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..compiling import call_compiled
from ..hardware import GpuCard, read_gpu, sm_clocks, spread_clocks
from ..results import Infeasible
from ..serving import QUANTILES, Load, Server, deploy, load_arrays, steady
from ._horizon import Progress
from ._problem import Rows, joined
from ._spec import Fleet, Model

_FREE: Final = 2.0
"""Batch limit over the largest batch: requests queue for slots rarely."""
_P95: Final = QUANTILES.index(0.95)
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
            flow = steady(here, load_arrays(slots), "saturated").flow
            rate = flow / here.traffic.output
            server = steady(here, load_arrays(most, rate=rate), "open", _STATES)
            p95 = (x.quantiles[..., _P95] for x in (server.ttft, server.tpot))
            good = server.feasible & (server.load < 1)
            return jnp.where(good, jnp.stack([rate, *p95, server.power]), jnp.nan)

        return jax.vmap(one)(batches)

    return jnp.moveaxis(jax.lax.map(at, clocks), -1, 0)


def _run(function: Any, *arguments: Any) -> np.ndarray:
    values = call_compiled(function, jax.tree.map(jnp.asarray, arguments))
    return np.asarray(jax.device_get(values))


# --- Rows priced by the product: every model on every GPU type, over plans, clocks
# and batches.

_BATCHES: Final = np.unique(np.round(2 ** np.arange(0, 8.26, 0.25)))
"""Ladder of batches, at most 19 % apart where whole numbers allow it."""
_CLOCKS: Final = 12
"""SM clocks of a GPU whose points are rows at once."""
_PRICED: Final = 48
"""SM clocks of a GPU that are priced, evenly spread over its steps."""
_TP: Final = (1, 2, 4, 8)
_PLANS: Final = 2
"""Plans of a model on a GPU: the fewest GPUs that hold it, and twice that."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """A plan of a model on `tp` GPUs of a type: `points` at `clocks` of the board (Hz);
    `first`: clocks that become rows at once."""

    model: int
    pools: list[int]
    tp: int
    clocks: Float[np.ndarray, " clock"]
    points: Points
    first: Bool[np.ndarray, " clock"]

    def rows(self) -> list[Rows]:
        """Points at the clocks priced first, in every pool."""
        return self._rows(self.first)

    def between(
        self, needs: Float[np.ndarray, " need"], ttft: float, tpot: float
    ) -> list[Rows]:
        """Rows at other clocks that carry each of `needs` (requests/s) for the least
        power."""
        x = self.points
        quick = (x.ttft <= ttft) & (x.tpot <= tpot) & ~self.first[:, None]
        carried = quick & (x.rate >= needs[:, None, None])  # need, clock, batch
        least = np.where(carried, x.power, np.inf).min(axis=-1)
        order = np.argsort(least, axis=-1, kind="stable").T.ravel()  # best of all first
        rest = [x for x in dict.fromkeys(order.tolist()) if not self.first[x]]
        chosen = np.zeros(len(self.clocks), bool)
        chosen[rest[:_CLOCKS]] = True
        return self._rows(chosen) if chosen.any() else []

    def _rows(self, chosen: Bool[np.ndarray, " clock"]) -> list[Rows]:
        points = Points(*(x[chosen] for x in self.points))
        clocks = self.clocks[chosen]
        return [_rows(self.model, x, self.tp, clocks, points) for x in self.pools]


@dataclasses.dataclass(frozen=True)
class Priced:
    """What was priced: plans as `curves`; `notes` about what does not run where; plans
    that there was no time for (`left_out`), each in words."""

    curves: list[Curve]
    notes: list[str]
    left_out: list[str]

    @property
    def rows(self) -> Rows:
        """Rows of all plans, in every pool."""
        return joined([part for curve in self.curves for part in curve.rows()])


def price(fleet: Fleet, progress: Progress, late: Callable[[], bool]) -> Priced:
    """Prices all models on all GPU types until it is `late`: every model on a type
    before the next type, so that few models are left without a row.

    Raises `ValueError` in one sentence for a model without name or lengths, or one that
    no pool can hold.
    """
    for model in fleet.models:
        for key in ("model", "input_len", "output_len"):
            if getattr(model, key) is None:
                raise ValueError(
                    f"[[models]] `{model.name}` has no `{key}`, and there are no "
                    f"`points`; give `{key}`, or a table of points."
                )
    cards = {gpu: read_gpu(gpu) for gpu in dict.fromkeys(x.gpu for x in fleet.pools)}
    notes = [
        f"`gpu` {x} is taken as {y.name}." for x, y in cards.items() if y.is_assumed
    ]
    priced = Priced([], notes, [])
    failed: dict[int, str] = {}
    jobs = [(gpu, model) for gpu in cards for model in range(len(fleet.models))]
    for done, (gpu, model) in enumerate(jobs):
        name = fleet.models[model].name
        pools = [i for i, pool in enumerate(fleet.pools) if pool.gpu == gpu]
        most = max(fleet.pools[i].count for i in pools)
        plans, left, reason = 0, False, f"its pools have {most} GPUs."
        for tp in (x for x in _TP if x <= most):
            if plans == _PLANS or left:
                break
            where = f"{name} on {gpu}, tp {tp}"
            if late():
                priced.left_out.append(where)
                left = True
                continue
            progress(f"pricing {where}", done, len(jobs))
            curve = _curve(model, fleet.models[model], cards[gpu], pools, tp)
            if isinstance(curve, Curve):
                priced.curves.append(curve)
                plans += 1
            else:
                reason = curve
        if not plans and not left:
            priced.notes.append(f"`{name}` does not run on {gpu}: {reason}")
            failed[model] = f"on {gpu}: {reason}"
    for model, reason in failed.items():
        # What time left out may run: that no pool can run the model is not known then.
        name = fleet.models[model].name
        open_ = any(x.startswith(f"{name} on ") for x in priced.left_out)
        if not open_ and all(curve.model != model for curve in priced.curves):
            raise ValueError(f"no pool can run model `{name}`; {reason}")
    return priced


def _curve(
    number: int, model: Model, card: GpuCard, pools: list[int], tp: int
) -> Curve | str:
    """A plan with its points; why it does not run."""
    assert model.model and model.input_len and model.output_len
    lengths = model.input_len, model.output_len, model.dtype
    clocks = spread_clocks(sm_clocks(card)[::-1], _PRICED)
    try:
        points = replica_points(model.model, card, tp, clocks, _BATCHES, *lengths)
    except (ValueError, Infeasible) as error:
        return str(error)
    if not np.isfinite(points.rate).any():
        return "its weights and one request do not fit the memory."
    first = np.isin(clocks, spread_clocks(clocks, _CLOCKS))
    return Curve(number, pools, tp, clocks, points, first)


def _rows(model: int, pool: int, tp: int, clocks: np.ndarray, points: Points) -> Rows:
    """One row for each point that runs."""
    clock, batch = np.nonzero(np.isfinite(points.rate))
    size = len(clock)
    at = clock, batch
    return Rows(
        np.full(size, model), np.full(size, pool), np.full(size, float(tp)),
        points.rate[at], points.power[at], points.ttft[at], points.tpot[at],
        clocks[clock], np.full(size, np.nan), points.max_batch[at],
        np.full(size, -1),
    )  # fmt: skip
