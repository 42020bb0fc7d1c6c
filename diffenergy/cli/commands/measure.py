"""`diffenergy measure`: time, power and energy of kernels on a GPU of this machine."""

from pathlib import Path
from typing import Any

from ...measure import MeasureRequest, measure, plan
from ...requests import part
from .. import output
from ..interruption import keeping
from ..progress import points
from ..run import Outcome, outcome
from .measure_flags import Flags


def run(flags: Flags) -> Outcome:
    """Shows the plan or measures it."""
    if flags.file is None and not flags.dry_run:
        raise ValueError(
            "`--out` is missing; name the file to write, such as mine.csv."
        )
    if flags.resume and not (flags.file and Path(flags.file).exists()):
        raise ValueError(
            f"`--resume` is given, but there is no file '{flags.file or ''}' to go on "
            "with; leave it out to begin one."
        )
    request = _request(flags)
    if flags.dry_run or flags.file is None:
        planned = plan(flags.gpu, file=flags.file, **request)
        summary = planned.summary
        why = "`--gpu` names a family" if flags.gpu else "no `--gpu` is given"
        note = f"{why}: this is the plan of {summary['gpu']}"
        return outcome(planned, notes=[note] if summary["assumed"] else [])
    with keeping(), points("measure") as tell:
        result = measure(
            flags.file,
            gpu=flags.gpu,
            gpu_index=flags.gpu_index,
            note=lambda line: output.notes([line]),
            progress=tell,
            **request,
        )
    if result.interrupted:
        line = (
            f"interrupted; {flags.file} has {len(result.rows)} rows, and the same "
            "command goes on from there."
        )
        return Outcome(interrupted=line)
    return outcome(result)


def _request(flags: Flags) -> dict[str, Any]:
    """Request of the measurements. Clocks and limits need a second flag each."""
    if flags.clocks is not None and not flags.set_clocks:
        raise ValueError(
            "`--clocks` changes the GPU's clocks; add `--set-clocks` to allow that."
        )
    if bool(flags.power_limits) != flags.set_power_limit:
        raise ValueError(
            "`--power-limits W,W` and `--set-power-limit`, which allows to set them, "
            "go together; give both or neither."
        )
    clocks = (flags.clocks or "auto") if flags.set_clocks else None
    return part(MeasureRequest, flags, clocks=clocks)
