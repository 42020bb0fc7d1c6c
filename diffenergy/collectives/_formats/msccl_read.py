"""The schedule that an MSCCL program makes on a machine."""

from pathlib import Path

import numpy as np

from .._demand.demand import REDUCING, Demand
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends
from .._verify.violation import Violation
from .msccl_program import Program, Value, goals, read_program
from .msccl_run import Run


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
