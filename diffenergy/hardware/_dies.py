"""Published dies, the processes they are made in, idle readings (`data/facts`)."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..corrections._law import known_process
from ..files import facts

NUMBERS: Final = (
    "die_area", "transistors", "num_sms", "sms_per_gpc", "l2_capacity", "bus_width",
)  # fmt: skip
"""Numbers of a die that carry a source."""
_NM2: Final = 1e-12  # mm2
_UM2: Final = 1e-6  # mm2


class Process(NamedTuple):
    """Design rules of a process: contacted gate pitch x smallest metal pitch, and a
    high-density SRAM cell; mm2. `quality`: of the source."""

    logic_area: float
    bit_cell: float
    source: str
    quality: str


@dataclasses.dataclass(frozen=True)
class Die:
    """A die with everything on it switched on.

    `gpus`: bundled GPUs that carry it, one with unrestricted rates first. `sources`:
    text, quality and year of every number.
    """

    name: str
    process: str
    memory: str
    year: int
    gpus: tuple[str, ...]
    die_area: float  # mm2
    transistors: float
    num_sms: float
    sms_per_gpc: float
    l2_capacity: float  # B
    bus_width: float  # bit
    sources: Mapping[str, Mapping[str, Any]]


class IdleReading(NamedTuple):
    """Board power without work at the lowest clock, W. `fit`: fit for regressions."""

    power: float
    fit: bool
    note: str
    source: str
    quality: str


@functools.cache
def dies() -> tuple[Die, ...]:
    """Every published die, oldest architecture first."""
    found = facts("dies")
    return tuple(_die(name, row, found["source"]) for name, row in found["die"].items())


def die_of(gpu: str) -> Die | None:
    """The die that a bundled GPU carries; None where no settled figures exist.

    >>> die_of("a100-sxm-40gb").num_sms
    128.0
    """
    return next((die for die in dies() if gpu in die.gpus), None)


def process(name: str) -> Process:
    """Design rules of a process, by the name that GPU files use; of two those of the
    compute dies.

    Raises `ValueError` for a process that is not known.
    """
    row = facts("processes")[known_process(name).rpartition("/")[2]]
    return Process(
        row["gate_pitch"] * row["metal_pitch"] * _NM2,
        row["bit_cell"] * _UM2,
        row["source"],
        row["quality"],
    )


@functools.cache
def idle_readings() -> Mapping[str, IdleReading]:
    """Idle power of boards, by bundled GPU."""
    rows = facts("dies")["idle"]
    return {
        gpu: IdleReading(*(row[x] for x in IdleReading._fields))
        for gpu, row in rows.items()
    }


def _die(name: str, row: dict[str, Any], sources: dict[str, Any]) -> Die:
    return Die(
        name,
        row["process"],
        row["memory"],
        row["year"],
        tuple(row["gpus"]),
        *(float(row[number]["value"]) for number in NUMBERS),
        sources={number: sources[row[number]["from"]] for number in NUMBERS},
    )
