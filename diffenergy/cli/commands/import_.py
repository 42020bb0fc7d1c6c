"""`diffenergy import`: a file of a user as a kernel listing."""

from collections.abc import Callable

from ... import imports
from ...estimator import start_jax
from ...requests import part
from ...workload import listing_lines
from ..progress import megabytes
from ..run import Outcome, outcome
from .import_flags import Flags


def run(flags: Flags) -> Outcome:
    """Reads the file."""
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
        ".jsonl": lambda: listing_lines(result.listings),
        ".csv": result.activity_csv,
    }
    return outcome(result, texts=texts, notes=() if flags.as_json else result.notes)
