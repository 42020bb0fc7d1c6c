"""Rows priced by the product: every model on every GPU type, over plans, clocks and
batches."""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Float

from ...hardware import GpuCard, read_gpu
from ...results import Infeasible
from ...serving._answers.clock_curve import between, spread, steps_of
from .._problem.problem import Rows, joined
from .._reading.spec import Fleet, Model
from .._whole.horizon import Told
from .points import Points, Replica, replica

_BATCHES: Final = np.unique(np.round(2 ** np.arange(0, 8.26, 0.25)))
"""Ladder of batches, at most 19 % apart where whole numbers allow it."""
_CLOCKS: Final = 12
"""SM clocks tried of a GPU, evenly spread over its steps."""
_TP: Final = (1, 2, 4, 8)
_PLANS: Final = 2
"""Plans of a model on a GPU: the fewest GPUs that hold it, and twice that."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """A plan of a model on a GPU type over the clock: `points` of the `replica` at
    `clocks`, and all `steps` that the board has (Hz)."""

    model: int
    pools: list[int]
    replica: Replica
    clocks: Float[np.ndarray, " clock"]
    points: Points
    steps: Float[np.ndarray, " step"]

    @property
    def tp(self) -> int:
        """GPUs of a replica."""
        return self.replica.tp

    def rows(self) -> list[Rows]:
        """Its points in every pool."""
        return self._rows(self.clocks, self.points)

    def between(
        self, needs: Float[np.ndarray, " need"], ttft: float, tpot: float
    ) -> list[Rows]:
        """Rows at the clocks of the board that carry each of `needs` (requests/s) for
        the least power by the cubics through the clocks known. Their points are priced,
        not read off the curve."""
        rest = np.setdiff1d(self.steps, self.clocks)
        if not len(rest) or len(self.clocks) < 2:
            return []
        rate, *latencies, power, _ = (
            between(self.clocks, x, np.gradient(x, self.clocks, axis=0), rest)
            for x in self.points
        )
        kept = (latencies[0] <= ttft) & (latencies[1] <= tpot)
        carried = kept & (rate >= needs[:, None, None])  # need, clock, batch
        least = np.where(carried, power, np.inf).min(axis=-1)
        order = np.argsort(least, axis=-1, kind="stable").T.ravel()  # best of all first
        chosen = list(dict.fromkeys(order.tolist()))[:_CLOCKS]
        clocks = np.sort(rest[chosen])
        return self._rows(clocks, self.replica.points(clocks))

    def _rows(self, clocks: np.ndarray, points: Points) -> list[Rows]:
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
        """Of all plans, in every pool."""
        return joined([part for curve in self.curves for part in curve.rows()])


def price(fleet: Fleet, told: Told, late: Callable[[], bool]) -> Priced:
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
    found = Priced([], [], [])
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
                found.left_out.append(where)
                left = True
                continue
            told(f"pricing {where}", done, len(jobs))
            curve = _curve(model, fleet.models[model], cards[gpu], pools, tp)
            if isinstance(curve, Curve):
                found.curves.append(curve)
                plans += 1
            else:
                reason = curve
        if not plans and not left:
            found.notes.append(f"`{name}` does not run on {gpu}: {reason}")
            failed[model] = f"on {gpu}: {reason}"
    for model, reason in failed.items():
        name = fleet.models[model].name
        open_ = any(x.startswith(f"{name} on ") for x in found.left_out)
        if not open_ and all(curve.model != model for curve in found.curves):
            raise ValueError(f"no pool can run model `{name}`; {reason}")
    return found


def _curve(
    number: int, model: Model, card: GpuCard, pools: list[int], tp: int
) -> Curve | str:
    """A plan with its points; why it does not run."""
    assert model.model and model.input_len and model.output_len
    lengths = model.input_len, model.output_len, model.dtype
    steps = steps_of(card)
    clocks = spread(steps, _CLOCKS)
    try:
        served = replica(model.model, card, tp, _BATCHES, *lengths, size=_CLOCKS)
        points = served.points(clocks)
    except (ValueError, Infeasible) as error:
        return str(error)
    if not np.isfinite(points.rate).any():
        return "its weights and one request do not fit the memory."
    return Curve(number, pools, served, clocks, points, steps)


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
