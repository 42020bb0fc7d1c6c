"""`Violation`: what is wrong first with a schedule."""

from typing import NamedTuple

from ._schedule import Schedule


class Violation(ValueError):
    """A schedule that cannot run or does not do what is asked; one sentence."""


class Fault(NamedTuple):
    """Something wrong at `time`, s (inf: only seen at the end)."""

    time: float
    text: str


def fault(schedule: Schedule, send: int, text: str) -> Fault:
    """What is wrong with `send 3 (chunk 0 of gpu1 over gpu1->gpu2 at 1.2e-06 s)`."""
    sends, start = schedule.sends, float(schedule.sends.start[send])
    block = block_name(schedule, int(sends.block[send]))
    link = schedule.topology.link_name(int(sends.link[send]))
    return Fault(start, f"send {send} ({block} over {link} at {start:.6g} s) {text}")


def raise_first(faults: list[Fault]) -> None:
    """Raises the first in time, if any; among equals the first found."""
    if faults:
        raise Violation(min(faults, key=lambda fault: fault.time).text)


def block_name(schedule: Schedule, block: int) -> str:
    """Name of a block, such as `chunk 0 of gpu1`."""
    demand = schedule.demand
    name = schedule.topology.names[demand.source[block]]
    return f"chunk {demand.chunk[block]} of {name}"
