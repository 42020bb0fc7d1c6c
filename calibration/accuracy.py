"""The accuracy table: every split fitted without its left-out groups, then scored.

    python calibration/accuracy.py DATA [--only NAME ...] [--seeds 3] [--jobs 2]
        [--keep FOLDER] [--rows rows.npz] [--spread CORRECTIONS.json]
    python calibration/accuracy.py DATA --score CORRECTIONS.json

DATA is the folder of the measured tables. Prints the table; `--rows` keeps measured and
predicted numbers of all left-out rows, which `parity/plots.py` draws; `--spread` writes
the widths of the left-out errors into a corrections file.
"""

import dataclasses
import functools
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from calibration.splits import SPLITS, Data
from diffenergy.corrections import read_corrections, write_corrections
from diffenergy.corrections._spread import GRADES, trust, widths
from diffenergy.files import write_text_atomic
from diffenergy.fitting import predict
from diffenergy.fitting._calibrate import calibrate
from diffenergy.measurements import QUANTITIES as COLUMNS

_NO_PICTURE = ("a10-five", "hopper-five", "throttled", "h100-family-ours")
"""Splits whose rows are drawn again and again, whose times are clocks, or whose rows
another split has."""
_SPLITS = {split.name: split for split in SPLITS}
_data = functools.cache(Data)  # kept by each process


@dataclasses.dataclass(frozen=True)
class Done:
    """One fold: numbers of its tested rows, and which score each row belongs to."""

    split: str
    fold: int
    seed: int
    gpu: np.ndarray
    numbers: dict[str, np.ndarray]
    """`time`, `power`, `energy` (measured), the same with `_pred`."""
    member: np.ndarray
    """Rows by scores: whether a score counts the row."""
    parameters: int
    part: np.ndarray
    """What each row was left out with inside its fold (its model family, or its clock),
    "" where that is all of the fold."""

    @property
    def groups(self) -> np.ndarray:
        """Group that each row was left out with: its part, or its fold."""
        fold = f"{self.split} {self.fold}"
        return np.where(self.part == "", fold, self.part).astype(object)

    def ratio(self, word: str) -> np.ndarray:
        """ln measured / predicted of a quantity."""
        return np.log(self.numbers[word] / self.numbers[f"{word}_pred"])

    def rows(self, which: np.ndarray) -> "Done":
        """The chosen rows of the fold."""
        numbers = {word: x[which] for word, x in self.numbers.items()}
        arrays = {
            name: getattr(self, name)[which] for name in ("gpu", "part", "member")
        }
        return dataclasses.replace(self, numbers=numbers, **arrays)


def run_fold(
    folder: str,
    name: str,
    fold: int,
    seed: int,
    score: Path | None = None,
    max_steps: int | None = None,
) -> Done:
    """Fit without the left-out groups and predict them; with `score`, a corrections
    file, predict the same rows with that instead. `max_steps` replaces the split's."""
    jax.config.update("jax_enable_x64", True)
    split = _SPLITS[name]
    task = split.fold(_data(folder), fold, seed)
    settings = task.settings
    if max_steps is not None:
        settings = dataclasses.replace(settings, max_steps=max_steps)
    if task.predicted is not None:
        corrections, parameters = task.start, task.constants
    elif score:
        corrections, parameters = read_corrections(score), 0
    else:
        result = calibrate(task.fitted, task.start, settings)
        corrections, parameters = result.corrections, len(result.fit.z)
    predicted = task.predicted or predict(task.tested, corrections)
    rows = np.flatnonzero(task.tested.skipped == "")
    numbers: dict[str, np.ndarray] = {}
    for word, column in COLUMNS.items():
        numbers[word] = getattr(task.tested, column)[rows]
        numbers[f"{word}_pred"] = getattr(predicted, column)[rows]
    member = [x.rows(task.tested, predicted, corrections)[rows] for x in split.scores]
    frame = task.tested.frame
    part = np.full(len(rows), "")
    if {*split.part} <= {*frame}:
        part = frame[list(split.part)].astype(str).agg(" ".join, axis=1)
        part = part.to_numpy(dtype=str)[rows]
    return Done(
        name, fold, seed, task.tested.gpu[rows].astype(str), numbers,
        np.stack(member, 1), parameters, part,
    )  # fmt: skip


