"""`diffenergy import`: a file of a user as a kernel listing, or as measured runs."""

from collections.abc import Callable
from typing import Any

from ... import imports, measurements
from ...estimator import start_jax
from ...requests import explicit_fields, part
from ...workload import listing_lines
from ..progress import megabytes
from ..run import Outcome, outcome
from .import_flags import Flags


def run(flags: Flags) -> Outcome:
    """Reads a trace, graph, report or power log."""
    log_fields = part(measurements.LogRequest, flags)
    names = set(explicit_fields(flags))
    if flags.format or measurements.log_format(flags.file):
        traced = {*part(imports.ImportRequest, flags)} - {"gpu"}
        _refuse(names & traced, flags.file, "a log of a power meter")
        return _log(flags, log_fields)
    _refuse(names & {*log_fields}, flags.file, "no log of a power meter")
    start_jax()
    csv = (flags.out or "").lower().endswith(".csv")
    with megabytes("reading") as show:
        request = part(imports.ImportRequest, flags, progress=show)
        result = imports.read(flags.file, **request)
    if csv and not result.activities:
        raise ValueError(
            f"`out` is '{flags.out}', but {flags.file} has no counters of units; a "
            "listing is a .jsonl file."
        )
    texts: dict[str, Callable[[], str | bytes]] = {
        ".jsonl": lambda: listing_lines(result.listings)
    }
    if result.activities:
        texts[".csv"] = result.activity_csv
    return outcome(result, texts=texts, notes=() if flags.as_json else result.notes)


def _log(flags: Flags, log_fields: dict[str, Any]) -> Outcome:
    """A log as a table of measured runs."""
    if (flags.out or "").lower().endswith(".jsonl"):
        raise ValueError(
            f"`out` is '{flags.out}', but {flags.file} is a log of a power meter; "
            "allowed is a .csv file."
        )
    result = measurements.read_log(flags.file, gpu=flags.gpu, **log_fields)
    notes = () if flags.as_json else result.notes
    return outcome(result, texts={".csv": result.to_csv}, notes=notes)


def _refuse(names: set[str], file: str, what: str):
    """Raises `ValueError` for a flag that a file of this kind does not take."""
    for name in sorted(names):
        raise ValueError(f"`{name}` is given, but {file} is {what}; leave it out.")
