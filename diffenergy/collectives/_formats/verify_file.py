"""`verify_file`: verification of a schedule in any of the known file formats."""

import dataclasses
from pathlib import Path
from typing import Any, Final

from .._machine.topology import Topology
from .._schedule.schedule import Schedule
from .._schedule.simulate import retime
from .._verify.verify import Verified, verify
from .._verify.violation import Violation
from .export import read_schedule_json
from .msccl_read import read_msccl
from .published import is_published, read_json, read_published, run_published

_TIME: Final = 1e-6
"""Share by which a stated finish may be less."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """A right schedule from a file.

    `format`: `diffenergy`, `te-ccl` or `msccl`; `schedule`: in continuous time (of
    published epochs: run with true latencies, in their order); `earliest`: s until the
    last demand is met if every send starts as early as its order allows.
    """

    format: str
    schedule: Schedule
    verified: Verified
    earliest: float


def verify_file(
    path: Path | str, topology: Topology | None = None, size: float = 1e9
) -> Checked:
    """Reads and verifies our JSON, a published TE-CCL file (also gzipped) or MSCCL XML.

    `topology`: needed where the file names none, which only ours does. `size`: B of the
    buffer, for MSCCL XML, which does not say it.

    Raises `Violation` for the first thing wrong with the schedule, `ValueError` for a
    file that is none of these.
    """
    if _is_xml(path):
        schedule = read_msccl(path, _given(path, topology), size)
        return _checked("msccl", schedule, verify(schedule))
    table = read_json(path)
    if is_published(table):
        given = read_published(path, _given(path, topology))
        schedule, verified = run_published(given)
        return Checked("te-ccl", schedule, verified, verified.finish)
    schedule = read_schedule_json(path, topology, table)
    checked = _checked("diffenergy", schedule, verify(schedule))
    _check_claim(table.get("finish_s"), checked.verified.finish)
    return checked


def finish(schedule: Schedule) -> float:
    """s until the last demand is met if every send starts as early as it can."""
    return verify(retime(schedule)).finish


def _check_claim(stated: Any, finish: float) -> None:
    """What a file says of its finish must not be better than what its sends do."""
    if stated is None:
        return
    known = isinstance(stated, int | float) and not isinstance(stated, bool)
    if not known or not stated >= finish * (1 - _TIME):
        raise Violation(
            f"`finish_s` is {stated!r}, but the last wanted block arrives at "
            f"{finish:.9g} s."
        )


def _checked(kind: str, schedule: Schedule, verified: Verified) -> Checked:
    return Checked(kind, schedule, verified, min(verified.finish, finish(schedule)))


def _is_xml(path: Path | str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(64).lstrip().startswith(b"<")
    except OSError as error:
        raise ValueError(f"`{path}` cannot be read: {error.strerror}.") from error


def _given(path: Path | str, topology: Topology | None) -> Topology:
    if topology is None:
        raise ValueError(f"`{path}` names no topology; give --topology NAME.")
    return topology
