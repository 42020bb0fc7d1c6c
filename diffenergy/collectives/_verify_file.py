"""The public `verify`: of a schedule, or of a file in one of the known formats."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Final

from ..results import Result
from ._export import read_schedule_json
from ._published import is_published, read_json, read_published, run_published
from ._schedule import Schedule
from ._simulate import retime
from ._topology import Topology
from ._topology_files import load_topology
from ._verify import verify as replay
from ._violation import Violation

_TIME: Final = 1e-6
"""Share by which a stated finish may be less."""


@dataclasses.dataclass(frozen=True, repr=False)
class VerifyResult(Result):
    """Result of a successful verification.

    `summary`: the JSON of `diffenergy collective verify --json` (`format`:
    `diffenergy`, `te-ccl`, or `schedule` of a record); `schedule`: in continuous time
    (of published epochs: run with true latencies, in their order);
    `finish`: s until the last wanted block arrives; `earliest`: the same if every send
    starts as early as its order allows.
    """

    view: ClassVar[str] = "collectives.verified"
    summary: dict[str, Any]
    schedule: Schedule
    finish: float
    earliest: float


def verify(
    schedule: Schedule | Path | str,
    topology: Topology | str | None = None,
    *,
    latency: float | None = None,
    gpu: str | None = None,
) -> VerifyResult:
    """Replays a schedule by code that shares nothing with what makes it.

    Args:
        schedule: a `Schedule`, or a file: our JSON or a published TE-CCL file (also
            gzipped).
        topology: the machine, needed where a file names none, which only ours does.
        latency, gpu: of the `topology`, as for `load_topology`.

    Raises:
        Violation: the first thing wrong with the schedule.
        ValueError: for a file that is none of these.

    Example:

        >>> from diffenergy.collectives import plan, verify
        >>> result = plan("ring-4", "all_gather", "8MB")
        >>> verify(result.schedule).finish == result.finish
        True
    """
    machine = None if topology is None else load_topology(topology, latency, gpu)
    if isinstance(schedule, Schedule):
        return _result("schedule", None, schedule, replay(schedule))
    path = schedule
    if str(path).lower().endswith(".xml"):
        raise ValueError(
            f"`{path}` is a program for MSCCL, which is written only; give the JSON of "
            "the same schedule (`collective --out NAME.json`)."
        )
    table = read_json(path)
    if is_published(table):
        replayed, finish = run_published(read_published(path, _required(path, machine)))
        return _result("te-ccl", path, replayed, finish, finish)
    replayed = read_schedule_json(path, machine, table)
    checked = _result("diffenergy", path, replayed, replay(replayed))
    _check_claim(table.get("finish_s"), checked.finish)
    return checked


def _check_claim(stated: Any, finish: float) -> None:
    """Raises `Violation` if a file states an earlier finish than its sends have."""
    if stated is None:
        return
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    if not is_number or not stated >= finish * (1 - _TIME):
        raise Violation(
            f"`finish_s` is {stated!r}, but the last wanted block arrives at "
            f"{finish:.9g} s."
        )


def _result(
    kind: str,
    path: Path | str | None,
    schedule: Schedule,
    finish: float,
    earliest: float | None = None,
) -> VerifyResult:
    if earliest is None:
        earliest = min(finish, replay(retime(schedule)))
    published = kind == "te-ccl"
    summary = {
        "file": None if path is None else str(path),
        "format": kind,
        "verified": True,
        "topology": schedule.topology.name,
        "collective": schedule.demand.collective,
        "send_count": len(schedule.sends),
        "epoch_s": schedule.epoch if published else None,
        "epochs": schedule.epochs if published else None,
        "finish_s": finish,
        "earliest_finish_s": earliest,
    }
    return VerifyResult(summary, schedule, finish, earliest)


def _required(path: Path | str, topology: Topology | None) -> Topology:
    if topology is None:
        raise ValueError(f"`{path}` names no topology; give --topology NAME.")
    return topology
