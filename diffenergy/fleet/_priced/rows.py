"""Rows priced by the product: every model on every GPU type, over plans, clocks and
batches."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float

from ...hardware import GpuCard, read_gpu
from ...results import Infeasible
from ...serving._answers.clock_curve import between, spread, steps_of
from .._problem.problem import Rows, joined
from .._reading.spec import Fleet, Model
from .._whole.horizon import Told
from .points import Look, Points, looker

_BATCHES: Final = np.unique(np.round(2 ** np.arange(0, 8.26, 0.25)))
"""Ladder of batches, at most 19 % apart where whole numbers allow it."""
_CLOCKS: Final = 12
"""SM clocks tried of a GPU, evenly spread over its steps."""
_TP: Final = (1, 2, 4, 8)
_PLANS: Final = 2
"""Plans of a model on a GPU: the fewest GPUs that hold it, and twice that."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """A plan of a model on a GPU type over the clock: points at `clocks` and their
    derivatives, `look` for other ones, and all `steps` that the board has (Hz)."""

    model: int
    pools: list[int]
    tp: int
    clocks: Float[np.ndarray, " clock"]
    points: Points
    slopes: Points
    look: Look
    steps: Float[np.ndarray, " step"]

    def rows(self) -> list[Rows]:
        """Its points in every pool."""
        return self._rows(self.clocks, self.points)

    def between(
        self, needs: Float[np.ndarray, " need"], ttft: float, tpot: float
    ) -> list[Rows]:
        """Rows at the clocks of the board that carry each of `needs` (requests/s) for
        the least power: on the cubics through values and derivatives between the clocks
        known. Their points are looked at, not read off the curve."""
        rest = np.setdiff1d(self.steps, self.clocks)
        if not len(rest):
            return []
        rate, *latencies, power, _ = (
            between(self.clocks, *x, rest)
            for x in zip(self.points, self.slopes, strict=True)
        )
        kept = (latencies[0] <= ttft) & (latencies[1] <= tpot)
        carried = kept & (rate >= needs[:, None, None])  # need, clock, batch
        least = np.where(carried, power, np.inf).min(axis=-1)
        order = np.argsort(least, axis=-1, kind="stable").T.ravel()  # best of all first
        chosen = list(dict.fromkeys(order.tolist()))[:_CLOCKS]
        clocks = np.sort(rest[chosen])
        return self._rows(clocks, self.look(clocks)[0])

    def _rows(self, clocks: np.ndarray, points: Points) -> list[Rows]:
        return [_rows(self.model, x, self.tp, clocks, points) for x in self.pools]


def priced_rows(fleet: Fleet, told: Told) -> tuple[Rows, list[str], list[Curve]]:
    """Rows of all models on all pools; remarks about what cannot run where; the same
    over the clock.

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
    curves: list[Curve] = []
    notes = [
        f"`gpu` {x} is taken as {y.name}." for x, y in cards.items() if y.is_assumed
    ]
    jobs = [(model, gpu) for model in range(len(fleet.models)) for gpu in cards]
    for done, (model, gpu) in enumerate(jobs):
        asked = fleet.models[model]
        told(f"pricing {asked.name} on {gpu}", done, len(jobs))
        pools = [i for i, pool in enumerate(fleet.pools) if pool.gpu == gpu]
        most = max(fleet.pools[i].count for i in pools)
        found, why = _plans(model, asked, cards[gpu], pools, most)
        curves += found
        if not found:
            notes.append(f"`{asked.name}` does not run on {gpu}: {why}")
        every = (done + 1) % len(cards) == 0
        if every and not any(curve.model == model for curve in curves):
            raise ValueError(f"no pool can run model `{asked.name}`; on {gpu}: {why}")
    return joined([part for curve in curves for part in curve.rows()]), notes, curves


def _plans(
    number: int, model: Model, card: GpuCard, pools: list[int], most: int
) -> tuple[list[Curve], str]:
    """The plans that run; why none does."""
    assert model.model and model.input_len and model.output_len
    steps = steps_of(card)
    clocks = spread(steps, _CLOCKS)
    found: list[Curve] = []
    why = f"its pools have {most} GPUs."
    for tp in _TP:
        if tp > most or len(found) == _PLANS:
            break
        try:
            look = looker(
                model.model, card, tp, _BATCHES, model.input_len, model.output_len,
                model.dtype, size=_CLOCKS,
            )  # fmt: skip
            points, slopes = look(clocks)
        except (ValueError, Infeasible) as error:
            why = str(error)
            continue
        if np.isfinite(points.rate).any():
            found.append(Curve(number, pools, tp, clocks, points, slopes, look, steps))
        else:
            why = "its weights and one request do not fit the memory."
    return found, why


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
