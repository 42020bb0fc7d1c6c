"""Rows priced by the product: every model on every GPU type, over plans, clocks and
batches."""

import dataclasses
from typing import Final

import numpy as np

from ...hardware import GpuCard, read_gpu
from ...hardware._clocks import sm_clocks
from ...results import Infeasible
from .._problem.problem import Rows
from .._reading.spec import Fleet, Model
from .._whole.horizon import Told
from .points import Points, serving_points

_BATCHES: Final = np.unique(np.round(2 ** np.arange(0, 8.26, 0.25)))
"""Ladder of batches, at most 19 % apart where whole numbers allow it."""
_CLOCKS: Final = 12
"""SM clocks tried of a GPU, evenly spread over its steps."""
_TP: Final = (1, 2, 4, 8)
_PLANS: Final = 2
"""Plans of a model on a GPU: the fewest GPUs that hold it, and twice that."""


def priced_rows(fleet: Fleet, told: Told) -> tuple[Rows, list[str]]:
    """Rows of all models on all pools; remarks about what cannot run where.

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
    parts: list[Rows] = []
    notes: list[str] = []
    jobs = [(model, gpu) for model in range(len(fleet.models)) for gpu in cards]
    for done, (model, gpu) in enumerate(jobs):
        asked = fleet.models[model]
        told(f"pricing {asked.name} on {gpu}", done, len(jobs))
        pools = [i for i, pool in enumerate(fleet.pools) if pool.gpu == gpu]
        most = max(fleet.pools[i].count for i in pools)
        found, why = _plans(asked, cards[gpu], most)
        for tp, clocks, points in found:
            parts += [_rows(model, pool, tp, clocks, points) for pool in pools]
        if not found:
            notes.append(f"`{asked.name}` does not run on {gpu}: {why}")
    for number, model in enumerate(fleet.models):
        if not any((part.model == number).any() for part in parts):
            why = next(x for x in notes if x.startswith(f"`{model.name}`"))
            raise ValueError(f"no pool can run model {why}")
    return _joined(parts), notes


def _plans(
    model: Model, card: GpuCard, most: int
) -> tuple[list[tuple[int, np.ndarray, Points]], str]:
    """The plans that run, with clocks and points; why none does."""
    assert model.model and model.input_len and model.output_len
    steps = sm_clocks(card)
    chosen = np.unique(np.round(np.linspace(0, len(steps) - 1, _CLOCKS)).astype(int))
    clocks = np.sort(steps[chosen])
    found: list[tuple[int, np.ndarray, Points]] = []
    why = f"its pools have {most} GPUs."
    for tp in _TP:
        if tp > most or len(found) == _PLANS:
            break
        try:
            points = serving_points(
                model.model, card, tp, clocks, _BATCHES, model.input_len,
                model.output_len, model.dtype,
            )  # fmt: skip
        except (ValueError, Infeasible) as error:
            why = str(error)
            continue
        if np.isfinite(points.rate).any():
            found.append((tp, clocks, points))
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


def _joined(parts: list[Rows]) -> Rows:
    names = [field.name for field in dataclasses.fields(Rows)]
    return Rows(*(np.concatenate([getattr(x, name) for x in parts]) for name in names))
