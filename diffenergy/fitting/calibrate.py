"""`calibrate`: measured tables in, corrections out, with errors by group."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..corrections import CONSTANTS, CorrectionsFile, tags
from ..measurements import MeasurementTable
from ..workload.listing import Listing
from .batches import Batch, batches
from .fit import Fit, Target, fit, target
from .parameters import Parameters, select

PASS_SD: Final = (0.05, 0.03)
"""Expected error of ln time and ln power of whole passes (`docs/physics.md`)."""
KERNEL_SD: Final = (0.1, 0.08)
"""The same of single kernels: the floor between campaigns is 6-12 %."""
KERNEL_ROWS: Final = 128
"""Rows that one op of one GPU and campaign contributes at most: more would outvote the
passes, and 300 rows reproduce the errors of thousands (`docs/physics.md`)."""

_ATTENTION: Final = tuple(
    name for name in CONSTANTS if name.startswith(("prefill_", "decode_"))
)
_HELD: Final = (
    "core_energy",
    "idle_scale",
    "energy_launch",
    "energy_tile",
    "energy_link",
)
"""Global constants that no data here can tell from others."""
_FACTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "mma": (
        "tensor_efficiency",
        "operand_half_tile",
        "gemm_cycles",
        "own_cycles",
        "step_cycles",
        "store_exposed",
        "sm_feed",
        "in_flight",
        "stream_feed",
        *_ATTENTION,
    ),
    "memory": ("energy_dram", "dram_efficiency"),
    "architecture": ("core_energy",),
    "gpu": ("core_energy", "idle_scale"),
}
"""Constants that may differ between relatives, by the kind of their tag. The oldest
kind of each (mma.sync, HBM2, Ampere, the GPU with most passes) is the reference."""
_REFERENCE: Final = ("mma:mma.sync", "memory:HBM2", "architecture:Ampere")


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit, the corrections it gives, and the rows that it used."""

    fit: Fit
    corrections: CorrectionsFile
    rows: dict[str, int]
    """Rows used by GPU and kind."""


def calibrate(
    tables: Sequence[MeasurementTable],
    listings: Mapping[str, Sequence[Listing]],
    start: CorrectionsFile,
    *,
    seed: int = 0,
    max_steps: int = 40,
    sources: Sequence[str] = (),
    progress: Callable[[int, float], None] | None = None,
) -> Calibration:
    """Fit the constants of `start` (whose values are the prior centres) to `tables`.

    Rows of kernels are sampled by op, GPU and campaign, evenly over their time; `seed`
    picks them. Raises `ValueError` if no row is left.
    """
    rng = np.random.default_rng(seed)
    targets: list[Target] = []
    for table in tables:
        chosen = dataclasses.replace(table, skipped=_sampled(table, start, rng))
        for batch in batches(chosen, listings, start):
            time_sd, power_sd = (
                PASS_SD if table.kind[_first(batch)] == "workload" else KERNEL_SD
            )
            settled = _without_unsettled(chosen, start)
            targets.append(target(settled, batch, time_sd, power_sd))
    if not targets:
        raise ValueError(
            "no measured row is left to fit; give rows that are not skipped."
        )
    result = fit(
        free_parameters(start, [item.batch for item in targets]),
        targets,
        max_steps=max_steps,
        progress=progress,
    )
    rows: dict[str, int] = {}
    for item in targets:
        label = f"{item.batch.card.name}:{item.batch.kind}"
        rows[label] = rows.get(label, 0) + int((item.batch.rows >= 0).sum())
    fitted_on = {
        "gpus": sorted({item.batch.card.name for item in targets}),
        "rows": rows,
        "sources": list(sources),
        "seed": seed,
    }
    levels = result.parameters.fitted(result.z)
    corrections = CorrectionsFile(levels, start.instruments, fitted_on)
    return Calibration(result, corrections, rows)


