"""`diffenergy fit`: constants from measured runs."""

from collections.abc import Set
from pathlib import Path
from typing import Any

from ... import imports, measurements, service, serving
from ...corrections import read_corrections, write_corrections
from ...estimator import start_jax
from ...fitting import FitRequest, fit, fit_node_table
from ...requests import explicit_fields, part
from ..interruption import keeping
from ..progress import points, progress
from ..run import Outcome, outcome
from .fit_flags import Flags


def run(flags: Flags) -> Outcome:
    """Reads the files and fits; an interrupted fit is kept to go on with."""
    if flags.metered:
        return _node(flags)
    if flags.node is not None:
        raise ValueError(
            f"`node` is '{flags.node}', but no file has readings of a meter (column "
            "`wall_w`); leave it out."
        )
    if any(service.service_format(file) for file in flags.data):
        served = part(service.WindowsRequest, flags)
        result = service.read(logs=flags.data, **served)
        return _servers(flags, result.table, {*served})
    for name in part(service.WindowsRequest, flags).keys() - {"gpu"}:
        if getattr(flags, name) is not None:
            raise ValueError(
                f"`{name}` is given, but no file is a log of a service; leave it out."
            )
    if any(serving.is_serving(file) for file in flags.data):
        return _servers(flags, _tables(flags))
    _check_partial(flags.partial)
    start_jax(keep_compilations=True)
    for file in flags.data:
        imports.refuse_file(file, "program", "listing")
    tables = [
        measurements.read(file, **part(measurements.TableRequest, flags))
        for file in flags.data
    ]
    with keeping(), progress("fit", flags.max_steps) as tell:
        result = fit(tables, **part(FitRequest, flags, progress=tell))
    if result.interrupted:
        result.write(flags.partial)  # also where this run goes on from it
        line = (
            f"interrupted at evaluation {result.summary['steps']}; the same command "
            f"with `--start {flags.partial}` goes on from there."
        )
        return Outcome(interrupted=line)
    return outcome(
        result,
        texts={".json": lambda: write_corrections(result.corrections)},
        stale=[flags.partial] if flags.partial.exists() else [],
    )


def _node(flags: Flags) -> Outcome:
    """A node file, from readings of a server's meter."""
    for name in explicit_fields(flags):
        if name not in ("data", "out", "as_json", "node"):
            raise ValueError(
                f"`{name}` is given, but readings of a meter are fitted all together; "
                "leave it out."
            )
    result = fit_node_table(flags.data, flags.node)
    return outcome(result, texts={".toml": lambda: result.to_toml(flags.out)})


def _tables(flags: Flags) -> tuple[str, ...]:
    """Files that are all tables of servers."""
    for file in flags.data:
        if not serving.is_serving(file):
            raise ValueError(
                f"'{file}' has no servers, but another file has; fit them apart."
            )
    return flags.data


def _servers(flags: Flags, tables: Any, own: Set[str] = frozenset()) -> Outcome:
    """Constants of serving engines, from tables of servers; `own`: fields that say what
    they are."""
    request = part(FitRequest, flags)
    for name in explicit_fields(flags):
        if name in request and name not in ("start", "seed", *own):
            raise ValueError(
                f"`{name}` is given, but rows of servers are fitted all together; "
                "leave it out."
            )
    start_jax(keep_compilations=True)
    with points("steps priced") as show:
        result = serving.fit(
            tables,
            start=flags.start,
            progress=lambda done, total: show(done, total, ""),
        )
    return outcome(
        result, texts={".json": lambda: write_corrections(result.corrections)}
    )


def _check_partial(path: Path):
    """Raises `ValueError` if the file of an interrupted fit cannot be written."""
    if not path.exists():
        return
    try:
        ours = read_corrections(path).continues is not None
    except ValueError:
        ours = False
    if not ours:
        raise ValueError(
            f"`{path}`, where an interrupted fit is kept, exists and is none; move it "
            "or give another `--out`."
        )
