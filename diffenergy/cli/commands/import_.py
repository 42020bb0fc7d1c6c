"""`diffenergy import`: a file of a user as a kernel listing, or as measured runs."""

from collections.abc import Callable

from ... import imports, measurements, service
from ...estimator import start_jax
from ...requests import explicit_fields, part
from ...workload import listing_lines
from ..progress import megabytes
from ..run import Outcome, outcome
from .import_flags import Flags


def run(flags: Flags) -> Outcome:
    """Reads a trace, graph, report or power log, or the logs of a service."""
    names = set(explicit_fields(flags))
    traced = {*part(imports.ImportRequest, flags)} - {"gpu"}
    log_fields = part(measurements.LogRequest, flags)
    served = part(service.WindowsRequest, flags)
    if any(service.service_format(x) for x in flags.files):
        others = {*log_fields, *traced} - {"model"}
        _refuse(names & others, f"{flags.files[0]} is a log of a service")
        return _table(flags, service.read(logs=flags.files, **served))
    if len(flags.files) > 1:
        raise ValueError(
            f"{len(flags.files)} files are given, and none is a benchmark or export of "
            "Prometheus of a service; import each alone."
        )
    file = next(iter(flags.files))
    if flags.format or measurements.log_format(file):
        others = traced | {*served} - {"gpu"}
        _refuse(names & others, f"{file} is a log of a power meter")
        return _table(flags, measurements.read_log(file, gpu=flags.gpu, **log_fields))
    others = {*log_fields} | {*served} - {"gpu", "model"}
    _refuse(names & others, f"{file} is no log of a power meter")
    start_jax()
    csv = (flags.out or "").lower().endswith(".csv")
    with megabytes("reading") as show:
        request = part(imports.ImportRequest, flags, progress=show)
        result = imports.read(file, **request)
    if csv and not result.activities:
        raise ValueError(
            f"`out` is '{flags.out}', but {file} has no counters of units; a "
            "listing is a .jsonl file."
        )
    texts: dict[str, Callable[[], str | bytes]] = {
        ".jsonl": lambda: listing_lines(result.listings)
    }
    if result.activities:
        texts[".csv"] = result.activity_csv
    return outcome(result, texts=texts, notes=() if flags.as_json else result.notes)


def _table(flags: Flags, result: measurements.LogResult) -> Outcome:
    """Logs as a table of measured runs or servers."""
    if (flags.out or "").lower().endswith(".jsonl"):
        raise ValueError(
            f"`out` is '{flags.out}', but {flags.files[0]} is a log of a power meter; "
            "allowed is a .csv file."
        )
    notes = () if flags.as_json else result.notes
    return outcome(result, texts={".csv": result.to_csv}, notes=notes)


def _refuse(names: set[str], what: str):
    """Raises `ValueError` for a flag that a file of this kind does not take."""
    for name in sorted(names):
        raise ValueError(f"`{name}` is given, but {what}; leave it out.")
