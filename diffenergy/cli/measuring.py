"""How `measure` shows plans, progress and what came of them."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..measure._plan import Point
    from ..measure._record import Progress
    from ..measure._table import Cells, Table

_PAUSE: Final = 10.0
"""s between two lines of progress."""


def described(point: "Point") -> dict[str, Any]:
    from ..units import MHz

    return {
        "class": point.kind,
        **point.kernel,
        "contents": "zeros" if point.zeros else "random",
        "copies": point.copies,
        "start": point.start,
        "repeat": point.repeat,
        "sm_clock_mhz_set": None if point.clock is None else point.clock / MHz,
        "power_limit_w_set": point.limit,
        "seconds": round(point.seconds, 2),
    }


def plan_parts(content: dict[str, Any]) -> Iterator[Any]:
    from ..report._tables.tables import table

    points = content["points"]
    minutes = content["seconds"] / 60
    known = (("done", "done before"), ("later", "left for another call"))
    more = "".join(f", {content[x]} {words}" for x, words in known if content[x])
    yield f"{len(points)} points on {content['gpu']}, about {minutes:.1f} min{more}"
    rows = [
        (
            str(number),
            p["class"],
            _kernel_words(p),
            p["start"],
            _or_dash(p["sm_clock_mhz_set"]),
            _or_dash(p["power_limit_w_set"]),
            str(p["copies"]),
        )
        for number, p in enumerate(points, 1)
    ]
    columns = ("", "class", "kernel", "start", "MHz", "W", "sets")
    yield table(columns, rows, left=4, fold=("kernel",))
    yield "-: left to the GPU; sets: of tensors that launches take turns with"


def _kernel_words(point: dict[str, Any]) -> str:
    names = (
        "fn",
        "batch",
        "m",
        "n",
        "k",
        "rows",
        "cols",
        "elements",
        "q_len",
        "kv_len",
    )
    names = (*names, "num_heads", "num_kv_heads", "head_dim", "dtype")
    sizes = [str(point[name]) for name in names if point.get(name) not in (None, 1)]
    return " ".join([point["op"], *sizes])


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


@contextlib.contextmanager
def shown(total: int) -> "Iterator[Callable[[Progress, Point], None]]":
    """How far the run is: a bar on a terminal, else a line now and then; on stderr."""
    from ..measure._record import label

    if not sys.stderr.isatty():
        yield _lines(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Bar(*columns, Elapsed(), console=console, transient=True) as bar:
        task = bar.add_task("measure", total=total)
        yield lambda progress, point: bar.update(
            task,
            completed=progress.measured + len(progress.failed),
            description=label(point),
        )


def _lines(total: int) -> "Callable[[Progress, Point], None]":
    from ..measure._record import label

    said = time.monotonic()

    def tell(progress: "Progress", point: "Point"):
        nonlocal said
        if time.monotonic() - said < _PAUSE:
            return
        said = time.monotonic()
        done = progress.measured + len(progress.failed)
        line = f"{done} of {total} points, now {label(point)}"
        print(f"diffenergy: {line}", file=sys.stderr)

    return tell


def after(table: "Table", done: "Progress") -> Iterator[str]:
    """Remarks on what was measured."""
    if table.repaired:
        yield "the last line of the file was cut off and is measured again"
    if done.shared:
        yield "other processes used this GPU meanwhile; rows say `shared_gpu`"
    if any(not row.get("avg_power_w") for row in table.rows):
        yield "this board tells no power on some rows; they serve for time alone"
    for failed in done.failed[:3]:
        yield f"left out: {failed['kernel']} ({failed['reason']})"
    if len(done.failed) > 3:
        yield f"and {len(done.failed) - 3} more; `--json` lists all"


def summary_parts(summary: dict[str, Any], rows: "Sequence[Cells]") -> Iterator[Any]:
    from ..report._tables.tables import table

    stopped = f" ({summary['stopped']})" if summary["stopped"] else ""
    yield (
        f"{summary['measured']} points measured, {len(summary['failed'])} left out, "
        f"{summary['remaining']} remain{stopped}; {summary['file']} has "
        f"{summary['rows']} rows"
    )
    lines = [
        (kind, str(count), *(_span(rows, kind, x) for x in ("time_us", "avg_power_w")))
        for kind, count in summary["classes"].items()
    ]
    yield table(("class", "rows", "us", "W"), lines)
    yield f"next: diffenergy fit {summary['file']} --out mine.json"


def _span(rows: "Sequence[Cells]", kind: str, column: str) -> str:
    """Least and greatest value of a class."""
    own = [row[column] for row in rows if row["class"] == kind and row.get(column)]
    if not own:
        return "-"
    values = sorted(map(float, own))
    return f"{values[0]:.4g} to {values[-1]:.4g}"
