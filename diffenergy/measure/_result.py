"""`PlanResult`, `MeasureResult`: what will be measured, and what came of it."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..results import Result
from ._plan import Point
from ._record import Bench, Progress, campaign
from ._table import Cells, Table, series_path


@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """The points that would be measured. `summary`: the JSON of `diffenergy measure
    --dry-run --json`."""

    view: ClassVar[str] = "plan"
    summary: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class MeasureResult(Result):
    """What was measured.

    `summary`: the JSON of `diffenergy measure --json`; `rows`: those of the file, as
    text; `notes`: what a person should know beside it; `interrupted`: Ctrl-C ended it,
    and the same call goes on.
    """

    view: ClassVar[str] = "measure"
    summary: dict[str, Any]
    rows: Sequence[Cells]
    notes: list[str]
    interrupted: bool = False


def plan_summary(
    gpu: str, assumed: bool, points: Sequence[Point], done: int, later: int
) -> dict[str, Any]:
    """`points` of a plan that has `done` others behind it and `later` ones after it."""
    return {
        "gpu": gpu,
        "assumed": ["gpu"] if assumed else [],
        "seconds": round(sum(point.seconds for point in points), 1),
        "done": done,
        "later": later,
        "classes": dict(Counter(point.kind for point in points)),
        "points": [
            {"class": point.kind, **point.kernel, **point.state}
            | {"seconds": round(point.seconds, 2)}
            for point in points
        ],
    }


def measured(
    file: Path,
    kit: Bench,
    planned: int,
    table: Table,
    done: Progress,
    interrupted: bool,
) -> MeasureResult:
    """What came of a plan of `planned` points."""
    summary = {
        "file": str(file),
        "series": str(series_path(file)),
        "gpu": kit.gpu,
        "device": kit.sensor.about.name,
        "campaign": campaign(kit.clock),
        "rows": len(table.rows),
        "measured": done.measured,
        "failed": done.failed,
        "remaining": planned - done.measured - len(done.failed),
        "stopped": done.stopped or None,
        "shared_gpu": done.shared,
        "classes": dict(Counter(row["class"] for row in table.rows)),
    }
    return MeasureResult(summary, table.rows, [*_remarks(table, done)], interrupted)


def _remarks(table: Table, done: Progress) -> Iterator[str]:
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
