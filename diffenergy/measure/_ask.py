"""The public `plan` and `measure`: plan measurements of a GPU and take them."""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ..hardware import GpuCard, read_gpu
from ..requests import Seed, accepts, values_of
from ..results import Result
from . import _bench, _clocks, _reading, _sensor
from ._plan import PlanOptions, Point, board_of, make_plan, within
from ._record import Bench, Progress, campaign, label, measure_points, remaining
from ._request import MeasureRequest
from ._shapes import CLASSES, Board, check_classes
from ._table import Cells, Table, finished, series_path, state_path

ASSUMED: Final = "h100-sxm"
"""GPU of a plan that names none."""

Tell = Callable[[int, int, str], None]


@dataclasses.dataclass(frozen=True, repr=False)
class MeasurePlan(Result):
    """The points that would be measured. `summary`: the JSON of `diffenergy measure
    --dry-run --json`."""

    view: ClassVar[str] = "runs.measure_plan"
    summary: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class MeasureResult(Result):
    """Result of a measuring run.

    `summary`: the JSON of `diffenergy measure --json`; `rows`: those of the file, as
    text; `notes`: what a person should know beside it; `interrupted`: Ctrl-C ended it,
    and the same call goes on.
    """

    view: ClassVar[str] = "runs.measure"
    summary: dict[str, Any]
    rows: Sequence[Cells]
    notes: list[str]
    interrupted: bool = False


def plan_summary(
    gpu: str, assumed: bool, points: Sequence[Point], done: int, later: int
) -> dict[str, Any]:
    """JSON of a plan: its `points`, with `done` measured before and `later` left."""
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


def build_result(
    file: Path,
    kit: Bench,
    planned: int,
    table: Table,
    done: Progress,
    interrupted: bool,
) -> MeasureResult:
    """Result of a plan of `planned` points."""
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
    return MeasureResult(summary, table.rows, [*_notes(table, done)], interrupted)


def _notes(table: Table, done: Progress) -> Iterator[str]:
    """Notes on the measured rows."""
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


class _Plan(MeasureRequest):
    """The request of `plan`."""

    gpu: str | GpuCard | None = dataclasses.field(default=None, kw_only=False)
    file: str | os.PathLike[str] | None = None


@accepts(_Plan, "plan")
def plan(request: _Plan) -> MeasurePlan:
    """Plans the points that `measure` would run; needs no GPU and writes no file.

    `gpu`: name, `.toml` file or card [h100-sxm]; `file`: measurements that are there
    already, which are not made again. `clocks` in Hz, "auto" for about eight of the
    GPU's, None to leave them to the GPU; `power_limits` in W.

    Raises:
        ValueError: for what the GPU has not, or a file of another kind.

    Example:

        >>> plan("a100-sxm-80gb", points=3).summary["classes"]
        {'tensor': 2, 'dram': 1}
    """
    gpu = request.gpu
    card = gpu if isinstance(gpu, GpuCard) else read_gpu(gpu or ASSUMED)
    board = board_of(card)
    rows = finished(Path(request.file)) if request.file else []
    options = _plan_options(board, request)
    every = make_plan(board, options)
    named = gpu if isinstance(gpu, str) else card.name
    left = remaining(every, _bench.row_name(named, card), rows)
    now = within(left, request.seconds)
    behind, after = len(every) - len(left), len(left) - len(now)
    assumed = gpu is None or card.is_assumed
    return MeasurePlan(plan_summary(board.name, assumed, now, behind, after))


class _MeasureCall(MeasureRequest):
    """The request of `measure`."""

    file: str | os.PathLike[str] = dataclasses.field(kw_only=False)
    gpu: str | None = None
    gpu_index: Seed = 0
    note: Callable[[str], None] | None = None
    progress: Tell | None = None


@accepts(_MeasureCall, "measure")
def measure(request: _MeasureCall) -> MeasureResult:
    """Measures kernels on a GPU of this machine, for `fitting.fit`.

    Needs an NVIDIA GPU, and PyTorch or JAX with CUDA. It may be stopped at any time;
    the same call goes on where `file` ends. Clocks and limits stay untouched unless
    they are asked for, and are put back whatever happens.

    - `file`: measurements to write or go on with (.csv); the samples of every row stand
      beside it (.series.jsonl).
    - `gpu`: name or file of the GPU that rows name [what the board says]; `gpu_index`:
      which board, as nvidia-smi counts [0].
    - `note`: called with remarks as they come up [they stand in the result];
      `progress`: before each point with the points done, those planned, and its kernel.

    Raises `ValueError`, in one sentence, for a board, library or file that does not
    serve.

    >>> measure("mine.csv", seconds=600)  # doctest: +SKIP
    """
    path, notes = Path(request.file), []
    finished(path)  # another kind of file is found before the GPU is
    _clocks.check_state(state_path(path))
    board = _sensor.Sensor(request.gpu_index)
    _bench.check_board(board.about)
    identity = _bench.identify(board.about, request.gpu)
    before = board.processes()
    wall, tell = _reading.Clock(), request.note or notes.append
    with _clocks.interruptible() as check:
        kernels = _bench.find_runner(board.about.uuid)
        surveyed = _bench.survey(board, identity, kernels.l2)
        options = _plan_options(surveyed, request)
        every = make_plan(surveyed, options)
        with _clocks.Control(board, wall, state_path(path), tell) as control:
            first = (next(iter(x), None) for x in (options.clocks, options.limits))
            control.prepare(*first)  # finds out whether they may be set
            others = _bench.watch(board, before)
            kit = Bench(identity.name, board, kernels, wall, control, others, check)
            for line in identity.notes:
                tell(line)
            if before:
                many = f"other processes use this GPU ({len(before)})"
                tell(f"{many}: rows say `shared_gpu`")
            table, done = Table(path), Progress()
            left = remaining(every, identity.name, table.rows)
            ended = _run_until_interrupted(
                left, kit, table, request.seconds, done, request.progress
            )
    result = build_result(path, kit, len(left), table, done, ended)
    result.notes[:0] = notes
    return result


def _plan_options(board: Board, request: MeasureRequest) -> PlanOptions:
    """Options of a plan; raises `ValueError` for what the board does not support."""
    limits = values_of(request.power_limits) or ()
    _bench.check_limits(limits, board)
    return PlanOptions(
        points=request.points,
        seed=request.seed,
        only=check_classes(request.only or CLASSES),
        zeros=request.zeros,
        clocks=_bench.swept_clocks(request.clocks or (), board),
        limits=limits,
    )


def _run_until_interrupted(
    points: Sequence[Point],
    kit: Bench,
    table: Table,
    seconds: float,
    done: Progress,
    progress: Tell | None,
) -> bool:
    """Measures the points; returns whether Ctrl-C ended the run."""

    def tell(done: Progress, point: Point):
        if progress is not None:
            progress(done.measured + len(done.failed), len(points), label(point))

    try:
        deadline = kit.clock.now() + seconds
        measure_points(points, kit, table, deadline, done, tell)
    except KeyboardInterrupt:
        return True
    return False