def run_all(
    folder: str,
    names: Sequence[str],
    seeds: int,
    jobs: int,
    keep: Path | None,
    score: Path | None,
) -> list[Done]:
    """All folds of the named splits, `jobs` at once, with progress on stderr; those in
    the folder `keep` are not run again."""
    tasks = [
        (split.name, fold, seed)
        for split in SPLITS
        if (not names or split.name in names) and not (score and "five" in split.name)
        for seed in range(seeds if split.seeded else 1)
        for fold in range(split.count)
    ]
    if not tasks:
        allowed = ", ".join(split.name for split in SPLITS)
        raise ValueError(f"`--only` is {', '.join(names)}; known are {allowed}.")
    pickles = {t: keep / f"{t[0]}-{t[1]}-{t[2]}.pickle" for t in tasks} if keep else {}
    done = [pickle.loads(p.read_bytes()) for p in pickles.values() if p.exists()]
    left = [t for t in tasks if t not in pickles or not pickles[t].exists()]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_fold, folder, *task, score): task for task in left}
        for future in as_completed(futures):
            task, result = futures[future], future.result()
            done.append(result)
            if keep:
                pickles[task].write_bytes(pickle.dumps(result))
            words = "{} fold {} seed {}".format(*task)
            typer.echo(f"{len(done)}/{len(tasks)} {words}", err=True)
    return sorted(done, key=lambda x: (x.split, x.seed, x.fold))


def mape(done: Sequence[Done], score: int, word: str) -> float | None:
    """Mean absolute percentage error over the folds of one seed."""
    measured, predicted = _scored(done, score, word)
    if not len(measured):
        return None
    return 100 * float(np.mean(np.abs(predicted / measured - 1)))


def _scored(
    done: Sequence[Done], score: int, word: str
) -> tuple[np.ndarray, np.ndarray]:
    """Measured and predicted numbers of the rows of a score, where both are known."""
    measured = np.concatenate([x.numbers[word][x.member[:, score]] for x in done])
    predicted = np.concatenate(
        [x.numbers[f"{word}_pred"][x.member[:, score]] for x in done]
    )
    finite = np.isfinite(measured) & np.isfinite(predicted)
    return measured[finite], predicted[finite]


def table(done: Sequence[Done]) -> list[str]:
    """Lines of the table in Markdown: mean over seeds, +- half their range."""
    lines = [
        "| rows | left out | n | constants | time / power / energy | goal | study |",
        "|---|---|---|---|---|---|---|",
    ]
    for split in SPLITS:
        mine = [x for x in done if x.split == split.name]
        if not mine:
            continue
        seeds = sorted({x.seed for x in mine})
        by_seed = [[x for x in mine if x.seed == seed] for seed in seeds]
        for i, score in enumerate(split.scores):
            count = sum(int(x.member[:, i].sum()) for x in by_seed[0])
            constants = max(x.parameters for x in mine)
            lines.append(
                f"| {score.title} | {split.left_out} | {count} | {constants} | "
                f"{_cells(by_seed, i, score)} | {_goal(score.goal)} | "
                f"{_goal(score.study)} |"
            )
    return lines


def _cells(by_seed: Sequence[Sequence[Done]], i: int, score: Any) -> str:
    """Cell of score number `i`: its own figures, else the errors of time / power /
    energy, percent."""
    if score.figures is None:
        errors = {w: [mape(done, i, w) for done in by_seed] for w in score.quantities}
        return " / ".join(_cell(errors.get(word, [])) for word in COLUMNS)
    figures = [score.figures(*_scored(done, i, "time")) for done in by_seed]
    return ", ".join(
        f"{name} {_cell([x[name] for x in figures], digits=2)}" for name in figures[0]
    )


def _goal(goal: Sequence[float | None] | str) -> str:
    if isinstance(goal, str):
        return goal
    return " / ".join("-" if x is None else f"{x:g}" for x in goal)


def _cell(values: Sequence[float | None], digits: int = 1) -> str:
    numbers = [x for x in values if x is not None]
    if not numbers:
        return "-"
    spread = (max(numbers) - min(numbers)) / 2
    shown = f"{np.mean(numbers):.{digits}f}"
    return f"{shown} +- {spread:.{digits}f}" if len(numbers) > 1 else shown


def spreads(done: Sequence[Done]) -> dict[str, dict[str, Any]]:
    """Half widths of intervals by kind and grade, from all left-out rows."""
    spread: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys(split.spread for split in SPLITS if split.spread):
        splits = [split for split in SPLITS if split.spread == key]
        mine = [x for split in splits for x in done if x.split == split.name]
        if not mine:
            continue
        ratios = {w: np.concatenate([x.ratio(w) for x in mine]) for w in COLUMNS}
        time = np.concatenate([x.numbers["time_pred"] for x in mine])
        gpu = np.concatenate([x.gpu for x in mine])
        spread[key] = {
            **widths(time, ratios, np.concatenate([x.groups for x in mine])),
            "mape_pct": {
                word: _by_gpu(np.where(time > 1e-4, ratio, np.nan), gpu)
                for word, ratio in ratios.items()
            },
            "rows": len(time),
            "gpus": sorted({str(x) for x in gpu}),
            "left_out": sorted({_SPLITS[x.split].left_out for x in mine}),
        }
    return spread


