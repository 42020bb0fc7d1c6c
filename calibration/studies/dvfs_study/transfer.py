"""Table 1's clocks at other batch sizes and tensor-parallel degrees (Figures 7 and 8).

No number is fitted to them. The study's clocks take 100 ms to switch, so its kernels
ran alone, for seconds each, and were added up: each is under the power limiter alone,
and there are no gaps between launches.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from diffenergy.dvfs import solve
from diffenergy.dvfs._solve import STRICT
from diffenergy.fitting._clock_law import ClockLaw

from .campaigns import SETTINGS, Study, clocks
from .scores import DRAWS, Table, as_measured, law_table, problem
from .shapes import REFERENCE, Shape, at_shape, shape_work

SUMS: Final = (
    ("batch8", Shape(8)),
    ("tp4", Shape(40, 4)),
    ("tp4", Shape(40, 4, whole_head=False)),
)
"""Printed times and energies of an iteration, by the start of their names. Taken for
those at Table 1's clocks: they mean 290 and 279 W, and without the changes of Figures 7
and 8 340 and 342 W, what the limiter holds at default clocks."""


class Change(NamedTuple):
    """An iteration against default clocks, %."""

    time: float
    energy: float


class Sum(NamedTuple):
    """An iteration at Table 1's clocks."""

    shape: Shape
    time: float  # s
    energy: float  # J
    printed_time: float
    printed_energy: float


class Row(NamedTuple):
    """One shape: iteration at default clocks, and changes under other ones."""

    shape: Shape
    time: float  # s
    energy: float  # J
    published: Change
    law: Change  # Table 1's clocks
    read: Change  # the same, each kernel's change times Table 1's / the law's at 40
    again: Change  # `read`, less what a choice among noisy readings promises too much
    replanned: Change  # the strict optimum of this shape


def published(folder: Path) -> list[tuple[Shape, Change]]:
    """Figures 7 and 8 (means), in `kernel_dvfs` under the folder of the tables."""
    changes = []
    for name, column in (
        ("fig7_data_parallel", "batch_size"),
        ("fig8_tensor_parallel", "tp_degree"),
    ):
        path = folder / "kernel_dvfs" / f"{name}.csv"
        if not path.is_file():
            raise ValueError(f"`DATA` is {folder}, which holds no `{name}.csv`.")
        for row in pd.read_csv(path).to_dict("records"):
            size = int(row[column])
            shape = Shape(size) if column == "batch_size" else Shape(40, size)
            means = (row[f"{word}_change_mean_pct"] for word in Change._fields)
            changes.append((shape, Change(*means)))
    return changes


def _chosen(study: Study, t: Table) -> Int[np.ndarray, " kernel"]:
    """Index of Table 1's clocks in the settings, by kernel."""
    requested = np.stack([clocks(study.best.core_mhz), clocks(study.best.mem_mhz)], 1)
    same = np.nan_to_num(requested)[:, None] == np.nan_to_num(t.settings)
    matches = same.all(axis=-1)
    if not matches.any(axis=1).all():
        raise ValueError("`table1_best_clocks` has clocks that are no setting.")
    return np.argmax(matches, axis=1)


def _costs(
    t: Table, column: Int[np.ndarray, " kernel"]
) -> Float[np.ndarray, "2 kernel"]:
    """(time, energy) of every kernel at a setting of its own; the default is 0."""
    return np.stack([x[np.arange(len(column)), column] for x in (t.time, t.energy)])


def _change(new: Float[np.ndarray, "2"], old: Float[np.ndarray, "2"]) -> Change:
    return Change(*(100 * (new / old - 1)).tolist())


def table_at(law: ClockLaw, shape: Shape) -> Table:
    """Costs of the kernels of `shape` by `law`, which was fitted at `REFERENCE`."""
    moved = at_shape(law, shape_work(shape), shape_work(REFERENCE))
    return law_table(moved, SETTINGS)


def overpromised(study: Study, law: ClockLaw) -> Change:
    """How much more a strict plan made of readings promises than it keeps: mean over
    tables with the error of one reading, points."""
    true, counts, savings = law_table(law, SETTINGS), study.counts, []
    default = np.zeros(len(counts), int)
    for seed in range(DRAWS):
        noisy = as_measured(true, seed)
        plan = solve(problem(study, noisy), STRICT)
        column = default.copy()
        column[plan.kernel] = plan.setting
        ends = [(_costs(t, column), _costs(t, default)) for t in (true, noisy)]
        savings.append([_change(new @ counts, old @ counts) for new, old in ends])
    reached, promised = np.mean(savings, axis=0)
    return Change(*(reached - promised).tolist())


def transfer(
    study: Study, law: ClockLaw, shapes: Sequence[tuple[Shape, Change]]
) -> list[Row]:
    """Every shape at default clocks, at Table 1's, and planned anew."""
    counts, known = study.counts, law_table(law, SETTINGS)
    own, default = _chosen(study, known), np.zeros(len(counts), int)
    words = [study.best[f"{word}_change_pct"] for word in Change._fields]
    read = (1 + np.stack(words) / 100) * _costs(known, default) / _costs(known, own)
    more = overpromised(study, law)
    rows = []
    for shape, printed in shapes:
        t = table_at(law, shape)
        plan = solve(problem(study, t), STRICT)
        at_own, total = _costs(t, own), _costs(t, default) @ counts
        as_read = _change((at_own * read) @ counts, total)
        row = Row(
            shape,
            float(total[0]),
            float(total[1]),
            published=printed,
            law=_change(at_own @ counts, total),
            read=as_read,
            again=Change(as_read.time + more.time, as_read.energy + more.energy),
            replanned=_change(np.array([plan.time, plan.energy]), total),
        )
        rows.append(row)
    return rows


def printed_sums(study: Study, law: ClockLaw) -> list[Sum]:
    """Iterations whose time and energy the study prints."""
    sums = []
    for name, shape in SUMS:
        t = table_at(law, shape)
        time, energy = _costs(t, _chosen(study, t)) @ study.counts
        printed = [float(study.scalars.at[f"{name}_{x}"]) for x in Change._fields]
        sums.append(Sum(shape, float(time), float(energy), *printed))
    return sums
