"""`Violation`: what is wrong first with a schedule."""

import dataclasses

from .._schedule.schedule import Schedule


class Violation(ValueError):
    """A schedule that cannot run or does not do what is asked; one sentence."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something wrong at `time`, s (inf: only seen at the end)."""

    time: float
    text: str

    @property
    def error(self) -> Violation:
        """To be raised."""
        return Violation(self.text)


def fault(schedule: Schedule, send: int, text: str) -> Fault:
    """What is wrong with a send, when it starts."""
    start = float(schedule.sends.start[send])
    return Fault(start, f"{describe(schedule, send)} {text}")


def earliest(faults: list[Fault]) -> Fault:
    """The first in time; among equals the first found."""
    return min(faults, key=lambda fault: fault.time)


def describe(schedule: Schedule, send: int) -> str:
    """`send 3 (chunk 0 of gpu1 over gpu1->gpu2 at 1.2e-06 s)`."""
    sends = schedule.sends
    return (
        f"send {send} ({block_name(schedule, int(sends.block[send]))} over "
        f"{schedule.topology.link_name(int(sends.link[send]))} at "
        f"{sends.start[send]:.6g} s)"
    )


def block_name(schedule: Schedule, block: int) -> str:
    """`chunk 0 of gpu1`."""
    demand = schedule.demand
    name = schedule.topology.names[demand.source[block]]
    return f"chunk {demand.chunk[block]} of {name}"