def blanked(table: MeasurementTable, held: np.ndarray) -> MeasurementTable:
    """The table without the readings of `held` rows: they are predicted, not fitted,
    and every fold of a split keeps one shape and one compilation."""
    return dataclasses.replace(
        table,
        **{
            name: np.where(held, np.nan, getattr(table, name))
            for name in ("time_s", "energy_j", "avg_power_w")
        },
    )


def free_parameters(start: CorrectionsFile, used: Sequence[Batch]) -> Parameters:
    """Constants that the batches can move: the global ones and the factors of the tags
    of their GPUs; a GPU's own factors only for the ops that its rows hold."""
    names = [name for name in CONSTANTS if name not in _HELD]
    factors: dict[str, set[str]] = {}
    passes = [b for b in used if b.kind == "workload"]
    reference = max(passes or used, key=lambda b: (b.rows >= 0).sum()).card.name
    for batch in used:
        for tag in tags(batch.card):
            prefix = tag.partition(":")[0]
            if tag in _REFERENCE or tag == f"gpu:{reference}" or prefix not in _FACTORS:
                continue
            relevant = {
                name
                for name in _FACTORS[prefix]
                if _concerns(name, batch) and (prefix != "gpu" or batch.kind != "moe")
            }
            factors.setdefault(tag, set()).update(relevant)
    return select(
        start.levels, names, {tag: sorted(of) for tag, of in sorted(factors.items())}
    )


def _concerns(constant: str, batch: Batch) -> bool:
    """Whether rows of a batch say anything about a constant."""
    if constant.startswith("prefill_"):
        return batch.kind == "context_attention"
    if constant.startswith("decode_"):
        return batch.kind == "generation_attention"
    if constant in ("core_energy", "idle_scale", "leakage", "sm_clock_energy"):
        return batch.kind in ("workload", "moe", "gemm")
    if constant == "gemm_cycles":
        return batch.kind in ("workload", "gemm")
    return True


def _first(batch: Batch) -> int:
    return int(batch.rows[0])


def _sampled(
    table: MeasurementTable, start: CorrectionsFile, rng: np.random.Generator
) -> np.ndarray:
    """`skipped` of a table in which kernel rows are thinned out."""
    skipped = table.skipped.copy()
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in np.flatnonzero((table.kind == "kernel") & (skipped == "")):
        key = (table.gpu[i], table.op[i], table.campaign[i])
        groups.setdefault(key, []).append(int(i))
    for (_, op, campaign), members in groups.items():
        index = np.array(members)
        usable = index[_above_floor(table, start.instrument(campaign, op), op, index)]
        ordered = usable[np.argsort(table.time_s[usable], kind="stable")]
        strata = np.array_split(ordered, min(KERNEL_ROWS, max(len(ordered), 1)))
        kept = [int(rng.choice(stratum)) for stratum in strata if len(stratum)]
        skipped[np.setdiff1d(index, kept)] = "not sampled"
    return skipped


def _above_floor(
    table: MeasurementTable, instrument: dict[str, float], op: str, index: np.ndarray
) -> np.ndarray:
    """Whether rows are longer than the launch loop that measured them."""
    columns = table.fields[op]
    place = np.searchsorted(columns.rows, index)
    dtypes = columns.values.get("dtype", np.full(table.num_rows, ""))[place]
    general = instrument.get("floor_seconds", 0.0)
    floor = [instrument.get(f"floor_seconds_{dtype}", general) for dtype in dtypes]
    return np.nan_to_num(table.time_s[index], nan=math.inf) >= np.array(floor)


def _without_unsettled(
    table: MeasurementTable, start: CorrectionsFile
) -> MeasurementTable:
    """The table without the power of kernels whose sensor had not settled."""
    least = np.array(
        [
            0.0 if op == "" else start.instrument(c, op).get("settled_seconds", 0.0)
            for c, op in zip(table.campaign, table.op, strict=True)
        ]
    )
    power = np.where(table.time_s >= least, table.avg_power_w, np.nan)
    return dataclasses.replace(table, avg_power_w=power)
