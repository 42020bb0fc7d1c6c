"""Measured tables of kernels and clocks -> the problem to solve.

`read_table` reads a file, `problem_from_columns` takes its columns.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from ..files import row_place
from ..hardware import lockable, unsupported
from ..measurements import (
    POSITIVE,
    CellRange,
    Sheet,
    bad_cell,
    name_list,
    read_names,
    read_numbers,
    read_sheet,
    require_column,
)
from ..units import MHz, quantity
from ..workload import Loop
from ._problem import AUTO, LEFT_ALONE, Problem, pair_text

if TYPE_CHECKING:
    from ..hardware import GpuCard

COLUMNS: Final = ("stage", "instruction", "frequency", "time", "energy")
"""Columns that every table has; `memory_frequency` and `count` may be there too."""
GROWTH: Final = 1.04
"""Time ratio above which a time that grows with the clock is remarked on: more than the
spread of good measurements, and the mark of a host that keeps the GPU waiting."""
_AUTO: Final = "auto"
_CLOCKS: Final = (30.0, 1e5)
"""Least and most of a clock in MHz; below it is in GHz, above in kHz or Hz."""
_CLOCK_WORDS: Final = "a clock in MHz (30 to 100000) or `auto`"
_DEFAULT: Final = (
    f"`default_clock` is '{{}}'; allowed is SM or SM,MEM, each {_CLOCK_WORDS}."
)
_MOST_COUNT: Final = 1_000_000
_ENERGY: Final = CellRange("a number above 0 (0 is no reading)", 0.0, open_low=True)
_SHOWN: Final = 5


class Table(NamedTuple):
    """What `read_table` makes of a file.

    `default_clock` are the SM and memory clock (Hz) that the problem's first setting
    stands for, NaN where nothing is said about it. `notes` are remarks for people.
    """

    path: str
    problem: Problem
    default_clock: tuple[float, float]
    notes: tuple[str, ...]


def read_table(
    path: str, default_clock: str | None = None, card: "GpuCard | None" = None
) -> Table:
    """Reads `stage,instruction,frequency[,memory_frequency][,count],time,energy`.

    One row a kernel and setting, .csv or .csv.gz; clocks in MHz or `auto`, time in s
    and energy in J of one launch. `problem_from_columns` says what the order of rows
    and `count` (1 if there is no such column) mean. Without `memory_frequency` the
    memory clock is left alone.

    **Arguments:**

    - `path`: the file.
    - `default_clock`: "SM" or "SM,MEM" in MHz, the setting that counts as default;
      needed where kernels have no row with `auto`, as in files of Perseus.
    - `card`: the GPU whose clocks the file must name.

    Raises `ValueError` naming file, line, column and value at
    the first thing that cannot be read.
    """
    sheet = read_sheet(path)
    for column in COLUMNS:
        require_column(sheet, column, "name the columns " + ", ".join(COLUMNS))
    default = AUTO if default_clock is None else _default_clock(default_clock)
    every = np.arange(sheet.num_rows)
    clocks = {
        column: _clocks(sheet, column)
        for column in ("frequency", "memory_frequency")
        if column in sheet.columns
    }
    if card is not None:
        _require_supported(sheet, clocks, card)
    problem = problem_from_columns(
        stage=read_names(sheet, "stage", every, _in_one_line, needed=True),
        instruction=read_names(sheet, "instruction", every, _in_one_line, needed=True),
        sm_clock=clocks["frequency"],
        mem_clock=clocks.get("memory_frequency", np.full(len(every), LEFT_ALONE)),
        time=read_numbers(sheet, "time", every, POSITIVE, needed=True),
        energy=read_numbers(sheet, "energy", every, _ENERGY, needed=True),
        count=_counts(sheet),
        default=default,
        source=sheet.file,
        lines=sheet.lines,
    )
    readable = {*COLUMNS, "memory_frequency", "count"}
    others = [column for column in sheet.columns if column not in readable]
    remarks = [
        *([f"{name_list(others)} is not read."] if others else []),
        *_replaced(clocks, default_clock),
        *_incomplete(problem),
        *_growing(problem, default),
    ]
    notes = tuple(f"{sheet.file}: {note}" for note in remarks)
    return Table(path, problem, default, notes)


def _default_clock(text: str) -> tuple[float, float]:
    """ "1410", "1.41GHz" or "1410,9501" (bare in MHz, or `auto`) -> Hz."""
    clocks: list[float] = []
    for part in map(str.strip, text.split(",")):
        if part.lower() == _AUTO:
            clocks.append(LEFT_ALONE)
            continue
        if not part or part.isalpha():
            raise ValueError(_DEFAULT.format(text))
        clocks.append(quantity("default_clock", part, "MHz"))
        if not _CLOCKS[0] <= clocks[-1] / MHz <= _CLOCKS[1]:
            raise ValueError(_DEFAULT.format(text))
    if len(clocks) > 2:
        raise ValueError(_DEFAULT.format(text))
    sm, mem, *_ = *clocks, LEFT_ALONE
    return sm, mem


def _clocks(sheet: Sheet, column: str) -> np.ndarray:
    """Clocks of all rows in Hz, NaN where they are left alone."""
    cells = sheet.columns[column]
    locked = np.flatnonzero([cell.strip().lower() != _AUTO for cell in cells])
    clocks = np.full(sheet.num_rows, LEFT_ALONE)
    words = CellRange(_CLOCK_WORDS, 0.0, open_low=True)
    clocks[locked] = read_numbers(sheet, column, locked, words, needed=True)
    low, high = _CLOCKS
    for wrong, unit in ((clocks < low, "GHz"), (clocks > high, "Hz or kHz")):
        if wrong.any():
            allowed = f"{_CLOCK_WORDS}, and this looks like {unit}"
            raise bad_cell(sheet, int(wrong.argmax()), column, allowed)
    return clocks * MHz


def _in_one_line(name: str) -> str:
    return " ".join(name.split())


def _counts(sheet: Sheet) -> np.ndarray:
    """Launches of the kernel of every row in one iteration."""
    if "count" not in sheet.columns:
        return np.ones(sheet.num_rows)
    words = CellRange(f"a whole number of 1 to {_MOST_COUNT}", 1.0)
    every = np.arange(sheet.num_rows)
    counts = read_numbers(sheet, "count", every, words, needed=True)
    wrong = (counts > _MOST_COUNT) | (counts % 1 != 0)
    if wrong.any():
        raise bad_cell(sheet, int(wrong.argmax()), "count", words.words)
    return counts


def _require_supported(
    sheet: Sheet, clocks: dict[str, np.ndarray], card: "GpuCard"
) -> None:
    """Raises `ValueError` at the first clock that `card` cannot be locked to."""
    # a table without memory clocks has the first of both alone
    for column, (allowed, words) in zip(clocks, lockable(card), strict=False):
        wrong = np.isin(clocks[column], unsupported(np.unique(clocks[column]), allowed))
        if wrong.any():
            row = int(wrong.argmax())
            raise bad_cell(sheet, row, column, f"{words} on {card.name}, or `auto`")


def _replaced(clocks: dict[str, np.ndarray], default_clock: str | None) -> list[str]:
    """Remark on `auto` rows beside a default clock."""
    auto = np.all([np.isnan(values) for values in clocks.values()], axis=0)
    if default_clock is None or not auto.any():
        return []
    return [
        f"--default-clock {default_clock} stands for `auto`, whose rows are read only "
        f"of kernels without a row there."
    ]


def _incomplete(problem: Problem) -> list[str]:
    """Remark on kernels that were not measured at all settings."""
    usable = problem.usable
    incomplete = np.flatnonzero(~usable.all(axis=1))
    if not len(incomplete):
        return []
    return [
        f"{len(incomplete)} of {len(usable)} kernels lack rows at some of the "
        f"{usable.shape[1]} settings, which are not chosen for them "
        f"({_some(problem, incomplete)})."
    ]


def _growing(problem: Problem, default: tuple[float, float]) -> list[str]:
    """Remark on kernels that a higher SM clock makes slower, at one memory clock."""
    clocks = problem.settings.copy()
    clocks[0] = default
    slower = np.zeros(len(problem.kernels), dtype=bool)
    locked = np.isfinite(clocks[:, 0])
    mem = np.nan_to_num(clocks[:, 1], nan=0.0)
    for clock in np.unique(mem[locked]):
        rising = np.flatnonzero(locked & (mem == clock))
        rising = rising[np.argsort(clocks[rising, 0])]
        time = problem.time[:, rising]
        least = np.minimum.accumulate(time, axis=1)[:, :-1]
        slower |= (np.isfinite(time[:, 1:]) & (time[:, 1:] > GROWTH * least)).any(
            axis=1
        )
    if not slower.any():
        return []
    growing = np.flatnonzero(slower)
    return [
        f"the time of {len(growing)} of {len(slower)} kernels grows with the SM clock "
        f"by more than {100 * (GROWTH - 1):.0f} % ({_some(problem, growing)}); they "
        f"wait for the host, or were disturbed while measured."
    ]


def _some(problem: Problem, kernels: np.ndarray) -> str:
    """Names of the first few kernels."""
    rest = len(kernels) - _SHOWN
    shown = ", ".join(
        f"{problem.stages[problem.stage[k]]} {problem.kernels[k]}"
        for k in kernels[:_SHOWN]
    )
    return f"{shown} and {rest} more" if rest > 0 else shown


# --- from columns to a problem

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
    lines: Sequence[int] = (),
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
    - `source`, `lines`: the file of the rows and their lines in it, for errors.

    Raises `ValueError` for a kernel with two rows at one setting, with two counts or
    without a row at the default, and if all rows are of one setting.
    """
    named = pd.DataFrame({"stage": stage, "instruction": instruction})
    kernel = named.groupby([*named], sort=False).ngroup().to_numpy()
    first_row = np.unique(kernel, return_index=True)[1]
    stage_of_row, stages = pd.factorize(stage)
    kernel_stage, kernel_count = stage_of_row[first_row], count[first_row]
    settings, setting = _settings(sm_clock, mem_clock)
    shape = (len(first_row), len(settings))
    if np.prod(shape, dtype=float) > _MOST_CELLS:
        raise ValueError(
            f"{source}: there are {shape[0]} kernels at {shape[1]} settings; allowed "
            f"are {_MOST_CELLS:,} cells; check the columns, or round the clocks."
        )
    whose = [f"`{instruction[i]}` of stage `{stage[i]}`" for i in first_row]
    other = np.flatnonzero(count != kernel_count[kernel])
    if len(other):
        row = int(other[0])
        raise ValueError(
            f"{row_place(source, row, lines)}: `count` is {count[row]:g}, but "
            f"{kernel_count[kernel[row]]:g} in the first row of {whose[kernel[row]]}; "
            "give one count for all rows of a kernel."
        )
    _require_once(source, lines, whose, kernel, settings, setting)
    cells = np.full((2, *shape), np.inf)
    cells[:, kernel, setting] = time, energy
    column, others = _default_columns(cells[0], settings, whose, default, source)
    at_default = cells[:, np.arange(len(column)), column]
    times, energies = np.dstack([at_default[:, :, None], cells[:, :, others]])
    return Problem(
        kernels=tuple(map(str, instruction[first_row])),
        stages=tuple(map(str, stages)),
        stage=kernel_stage,
        count=kernel_count,
        settings=np.concatenate([[AUTO], settings[others]]),
        time=times,
        energy=energies,
        default_time=at_default[0],
        default_energy=at_default[1],
        loops=_loops(kernel_stage, kernel_count),
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
    lacking = ~there.any(axis=1)
    if lacking.any():
        who = whose[int(lacking.argmax())]
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
    lines: Sequence[int],
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
            f"{row_place(source, row, lines)}: {whose[kernel[row]]} at "
            f"{pair_text(settings[setting[row]])} MHz is there already "
            f"({row_place(source, int((cell == cell[row]).argmax()), lines)}); give "
            "each pair of clocks once, as the mean of its repetitions."
        )
