"""`problem_from_columns`: measured rows -> what every kernel costs at every setting."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from .._problem.problem import AUTO, LEFT_ALONE, Loop, Problem, pair_text

_MOST_CELLS: Final = 50_000_000
"""Kernels x settings; a table with more has its columns mixed up."""
_BEFORE_ALL: Final = -1.0
"""Stands for a clock left alone while pairs are sorted."""


def problem_from_columns(
    stage: Shaped[np.ndarray, " row"],
    instruction: Shaped[np.ndarray, " row"],
    sm_clock: Float[np.ndarray, " row"],
    mem_clock: Float[np.ndarray, " row"],
    time: Float[np.ndarray, " row"],
    energy: Float[np.ndarray, " row"],
    count: Float[np.ndarray, " row"],
    *,
    default: tuple[float, float] = AUTO,
    source: str = "table",
) -> Problem:
    """`Problem` of measured rows, one a kernel and setting.

    The first row of a kernel gives its place in the launch order. Kernels of one stage
    that follow each other with equal count are a loop body.

    **Arguments:**

    - `stage`, `instruction`: texts; both together name a kernel.
    - `sm_clock`, `mem_clock`: Hz; NaN where a clock is left alone.
    - `time`, `energy`: s and J of one launch, above 0.
    - `count`: launches of the kernel in one iteration, the same in all its rows.
    - `default`: the setting (Hz) that counts as leaving both clocks alone. A kernel
      without a row there falls back to its row that leaves both alone.
    - `source`: where the rows come from, for errors.

    Raises `ValueError` for a kernel with two rows at one setting, with two counts or
    without a row at the default, and if all rows are of one setting.
    """
    named = pd.DataFrame({"stage": stage, "instruction": instruction})
    kernel = named.groupby([*named], sort=False).ngroup().to_numpy()
    first_row = np.unique(kernel, return_index=True)[1]
    stage_of_row, stages = pd.factorize(stage)
    own_stage, own_count = stage_of_row[first_row], count[first_row]
    settings, setting = _settings(sm_clock, mem_clock)
    shape = (len(first_row), len(settings))
    if np.prod(shape, dtype=float) > _MOST_CELLS:
        raise ValueError(
            f"{source}: there are {shape[0]} kernels at {shape[1]} settings; allowed "
            f"are {_MOST_CELLS:,} cells; check the columns, or round the clocks."
        )
    whose = [f"`{instruction[i]}` of stage `{stage[i]}`" for i in first_row]
    other = np.flatnonzero(count != own_count[kernel])
    if len(other):
        row = int(other[0])
        raise ValueError(
            f"{source}, row {row}: `count` is {count[row]:g}, but "
            f"{own_count[kernel[row]]:g} in the first row of {whose[kernel[row]]}; "
            "give one count for all rows of a kernel."
        )
    _require_once(source, whose, kernel, settings, setting)
    cells = np.full((2, *shape), np.inf)
    cells[:, kernel, setting] = time, energy
    column, others = _default_columns(cells[0], settings, whose, default, source)
    at_default = cells[:, np.arange(len(column)), column]
    times, energies = np.dstack([at_default[:, :, None], cells[:, :, others]])
    return Problem(
        kernels=tuple(map(str, instruction[first_row])),
        stages=tuple(map(str, stages)),
        stage=own_stage,
        count=own_count,
        settings=np.concatenate([[AUTO], settings[others]]),
        time=times,
        energy=energies,
        default_time=at_default[0],
        default_energy=at_default[1],
        loops=_loops(own_stage, own_count),
        power_cap=np.full(len(stages), np.inf),
        host_time=np.zeros(len(stages)),
        wait_power=np.zeros(len(stages)),
    )


def _settings(
    sm_clock: np.ndarray, mem_clock: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs by rising SM clock, auto first, and the pair of every row."""
    sm, mem = (np.nan_to_num(x, nan=_BEFORE_ALL) for x in (sm_clock, mem_clock))
    # complex numbers sort by their first part, then by their second one
    pairs, setting = np.unique(sm + 1j * mem, return_inverse=True)
    settings = np.stack([pairs.real, pairs.imag], axis=1)
    return np.where(settings == _BEFORE_ALL, LEFT_ALONE, settings), setting


def _default_columns(
    time: np.ndarray,
    settings: np.ndarray,
    whose: list[str],
    default: tuple[float, float],
    source: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Column of every kernel at default clocks, and the columns of other settings."""
    auto = np.isnan(settings).all(axis=1)
    # equal within 1 Hz
    near = np.isclose(settings, default, rtol=0.0, atol=1.0, equal_nan=True)
    named: np.ndarray = np.all(near, axis=1)
    standing_for = np.flatnonzero(auto | named)
    # columns in order of preference: the named one, then auto
    standing_for = standing_for[np.argsort(~named[standing_for], kind="stable")]
    there = np.isfinite(time[:, standing_for])
    if not there.any(axis=1).all():
        who = whose[int(there.any(axis=1).argmin())]
        common = np.flatnonzero(np.isfinite(time).all(axis=0))
        raise _no_default(who, settings[common], default, source)
    others = np.flatnonzero(~(auto | named))
    if not len(others):
        raise ValueError(
            f"{source}: all rows are at default clocks; add rows at other clocks, "
            f"among which to choose."
        )
    return standing_for[there.argmax(axis=1)], others


def _no_default(
    who: str, common: np.ndarray, default: tuple[float, float], source: str
) -> ValueError:
    """`common`: settings with rows of all kernels."""
    choice = "no setting has rows of all kernels, so add the rows"
    if len(common):
        highest = pair_text(common[-1])
        choice = f"the highest with rows of all kernels is {highest}"
    if np.isnan(default).all():
        return ValueError(
            f"{source}: {who} has no row with `frequency` auto (and "
            f"`memory_frequency` auto, if there is one); add the row, or name the "
            f"default clocks by --default-clock SM[,MEM] in MHz: {choice}."
        )
    return ValueError(
        f"{source}: --default-clock is {pair_text(default)}, but {who} has no row "
        f"there and none with auto; name another as SM[,MEM] in MHz: {choice}."
    )


def _loops(stage: np.ndarray, count: np.ndarray) -> tuple[Loop, ...]:
    """Runs of kernels of one stage with equal count."""
    changes = (np.diff(stage) != 0) | (np.diff(count) != 0)
    bodies = np.split(np.arange(len(stage)), np.flatnonzero(changes) + 1)
    return tuple(Loop(tuple(b.tolist()), int(count[b[0]])) for b in bodies)


def _require_once(
    source: str,
    whose: list[str],
    kernel: np.ndarray,
    settings: np.ndarray,
    setting: np.ndarray,
) -> None:
    cell = kernel * len(settings) + setting
    again = pd.Series(cell).duplicated().to_numpy()
    if again.any():
        row = int(again.argmax())
        raise ValueError(
            f"{source}, row {row}: {whose[kernel[row]]} at "
            f"{pair_text(settings[setting[row]])} MHz is in row "
            f"{int((cell == cell[row]).argmax())} already; give each pair of clocks "
            f"once, as the mean of its repetitions."
        )
