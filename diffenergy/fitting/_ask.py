"""The public `fit`: from measured runs to constants with their provenance."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from .. import __version__
from ..corrections import CONSTANTS, CorrectionsFile, constants_of
from ..files import row_place
from ..hardware import read_gpu
from ..measurements import MeasurementTable
from ..requests import accepts
from ._calibrate import Calibration, Progress, Settings, blanked, calibrate
from ._flags import Flag, flagged
from ._holdout import Rule, held_out, read_rule
from ._identifiability import Identifiability, report
from ._predict import check_table, corrections_file, predict, unused
from ._request import FitRequest
from ._result import FitResult, Rows, fit_summary

_SHOWN: Final = 3
"""Flagged rows that the notes name."""
_DIGITS, _DECIMALS = 4, 2
"""Significant digits of a posterior sd; decimals of a correlation."""


class _Fit(FitRequest):
    """The request of `fit` with its tables."""

    tables: Any = dataclasses.field(kw_only=False)


@accepts(_Fit, "fit")
def fit(request: _Fit) -> FitResult:
    """Fits the model's constants to measured runs.

    A MAP estimate by Gauss-Newton on robust relative errors; the values of `start` are
    the prior. Rows that cannot be true are left out and named. Ctrl-C returns the best
    point so far.

    `tables`: what `measurements.read` gives, or several; a table of one op, GPU and
    campaign counts as 128 rows at most. `start`: a file, "none" for the priors, or the
    corrections of an interrupted fit, which go on.

    Returns:
        The constants, the errors of fitted and held-out rows, and what was learnt.

    Raises:
        ValueError: for what cannot be read or held, if nothing is left to fit, or if
            JAX is not set to 64 bit.
        TypeError: for tables that are none.

    Example:

        >>> import jax
        >>> from diffenergy import measurements
        >>> jax.config.update("jax_enable_x64", True)
        >>> table = measurements.read("docs/examples/gemm.csv", op="gemm", gpu="a10")
        >>> result = fit(table, holdout="n=4096", max_steps=2)
        >>> result.summary["held_out"]["rows"]
        6
    """
    _check_bits()
    tables = request.tables
    each = list(tables) if isinstance(tables, Sequence) else [tables]
    for table in each:
        check_table(table)
    rules = [read_rule(text) for text in _as_tuple(request.holdout)]
    begin = corrections_file(request.start)
    settings = Settings(
        request.seed,
        request.max_rows,
        max_steps=request.max_steps,
        freeze=_as_tuple(request.freeze),
    )
    _check_groups(settings.freeze, begin.continues or begin, each)
    strict, progress = request.strict, request.progress
    return _fit_tables(each, begin, settings, rules, strict, progress)


def _fit_tables(
    tables: Sequence[MeasurementTable],
    begin: CorrectionsFile,
    settings: Settings,
    rules: Sequence[Rule],
    strict: bool,
    progress: Progress | None,
) -> FitResult:
    """Fits the rows that are neither held out nor flagged, and scores all rows."""
    prior = begin.continues or begin
    masks = held_out(tables, rules, settings.seed)
    flags = [flagged(table, predict(table, prior)) for table in tables]
    all_flags = [flag for table_flags in flags for flag in table_flags]
    if strict and all_flags:
        more = f" ({len(all_flags) - 1} more rows)" if len(all_flags) > 1 else ""
        raise ValueError(
            f"{_flag_text(all_flags[0])}{more}; correct it or drop `--strict`."
        )
    parts = zip(tables, masks, flags, strict=True)
    readable = [
        blanked(
            table, out | np.isin(np.arange(len(out)), [x.index for x in table_flags])
        )
        for table, out, table_flags in parts
    ]
    fitted = calibrate(
        readable,
        prior,
        settings,
        begin=begin if begin.continues else None,
        progress=progress,
    )
    predicted = (
        None if fitted.fit.interrupted else _predict_rows(fitted, tables, masks, flags)
    )
    if predicted is None:
        so_far = dataclasses.replace(fitted.corrections, continues=prior)
        return FitResult({"interrupted": True, "steps": fitted.fit.evaluations}, so_far)
    rows, learnt = predicted
    summary = fit_summary(rows, fitted, learnt)
    rests_on = {"seed": settings.seed, "holdout": [rule.text for rule in rules]}
    corrections = _with_sources(fitted, tables, rests_on, summary)
    notes = tuple(_notes(tables, all_flags, fitted, settings.max_steps))
    return FitResult(summary, corrections, learnt, tuple(rows), notes)


def _check_bits() -> None:
    if jnp.zeros(()).dtype.itemsize < 8:
        raise ValueError(
            "a fit needs numbers of 64 bit; call "
            '`jax.config.update("jax_enable_x64", True)` before it.'
        )


def _as_tuple(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _check_groups(
    groups: Sequence[str], prior: CorrectionsFile, tables: Sequence[MeasurementTable]
):
    """Raises `ValueError` for a `freeze` that matches no level and no constant."""
    gpus = {str(gpu) for table in tables for gpu in table.gpu}
    tags = sorted({tag for gpu in gpus for tag in read_gpu(gpu).tags})
    kinds = sorted(
        {*(tag.partition(":")[0] for tag in (*prior.levels, *tags)), "sensor"}
    )
    meters = (name for table in tables for name in constants_of(table.meter.constants))
    constants = dict.fromkeys((*CONSTANTS, *meters))
    for group in groups:
        if group in {*kinds, *tags, *prior.levels, *prior.instruments}:
            continue
        if group and any(name.startswith(group) for name in constants):
            continue
        words = dict.fromkeys(name.partition("_")[0] for name in constants)
        raise ValueError(
            f"`freeze` is '{group}'; allowed are the levels {', '.join(kinds)}, one "
            f"of them such as {', '.join(tags)}, and constants or their beginnings: "
            f"{', '.join(words)}."
        )


def _predict_rows(
    fitted: Calibration,
    tables: Sequence[MeasurementTable],
    masks: Sequence[np.ndarray],
    flags: Sequence[Sequence[Flag]],
) -> tuple[list[Rows], Identifiability] | None:
    """Rows with predictions of the fitted constants, and the identifiability report;
    None if Ctrl-C interrupts it."""
    result, parts = fitted.fit, zip(tables, masks, flags, strict=True)
    try:
        rows = [
            Rows(table, predict(table, fitted.corrections), out, flagged_rows)
            for table, out, flagged_rows in parts
        ]
        return rows, report(result.parameters, result.z, result.covariance)
    except KeyboardInterrupt:
        return None


def _with_sources(
    fitted: Calibration,
    tables: Sequence[MeasurementTable],
    rests_on: dict[str, Any],
    summary: dict[str, Any],
) -> CorrectionsFile:
    """The corrections with their sources, errors and posterior."""
    files = dict.fromkeys(str(file) for table in tables for file in table.file)
    fitted_on = {
        **fitted.corrections.fitted_on,
        "sources": [Path(file).name for file in files],
        **rests_on,
        "errors": [_rounded(group) for group in summary["groups"]],
        "software": __version__,
    }
    return dataclasses.replace(
        fitted.corrections, fitted_on=fitted_on, posterior=_posterior(fitted)
    )


def _rounded(group: dict[str, Any]) -> dict[str, Any]:
    short = {k: round(v, 2) if isinstance(v, float) else v for k, v in group.items()}
    return {**short, "file": Path(group["file"]).name}


def _posterior(fitted: Calibration) -> dict[str, Any]:
    """Posterior std and correlations, in the format of a corrections file."""
    result = fitted.fit
    scaled = result.covariance / np.outer(result.sd, result.sd)
    lower = scaled[np.tril_indices(len(result.sd))]
    return {
        "parameters": [str(p) for p in result.parameters.free],
        "sd": [float(f"{sd:.{_DIGITS}g}") for sd in result.sd],
        "correlation": (np.round(lower, _DECIMALS) + 0.0).tolist(),  # no -0.0
    }


def _notes(
    tables: Sequence[MeasurementTable],
    flags: Sequence[Flag],
    fitted: Calibration,
    max_steps: int,
) -> Iterator[str]:
    """Notes on unused columns, flagged rows and a fit that ran out of steps."""
    for table in tables:
        yield from table.notes
    ignored = dict.fromkeys(x for table in tables for x in table.ignored_columns)
    yield from unused([*ignored])
    if flags:
        yield f"rows that cannot be true and were left out: {len(flags)}"
    for flag in flags[:_SHOWN]:
        yield _flag_text(flag)
    if len(flags) > _SHOWN:
        yield f"and {len(flags) - _SHOWN} more; `--json` lists all"
    if fitted.fit.evaluations >= max_steps:
        yield (
            f"stopped at {fitted.fit.evaluations} evaluations; `--max-steps` allows "
            "more"
        )


def _flag_text(flag: Flag) -> str:
    place = row_place(flag.file, 0, [flag.line] if flag.line else ())
    return f"{place}, `{flag.column}` is {flag.value}: {flag.reason}"
