"""`diffenergy measure`: time, power and energy of kernels on a GPU of this machine."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from . import INTERRUPTED, measuring, output, parse

if TYPE_CHECKING:
    from ..measure._plan import Point, Wanted
    from ..measure._record import Bench, Progress
    from ..measure._shapes import Board
    from ..measure._table import Table

_ASSUMED: Final = "h100-sxm"
"""GPU of a dry run without `--gpu`."""


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("measure")(_measure)


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text)


def _measure(
    out: Annotated[
        str | None,
        _option("--out", "FILE", "Measurements to write or go on with (.csv)."),
    ] = None,
    gpu_index: Annotated[
        int, typer.Option("--gpu-index", min=0, help="As nvidia-smi counts.")
    ] = 0,
    gpu: Annotated[
        str | None, _option("--gpu", "NAME", "Name in the rows [what the board says].")
    ] = None,
    minutes: Annotated[str, _option("--minutes", "M", "Most that it may take.")] = "20",
    points: Annotated[
        str, _option("--points", "N", "Most points, old ones too.")
    ] = "200",
    only: Annotated[
        str | None, _option("--only", "CLASS[,CLASS...]", "Kernel classes [all].")
    ] = None,
    zeros: Annotated[
        bool, typer.Option("--zeros", help="Operands of zeros, not random ones.")
    ] = False,
    set_clocks: Annotated[
        bool,
        typer.Option("--set-clocks", help="Allow to lock SM clocks; undone after."),
    ] = False,
    clocks: Annotated[
        str | None,
        _option("--clocks", "MHZ[,MHZ...]|auto", "SM clocks to sweep [auto: eight]."),
    ] = None,
    set_power_limit: Annotated[
        bool,
        typer.Option(
            "--set-power-limit", help="Allow to set power limits; undone after."
        ),
    ] = False,
    power_limits: Annotated[
        str | None, _option("--power-limits", "W[,W...]", "Power limits to sweep.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of drawn shapes.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist that FILE is there to go on with.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; needs no GPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
):
    """Measure kernels on a GPU of this machine, for `diffenergy fit`.

    Needs an NVIDIA GPU, and PyTorch or JAX with CUDA. It may be stopped at any time;
    the same command goes on where FILE ends. FILE.series.jsonl keeps all samples.
    Clocks and limits stay untouched without --set-clocks and --set-power-limit.

    \b
    Examples:
      diffenergy measure --out mine.csv
      diffenergy measure --out mine.csv --set-clocks --minutes 30 --points 300
    """
    run(
        Flags(
            out=out,
            gpu_index=gpu_index,
            gpu=gpu,
            seconds=60 * parse.positive("--minutes", minutes, "minutes"),
            points=parse.whole("--points", points) or 1,
            only=_classes(only),
            zeros=zeros,
            sweep_clocks=set_clocks,
            clocks=_clocks(clocks, set_clocks),
            limits=_limits(power_limits, set_power_limit),
            seed=seed,
            resume=resume,
            dry_run=dry_run,
            as_json=as_json,
        )
    )


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags of `measure`, read. `clocks` in Hz, None: chosen by us; `limits` in W."""

    out: str | None
    gpu_index: int
    gpu: str | None
    seconds: float
    points: int
    only: tuple[str, ...]
    zeros: bool
    sweep_clocks: bool
    clocks: tuple[float, ...] | None
    limits: tuple[float, ...]
    seed: int
    resume: bool
    dry_run: bool
    as_json: bool

    @property
    def file(self) -> Path:
        """The table; `--out` is there by now."""
        return Path(self.out or "")


def _classes(text: str | None) -> tuple[str, ...]:
    from ..measure._shapes import CLASSES

    words = [part.strip() for part in text.split(",")] if text is not None else CLASSES
    for word in words:
        if word not in CLASSES:
            raise ValueError(
                f"`--only` is '{word}'; allowed are {', '.join(CLASSES)}, separated by "
                "commas."
            )
    return tuple(words)


def _clocks(text: str | None, allowed: bool) -> tuple[float, ...] | None:
    if text is not None and not allowed:
        raise ValueError(
            "`--clocks` changes the GPU's clocks; add `--set-clocks` to allow that."
        )
    automatic = text is None or text.strip() == "auto"
    return None if automatic else tuple(parse.clocks("--clocks", text or ""))


def _limits(text: str | None, allowed: bool) -> tuple[float, ...]:
    if (text is None) == allowed:
        raise ValueError(
            "`--power-limits W,W` and `--set-power-limit`, which allows to set them, "
            "go together; give both or neither."
        )
    return tuple(parse.positives("--power-limits", text, "W")) if text else ()


def run(flags: Flags):
    """Shows the plan or measures it."""
    _check_out(flags)
    if flags.dry_run:
        _show_plan(flags)
    else:
        _on_the_gpu(flags)


