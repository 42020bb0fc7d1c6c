"""`diffenergy fit`: constants from measured runs."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from . import INTERRUPTED, engine, output, parse
from .cmd_evaluate import read_workloads
from .progress import progress

if TYPE_CHECKING:
    from ..corrections import CorrectionsFile
    from ..fitting._calibrate import Calibration, Settings
    from ..fitting._holdout import Rule
    from ..fitting._identifiability import Identifiability
    from ..fitting._outliers import Flag
    from ..measurements import MeasurementTable
    from ..report._tables.fitting import Rows

_SHOWN: Final = 3
"""Flagged rows that are shown as notes."""
_DIGITS, _DECIMALS = 4, 2
"""Significant digits of a posterior sd; decimals of a correlation."""


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("fit")(_fit)


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text)


def _fit(
    data: Annotated[
        list[str],
        typer.Argument(help="Files .csv or .csv.gz of measured runs, or OP=FILE."),
    ],
    out: Annotated[str, _option("--out", "FILE", "Corrections to write (.json).")],
    workloads: Annotated[
        list[str] | None,
        _option("--workloads", "FILE", "Listings (.jsonl); repeatable."),
    ] = None,
    gpu: Annotated[
        str | None, _option("--gpu", "NAME", "Replaces the column gpu.")
    ] = None,
    op: Annotated[str | None, _option("--op", "OP", "Replaces the column op.")] = None,
    start: Annotated[
        str | None,
        _option(
            "--start", "FILE|none", "Corrections to start from [the shipped ones]."
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        _option(
            "--freeze",
            "GROUP",
            "Keep a level (mma, gpu:a10), a constant or all that begin so (energy_); "
            "repeatable.",
        ),
    ] = None,
    holdout: Annotated[
        list[str] | None,
        _option(
            "--holdout",
            "COLUMN=VALUE|COLUMN:FRACTION",
            "Rows to leave out and report apart; repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all draws.")] = 0,
    max_rows: Annotated[
        str | None, _option("--max-rows", "N", "Kernel rows to draw [20000].")
    ] = None,
    max_steps: Annotated[
        str | None, _option("--max-steps", "N", "Evaluations of all rows [30].")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse rows that cannot be true.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
):
    """Fit the model's constants to measured runs.

    Rows that cannot be true are left out and named. The values in the start file are
    the prior. Ctrl-C leaves FILE.partial.json, which --start continues.

    \b
    Examples:
      diffenergy fit runs.csv --workloads listings.jsonl --out corrections.json
      diffenergy fit gemm=gemm.csv --gpu a10 --holdout n:0.2 --out a10.json
    """
    given = dict(locals())
    given["max_rows"] = parse.whole("--max-rows", max_rows)
    given["max_steps"] = parse.whole("--max-steps", max_steps)
    for name in ("workloads", "freeze", "holdout"):
        given[name] = tuple(given[name] or ())
    run(Flags(**given))


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags of `fit`, read; None where one was not given."""

    data: Sequence[str]
    out: str
    workloads: Sequence[str] = ()
    gpu: str | None = None
    op: str | None = None
    start: str | None = None
    freeze: Sequence[str] = ()
    holdout: Sequence[str] = ()
    seed: int = 0
    max_rows: int | None = None
    max_steps: int | None = None
    strict: bool = False
    as_json: bool = False

    @property
    def inputs(self) -> list[str]:
        """Files that this run reads, for `--out` to keep away from."""
        files = [*self.data, *(spec.partition("=")[2] for spec in self.data)]
        return [x for x in (*files, *self.workloads, self.gpu, self.start) if x]

    @property
    def partial(self) -> Path:
        """Where an interrupted fit is kept."""
        return Path(self.out).with_suffix(".partial.json")


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a fit works with: `prior` gives the prior centres, `begin` where the search
    begins if not there; `held` and `flags` of each table."""

    listings: dict[str, Any]
    tables: "list[MeasurementTable]"
    prior: "CorrectionsFile"
    begin: "CorrectionsFile | None"
    settings: "Settings"
    held: list[Any]
    flags: "list[list[Flag]]"


def run(flags: Flags):
    """Fits, writes and prints what the flags ask for."""
    from ..fitting._holdout import read_rule

    output.writer(flags.out, {".json": str})
    rules = [read_rule(text) for text in flags.holdout]
    engine.start(keep_compilations=True)
    _check_targets(flags)
    task = _read(flags, rules)
    fitted = _calibrate(task)
    judged = None if fitted.fit.interrupted else _judged(task, fitted)
    if judged is None:
        _stop(flags, task, fitted)
    else:
        _finish(flags, task, fitted, *judged)


def _check_targets(flags: Flags):
    """Finds what cannot be written before time is spent."""
    from ..files import check_target

    check_target(flags.out, flags.inputs)
    if flags.partial.exists() and not _is_partial(flags.partial):
        raise ValueError(
            f"`{flags.partial}`, where an interrupted fit is kept, exists and is none; "
            "move it or give another `--out`."
        )


def _is_partial(path: Path) -> bool:
    from ..corrections import read_corrections

    try:
        return read_corrections(path).continues is not None
    except ValueError:
        return False


def _read(flags: Flags, rules: "Sequence[Rule]") -> _Task:
    """Reads every file and finds the rows to leave out."""
    from ..corrections import prior_file, read_corrections
    from ..fitting._calibrate import Settings
    from ..fitting._holdout import held_out
    from ..fitting._outliers import flagged
    from ..fitting._predict import predict
    from ..measurements import read_measurements

    start = prior_file() if flags.start == "none" else read_corrections(flags.start)
    prior = start.continues or start
    listings = read_workloads(flags.workloads)
    tables = [
        read_measurements([spec], workloads=listings, gpu=flags.gpu, op=flags.op)
        for spec in flags.data
    ]
    _check_groups(flags.freeze, prior, tables)
    held = held_out(tables, rules, flags.seed)
    found = [flagged(table, predict(table, listings, prior)) for table in tables]
    if flags.strict:
        _refuse([flag for flags in found for flag in flags])
    counts = {"max_rows": flags.max_rows, "max_steps": flags.max_steps}
    given = {name: count for name, count in counts.items() if count is not None}
    settings = Settings(seed=flags.seed, freeze=tuple(flags.freeze), **given)
    begin = start if start.continues else None
    return _Task(listings, tables, prior, begin, settings, held, found)


def _check_groups(
    groups: Sequence[str],
    prior: "CorrectionsFile",
    tables: "Sequence[MeasurementTable]",
):
    """Finds a `--freeze` that would hold nothing."""
    if not groups:
        return
    from ..corrections import CONSTANTS, SENSOR_CONSTANTS
    from ..hardware import read_gpu

    gpus = {str(gpu) for table in tables for gpu in table.gpu}
    own = sorted({tag for gpu in gpus for tag in read_gpu(gpu).tags})
    kinds = sorted(
        {*(tag.partition(":")[0] for tag in (*prior.levels, *own)), "sensor"}
    )
    constants = (*CONSTANTS, *SENSOR_CONSTANTS)
    for group in groups:
        if group in {*kinds, *own, *prior.levels, *prior.instruments}:
            continue
        if group and any(name.startswith(group) for name in constants):
            continue
        words = dict.fromkeys(name.partition("_")[0] for name in constants)
        raise ValueError(
            f"`--freeze` is '{group}'; allowed are the levels {', '.join(kinds)}, one "
            f"of them such as {', '.join(own)}, and constants or their beginnings: "
            f"{', '.join(words)}."
        )


def _words(flag: "Flag") -> str:
    return (
        f"{flag.file}, row {flag.row}, `{flag.column}` is {flag.value}: {flag.reason}"
    )


def _refuse(flags: "Sequence[Flag]"):
    if flags:
        more = f" ({len(flags) - 1} more rows)" if len(flags) > 1 else ""
        raise ValueError(f"{_words(flags[0])}{more}; correct it or drop `--strict`.")


def _calibrate(task: _Task) -> "Calibration":
    """The fit itself, without the rows that are held out or flagged."""
    from ..fitting._calibrate import blanked, calibrate
    from ..fitting._outliers import without

    tables = [
        blanked(without(table, flags), held)
        for table, flags, held in zip(task.tables, task.flags, task.held, strict=True)
    ]
    with progress("fit", task.settings.max_steps) as tell:
        return calibrate(
            tables,
            task.listings,
            task.prior,
            task.settings,
            begin=task.begin,
            progress=tell,
        )


def _stop(flags: Flags, task: _Task, fitted: "Calibration"):
    """Keeps the best point of an interrupted fit and says how to go on."""
    from ..corrections import write_corrections
    from ..files import write_text_atomic

    partial = dataclasses.replace(fitted.corrections, continues=task.prior)
    write_text_atomic(flags.partial, write_corrections(partial))
    line = (
        f"interrupted at evaluation {fitted.fit.evaluations}; the same command with "
        f"`--start {flags.partial}` goes on from there."
    )
    print(f"diffenergy: {line}", file=sys.stderr)
    raise typer.Exit(INTERRUPTED)


def _judged(
    task: _Task, fitted: "Calibration"
) -> "tuple[list[Rows], Identifiability] | None":
    """Every row with its prediction, and what was learnt; None if interrupted."""
    from ..fitting._identifiability import report
    from ..fitting._predict import predict
    from ..report._tables.fitting import Rows

    fit = fitted.fit
    parts = zip(task.tables, task.held, task.flags, strict=True)
    try:
        rows = [
            Rows(table, predict(table, task.listings, fitted.corrections), held, flags)
            for table, held, flags in parts
        ]
        return rows, report(fit.parameters, fit.z, fit.covariance)
    except KeyboardInterrupt:
        return None


def _finish(
    flags: Flags,
    task: _Task,
    fitted: "Calibration",
    rows: "list[Rows]",
    learnt: "Identifiability",
):
    """Writes the corrections and prints their errors."""
    from ..report._tables.fitting import fit_parts, fit_summary

    summary = fit_summary(rows, fitted, learnt)
    _write(flags, task, fitted, summary)
    output.show(summary, flags.as_json, lambda: fit_parts(summary, learnt))
    output.notes(_remarks(task, fitted))


def _write(flags: Flags, task: _Task, fitted: "Calibration", summary: dict[str, Any]):
    """Writes the corrections with what they rest on; a partial file is done with."""
    from .. import __version__
    from ..corrections import write_corrections

    fitted_on = {
        **fitted.corrections.fitted_on,
        "sources": [Path(str(table.file[0])).name for table in task.tables],
        "seed": flags.seed,
        "holdout": list(flags.holdout),
        "errors": [_rounded(group) for group in summary["groups"]],
        "software": __version__,
    }
    file = dataclasses.replace(
        fitted.corrections, fitted_on=fitted_on, posterior=_posterior(fitted)
    )
    text = functools.partial(write_corrections, file)
    output.save(flags.out, {".json": text}, inputs=flags.inputs)
    if flags.partial.exists() and _is_partial(flags.partial):
        flags.partial.unlink()


def _rounded(group: dict[str, Any]) -> dict[str, Any]:
    short = {k: round(v, 2) if isinstance(v, float) else v for k, v in group.items()}
    return {**short, "file": Path(group["file"]).name}


def _posterior(fitted: "Calibration") -> dict[str, Any]:
    """Sds and correlations of the fitted numbers, as a corrections file has them."""
    import numpy as np

    fit = fitted.fit
    scaled = fit.covariance / np.outer(fit.sd, fit.sd)
    lower = scaled[np.tril_indices(len(fit.sd))]
    return {
        "parameters": [str(p) for p in fit.parameters.free],
        "sd": [float(f"{sd:.{_DIGITS}g}") for sd in fit.sd],
        "correlation": (np.round(lower, _DECIMALS) + 0.0).tolist(),  # no -0.0
    }


def _remarks(task: _Task, fitted: "Calibration") -> Iterable[str]:
    """What the files held that was not used, and an early end."""
    for table in task.tables:
        yield from table.notes
    ignored = dict.fromkeys(x for table in task.tables for x in table.ignored_columns)
    if ignored:
        yield f"ignored columns: {', '.join(ignored)}"
    flags = [flag for flags in task.flags for flag in flags]
    if flags:
        yield f"rows that cannot be true and were left out: {len(flags)}"
    for flag in flags[:_SHOWN]:
        yield _words(flag)
    if len(flags) > _SHOWN:
        yield f"and {len(flags) - _SHOWN} more; `--json` lists all"
    if fitted.fit.evaluations >= task.settings.max_steps:
        yield (
            f"stopped at {fitted.fit.evaluations} evaluations; `--max-steps` allows "
            "more"
        )
