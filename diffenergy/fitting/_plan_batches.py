"""Measured training steps of plans on one GPU as a `Workload` whose phases are the
parts of the steps."""

import dataclasses
import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, read_gpu
from ..measurements import MAX_POSITIONS, MeasurementTable, PlanRow, measured_model
from ..physics import TimeEnergy, static_power, with_corrections
from ..plans import (
    Steps,
    Training,
    compose_step,
    host_of,
    merge_steps,
    step_energy,
    training_of,
)
from ..workload import LanguageModel, Listing, without_mtp
from ..workload.models import Model, Request


def with_unplanned(table: MeasurementTable) -> MeasurementTable:
    """Skips rows whose model or plan is unavailable, with the reason."""
    if not (table.kind == "plan").any():
        return table
    skipped = table.skipped.copy()
    for row in np.flatnonzero((table.kind == "plan") & (table.skipped == "")):
        try:
            _training(table, int(row))
        except ValueError as error:
            skipped[row] = str(error)
    return dataclasses.replace(table, skipped=skipped)


def by_mixture(table: MeasurementTable, rows: np.ndarray) -> list[np.ndarray]:
    """Rows of dense models, and those of mixtures of experts; only sets that are not
    empty."""
    mixed = np.array(
        [_training(table, int(x))[1].routing is not None for x in rows], bool
    )
    return [part for part in (rows[~mixed], rows[mixed]) if len(part)]


def planned(
    table: MeasurementTable, rows: np.ndarray
) -> tuple[list[Listing], np.ndarray, Steps]:
    """Listings of rows of plans, the row of each listing, and the steps they form."""
    owner: list[int] = []
    works: list[tuple[list[Listing], Steps]] = []
    for row in rows:
        plan_row: PlanRow = table.plan.item(int(row))
        placed, request = _training(table, int(row))
        listings_of_row, step = placed.work(request)
        listings_of_row = [
            _in_family(listing, plan_row.family) for listing in listings_of_row
        ]
        if np.isfinite(plan_row.network):
            step = dataclasses.replace(step, network=jnp.asarray(plan_row.network))
        works.append(([*listings_of_row], step))
        owner += [int(row)] * len(listings_of_row)
    listings, all_steps = merge_steps(works)
    return listings, np.array(owner), all_steps


def _in_family(listing: Listing, family: str) -> Listing:
    """A listing with attention kernels of the given framework family."""
    if not family:
        return listing
    ops = ("context_attention", "attention_backward")
    rows = [x | ({"family": family} if x["op"] in ops else {}) for x in listing.kernels]
    return dataclasses.replace(listing, kernels=tuple(rows))


def _training(table: MeasurementTable, row: int) -> tuple[Training, Request]:
    """The model of a row on the GPUs of its plan, and what a replica runs.

    Raises `ValueError` with the reason if there is none.
    """
    folder = str(Path(table.file[row]).parent)
    return _placed(table.plan.item(int(row)), folder, str(table.gpu[row]))


@functools.lru_cache(maxsize=1024)
def _placed(plan_row: PlanRow, folder: str, gpu: str) -> tuple[Training, Request]:
    model, host = _model(plan_row.model, folder, plan_row.mtp), host_of(read_gpu(gpu))
    if np.isfinite(plan_row.network) and not host.network:
        host = dataclasses.replace(host, network=plan_row.network)
    placed = training_of(model, plan_row.plan, host, plan_row.sequences)
    request = placed.request(
        phase="train",
        dtype=plan_row.dtype,
        input_len=plan_row.seq_len,
        stack=plan_row.stack,
        attention="flash" if plan_row.family else None,
    )
    return placed, request


@functools.lru_cache(maxsize=64)
def _model(name: str, folder: str, mtp: bool) -> Model:
    """A model of a table in a folder, with the layers that predict further tokens or
    without; plans may be of longer sequences than it serves.

    Raises `ValueError` if neither we nor `models.csv` know it.
    """
    model = measured_model(name, Path(folder))
    if model is None:
        raise ValueError(f"the model {name} is not known")
    if isinstance(model, LanguageModel):
        config = model.config if mtp else without_mtp(model.config)
        return dataclasses.replace(model, positions=MAX_POSITIONS, config=config)
    return model


def step_reading(
    free: TimeEnergy,
    steps: Steps,
    spec: GpuSpec,
    point: OperatingPoint,
    c: Corrections,
) -> TimeEnergy:
    """Time and energy (all GPUs) of steps from those of their phases."""
    composed = compose_step(free.time, steps, c)
    board = with_corrections(spec, c)
    clock = jnp.minimum(point.sm_clock, spec.sm_clock_applied_max)
    idle, leakage, _ = static_power(board, c, clock, 0 * clock, point)
    static = idle + leakage
    work = free.energy - static * free.time
    drawn = step_energy(free.time, work, static, composed, steps)
    return TimeEnergy(composed.time, drawn.energy)
