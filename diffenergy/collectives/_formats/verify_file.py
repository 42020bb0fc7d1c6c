"""The public `verify`: of a schedule, or of a file in any of the known formats.

Of an MSCCL program what is replayed is the schedule that it makes (`read_msccl`).
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from ...results import Result
from .._demand.demand import REDUCING, Demand
from .._demand.demands import parse_size
from .._machine.topology import Topology
from .._machine.topology_files import load_topology
from .._schedule.schedule import Schedule, Sends
from .._schedule.simulate import retime
from .._verify.verify import verify as replay
from .._verify.violation import Violation
from .export import read_schedule_json
from .msccl_program import Program, Value, goals, read_program
from .msccl_run import Run
from .published import is_published, read_json, read_published, run_published

_TIME: Final = 1e-6
"""Share by which a stated finish may be less."""


@dataclasses.dataclass(frozen=True, repr=False)
class VerifyResult(Result):
    """A right schedule.

    `summary`: the JSON of `diffenergy collective verify --json` (`format`:
    `diffenergy`, `te-ccl`, `msccl`, or `schedule` of a record); `schedule`: in
    continuous time (of published epochs: run with true latencies, in their order);
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
    size: float | str = 1e9,
    *,
    latency: float | None = None,
    gpu: str | None = None,
) -> VerifyResult:
    """Replays a schedule by code that shares nothing with what makes it.

    Args:
        schedule: a `Schedule`, or a file: our JSON, a published TE-CCL file (also
            gzipped) or MSCCL XML.
        topology: the machine, needed where a file names none, which only ours does.
        size: output buffer of a GPU, B or text, of MSCCL XML, which does not say it.
        latency, gpu: of the `topology`, as for `load_topology`.

    Raises:
        Violation: the first thing wrong with the schedule.
        ValueError: for a file that is none of these.

    Example:

        >>> from diffenergy.collectives import plan, verify
        >>> found = plan("ring-4", "all_gather", "8MB")
        >>> verify(found.schedule).finish == found.finish
        True
    """
    machine = None if topology is None else load_topology(topology, latency, gpu)
    if isinstance(schedule, Schedule):
        return _checked("schedule", None, schedule, replay(schedule))
    path = schedule
    if _is_xml(path):
        found = read_msccl(path, _given(path, machine), parse_size(size))
        return _checked("msccl", path, found, replay(found))
    table = read_json(path)
    if is_published(table):
        found, finish = run_published(read_published(path, _given(path, machine)))
        return _checked("te-ccl", path, found, finish, finish)
    found = read_schedule_json(path, machine, table)
    checked = _checked("diffenergy", path, found, replay(found))
    _check_claim(table.get("finish_s"), checked.finish)
    return checked


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


def _checked(
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


# --- MSCCL programs


def read_msccl(path: Path | str, topology: Topology, size: float = 1e9) -> Schedule:
    """The schedule that an MSCCL program makes on a machine.

    Blocks run as early as they can; a chunk takes the direct link to its peer, else
    the way through switches with the least latency. `size`: B of the larger of input
    and output buffer, which the file does not say.

    Raises `Violation` for programs that cannot end, that add a summand twice, whose
    output buffers come out wrong, or whose peers no link joins; `ValueError` for
    files that cannot be read or are for another number of GPUs.
    """
    program = read_program(path)
    if program.ranks != len(topology.gpus):
        raise ValueError(
            f"`{path}` is for {program.ranks} GPUs; {topology.name} has "
            f"{len(topology.gpus)}."
        )
    if not (np.isfinite(size) and size > 0):
        raise ValueError(f"`size` is {size} B; allowed is any number above 0.")
    chunk = size / max(program.inputs, program.outputs, 1)
    run = Run(program, topology, chunk)
    run.play()
    _check_outputs(program, run)
    return _schedule(program, topology, run, chunk)


def _check_outputs(program: Program, run: Run) -> None:
    for (gpu, offset), value in goals(program).items():
        found = run.output(gpu, offset)
        if found == value:
            continue
        what = "is never written" if found is None else f"holds {_told(found)}"
        raise Violation(
            f"output chunk {offset} of GPU {gpu} {what} at the end; it must hold "
            f"{_told(value)}."
        )


def _told(value: Value) -> str:
    (rank, offset), summands = value
    if rank >= 0:
        return f"input chunk {offset} of GPU {rank}"
    return f"the sum of input chunks {offset} of {summands.bit_count()} GPUs"


def _schedule(program: Program, topology: Topology, run: Run, chunk: float) -> Schedule:
    """Sends with blocks by name; what was sent although nobody wants it stays away."""
    demand, keys = _demand(program, topology, run, chunk)
    index = {key: n for n, key in enumerate(keys)}
    full = (1 << program.ranks) - 1
    rows = [row for row in run.moved if row.value[0] in index]
    sends = Sends(
        np.array([index[row.value[0]] for row in rows], int),
        np.array([row.link for row in rows], int),
        np.array([row.start for row in rows], float),
        np.array([row.end for row in rows], float),
        np.full(len(rows), chunk),
        np.array([demand.reduces and row.value[1] == full for row in rows], int),
    )
    return Schedule(topology, demand, sends)


def _demand(
    program: Program, topology: Topology, run: Run, chunk: float
) -> tuple[Demand, list[tuple[int, int]]]:
    """The blocks that somebody wants who does not begin with them, and their keys."""
    reduces = program.collective in REDUCING
    takers: dict[tuple[int, int], set[int]] = {}
    for (gpu, _), (key, _) in goals(program).items():
        takers.setdefault(key, set()).add(gpu)
    if not reduces:
        takers = {key: gpus - {key[0]} for key, gpus in takers.items()}
    keys = sorted(key for key, gpus in takers.items() if gpus)
    owners = [_owner(program, run, key) for key in keys]
    wanted = np.zeros((len(keys), len(topology.nodes)), bool)
    parts = np.zeros_like(wanted)
    parts[:, topology.gpus] = reduces
    numbers: list[int] = []
    count: dict[int, int] = {}
    for n, (key, owner) in enumerate(zip(keys, owners, strict=True)):
        wanted[n, topology.gpus[sorted(takers[key])]] = True
        numbers.append(_number(program, topology, key, count.get(owner, 0)))
        count[owner] = count.get(owner, 0) + 1
    demand = Demand(
        program.collective,
        np.array(topology.gpus[owners], int),
        np.array(numbers, int),
        np.full(len(keys), chunk),
        wanted,
        parts,
    )
    return demand, keys


def _owner(program: Program, run: Run, key: tuple[int, int]) -> int:
    """GPU that a block begins at, or that has a sum first or at the end."""
    if program.collective == "reduce":
        return program.root
    if program.collective == "reduce_scatter":
        return key[1] // program.outputs
    return key[0] if key[0] >= 0 else run.summed[key[1]]


def _number(
    program: Program, topology: Topology, key: tuple[int, int], count: int
) -> int:
    """Chunk number: of an all-to-all part * GPUs + destination."""
    if program.collective != "all_to_all":
        return count
    taker, part = divmod(key[1], program.inputs // program.ranks)
    name = topology.nodes[topology.gpus[taker]].name.removeprefix("gpu")
    sharing = topology.buffer_gpus
    return part * sharing + (int(name) if sharing > program.ranks else taker)