def _by_gpu(ratio: np.ndarray, gpu: np.ndarray) -> dict[str, float]:
    """Mean absolute percentage error of ln ratios of all rows and of each GPU."""
    size, finite = 100 * np.abs(np.expm1(-ratio)), np.isfinite(ratio)
    parts = {"all": finite} | {str(x): finite & (gpu == x) for x in np.unique(gpu)}
    return {
        name: round(float(size[rows].mean()), 1)
        for name, rows in parts.items()
        if rows.any()
    }


def coverage(done: Sequence[Done]) -> list[str]:
    """Share of the left-out rows within the 5-95 % intervals that a user would get if
    the widths came from all other groups: by kind, and of each of its splits."""
    done = [x for x in done if _SPLITS[x.split].spread]
    inside = {x.split: {word: [np.zeros(0)] for word in COLUMNS} for x in done}
    for group in sorted({str(name) for x in done for name in x.groups}):
        spread = spreads([x.rows(x.groups != group) for x in done])
        for x in done:
            for word, rows in _inside(x.rows(x.groups == group), spread).items():
                inside[x.split][word].append(rows)
    lines = []
    for key in dict.fromkeys(_SPLITS[name].spread for name in inside):
        names = [x.name for x in SPLITS if x.name in inside and x.spread == key]
        lines.append(f"| {key} | all | {_shares([inside[name] for name in names])} |")
        lines += [
            f"| | {name}: {_SPLITS[name].left_out} | {_shares([inside[name]])} |"
            for name in (names if len(names) > 1 else ())
        ]
    return lines


def _inside(left: Done, spread: dict[str, Any]) -> dict[str, np.ndarray]:
    """Which readings of the left-out rows lie inside the intervals of a spread."""
    kind, _, grade = _SPLITS[left.split].spread.partition(":")
    beyond = () if grade in GRADES else (grade,)
    grades = dict.fromkeys(COLUMNS, "calibrated" if beyond else grade)
    interval = trust(spread, kind, grades, "", beyond)
    inside = {}
    for word in COLUMNS:
        width = interval.half_width(word, left.numbers["time_pred"])
        ratio = left.ratio(word)
        finite = np.isfinite(ratio)
        inside[word] = np.abs(ratio[finite]) <= width[finite]
    return inside


def _shares(parts: Sequence[dict[str, list[np.ndarray]]]) -> str:
    """Share of rows inside, in percent by quantity."""
    shares = [np.concatenate([x for part in parts for x in part[w]]) for w in COLUMNS]
    return " / ".join(f"{100 * np.mean(x):.0f}" if len(x) else "-" for x in shares)


def accuracy(
    data: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    only: Annotated[list[str] | None, typer.Option(help="splits, by name")] = None,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="folds at once")] = 2,
    keep: Annotated[
        Path | None, typer.Option(help="folder of finished folds, to go on from")
    ] = None,
    score: Annotated[
        Path | None, typer.Option(help="corrections to score instead of fitting")
    ] = None,
    rows: Annotated[Path | None, typer.Option(help=".npz of all rows")] = None,
    spread: Annotated[
        Path | None, typer.Option(help="corrections file to put the widths into")
    ] = None,
) -> None:
    """Fit and score every split; print the table and the coverage of intervals."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    try:
        done = run_all(str(data), only or [], seeds, jobs, keep, score)
    except ValueError as error:
        typer.echo(f"accuracy: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo("\n".join(table(done)))
    if score:
        return
    typer.echo("\n| kind | left out | inside 5-95 %, time / power / energy |")
    typer.echo("|---|---|---|\n" + "\n".join(coverage(done)))
    if spread is not None:
        file = read_corrections(spread)
        file = dataclasses.replace(file, spread={**file.spread, **spreads(done)})
        write_text_atomic(spread, write_corrections(file), inputs=[])
    if rows is not None:
        first = [x for x in done if x.seed == 0 and x.split not in _NO_PICTURE]
        np.savez_compressed(rows, **_flat(first))  # pyright: ignore[reportArgumentType]


def _flat(done: Sequence[Done]) -> dict[str, np.ndarray]:
    """Numbers of all rows; quantities that no score counts are NaN."""
    for x in done:
        for word in COLUMNS:
            scored = [word in score.quantities for score in _SPLITS[x.split].scores]
            counted = (x.member & np.array(scored)).any(1)
            x.numbers[word] = np.where(counted, x.numbers[word], np.nan)
    columns = {
        word: np.concatenate([x.numbers[word] for x in done])
        for word in done[0].numbers
    }
    columns["gpu"] = np.concatenate([x.gpu for x in done])
    columns["split"] = np.concatenate([np.full(len(x.gpu), x.split) for x in done])
    return columns


if __name__ == "__main__":
    typer.run(accuracy)