def _check_out(flags: Flags):
    if flags.out is None and not flags.dry_run:
        raise ValueError(
            "`--out` is missing; name the file to write, such as mine.csv."
        )
    output.writer(flags.out, {".csv": str})
    if flags.resume and not (flags.out and flags.file.exists()):
        raise ValueError(
            f"`--resume` is given, but there is no file '{flags.out or ''}' to go on "
            "with; leave it out to begin one."
        )


def _wanted(flags: Flags, board: "Board") -> "Wanted":
    from ..measure._bench import check_limits, swept_clocks
    from ..measure._plan import Wanted

    check_limits(flags.limits, board)
    return Wanted(
        points=flags.points,
        seed=flags.seed,
        only=flags.only,
        zeros=flags.zeros,
        clocks=swept_clocks(flags.clocks, board) if flags.sweep_clocks else (),
        limits=flags.limits,
    )


def _show_plan(flags: Flags):
    """Prints what would be measured; touches neither files nor a GPU."""
    from ..hardware import read_gpu
    from ..measure._bench import row_name
    from ..measure._plan import board_of, make_plan, within
    from ..measure._record import remaining
    from ..measure._table import finished

    named = flags.gpu or _ASSUMED
    card = read_gpu(named)
    board = board_of(card)
    rows = finished(flags.file) if flags.out else []
    plan = make_plan(board, _wanted(flags, board))
    left = remaining(plan, row_name(named, card), rows)
    points = within(left, flags.seconds)
    seconds = sum(point.seconds for point in points)
    content = {
        "gpu": board.name,
        "assumed": [] if flags.gpu else ["gpu"],
        "seconds": round(seconds, 1),
        "done": len(plan) - len(left),
        "later": len(left) - len(points),
        "classes": dict(Counter(point.kind for point in points)),
        "points": [measuring.described(point) for point in points],
    }
    output.show(content, flags.as_json, lambda: measuring.plan_parts(content))
    if not flags.gpu:
        output.notes([f"no `--gpu` is given: this is the plan of {_ASSUMED}"])


def _on_the_gpu(flags: Flags):
    """Measures what is left of the plan."""
    from ..measure import _bench as bench
    from ..measure._board import clocks, sensor, timing
    from ..measure._plan import make_plan
    from ..measure._record import Bench, Progress, remaining
    from ..measure._runners import runner
    from ..measure._table import Table, finished, state_path

    state = state_path(flags.file)
    finished(flags.file)  # another kind of file is found before the GPU is
    clocks.check_state(state)
    board = sensor.open_sensor(flags.gpu_index)
    bench.check_board(board.about)
    identity = bench.identify(board.about, flags.gpu)
    before = board.processes()
    wall, progress = timing.Wall(), Progress()
    with clocks.interruptible() as check:
        kernels = runner.find_runner(board.about.uuid)
        surveyed = bench.survey(board, identity, kernels.l2)
        wanted = _wanted(flags, surveyed)
        plan = make_plan(surveyed, wanted)
        with clocks.Control(board, wall, state, _note) as control:
            control.prepare(*_first_state(wanted))
            others = bench.watch(board, before)
            kit = Bench(identity.name, board, kernels, wall, control, others, check)
            output.notes(_before(identity.notes, before))
            table = Table(flags.file)
            left = remaining(plan, identity.name, table.rows)
            interrupted = _interrupted(left, kit, table, flags.seconds, progress)
    if interrupted:
        line = (
            f"interrupted; {flags.out} has {len(table.rows)} rows, and the same "
            "command goes on from there."
        )
        print(f"diffenergy: {line}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    _finish(flags, kit, len(left), table, progress)


def _first_state(wanted: "Wanted") -> tuple[float | None, float | None]:
    """A clock and a limit that will be set, to find out whether they may be."""
    clock = wanted.clocks[0] if wanted.clocks else None
    return clock, wanted.limits[0] if wanted.limits else None


def _before(notes: Sequence[str], others: frozenset[int] | None) -> list[str]:
    """Remarks on the machine."""
    busy = f"other processes use this GPU ({len(others or ())}): rows say `shared_gpu`"
    return [*notes, *([busy] if others else [])]


def _note(line: str):
    output.notes([line])


def _interrupted(
    points: "Sequence[Point]",
    kit: "Bench",
    table: "Table",
    seconds: float,
    progress: "Progress",
) -> bool:
    """Measures; whether Ctrl-C ended it."""
    from ..measure._record import measure

    with measuring.shown(len(points)) as tell:
        try:
            deadline = kit.clock.now() + seconds
            measure(points, kit, table, deadline, progress, tell)
        except KeyboardInterrupt:
            return True
    return False


def _finish(flags: Flags, kit: "Bench", planned: int, table: "Table", done: "Progress"):
    """Prints what was measured and what was not."""
    from ..measure._record import campaign
    from ..measure._table import series_path

    summary = {
        "file": str(flags.file),
        "series": str(series_path(flags.file)),
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
    output.show(
        summary, flags.as_json, lambda: measuring.summary_parts(summary, table.rows)
    )
    output.notes(measuring.after(table, done))
