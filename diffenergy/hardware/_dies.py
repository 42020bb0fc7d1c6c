"""Published dies, the processes they are made in, idle readings (`data/facts`), and the
regression of areas over them (`docs/explanation/codesign.md`, Silicon)."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..corrections import known_process
from ..files import facts

NUMBERS: Final = (
    "die_area", "transistors", "num_sms", "sms_per_gpc", "l2_capacity", "bus_width",
)  # fmt: skip
"""Numbers of a die that carry a source."""
SIGNIFICANDS: Final = {
    "fma_flop_per_cycle_fp32": 24,
    "fma_flop_per_cycle_fp64": 53,
    "tensor_flop_per_cycle_tf32": 11,
    "tensor_flop_per_cycle_bf16": 8,
    "tensor_flop_per_cycle_fp16": 11,
    "tensor_flop_per_cycle_fp8": 4,
    "tensor_flop_per_cycle_int8": 8,
    "tensor_flop_per_cycle_fp4": 2,
}
"""Bits that a multiplier of each rate multiplies, hidden bit included (IEEE 754, OCP
8-bit and microscaling formats); its area grows with their square."""
SRAM_OVERHEAD: Final = 2.0
"""Area of an SRAM / that of its bit cells, set: half of an array is cells (decoders,
sense amplifiers, tags). With 1 or 3 instead, the left-out mean stays below 4.1 %."""
_SHARPNESS: Final = 8
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
def published_dies() -> tuple[Die, ...]:
    """Every published die, oldest architecture first."""
    table = facts("dies")
    return tuple(_die(name, row, table["source"]) for name, row in table["die"].items())


def die_of(gpu: str) -> Die | None:
    """The die that a bundled GPU carries; None where no settled figures exist.

    >>> die_of("a100-sxm-40gb").num_sms
    128.0
    """
    return next((die for die in published_dies() if gpu in die.gpus), None)


def process_rules(name: str) -> Process:
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


# --- area


class Circuits(NamedTuple):
    """Circuits of a die in units that no process changes (floats or arrays)."""

    sms: Any
    lanes: Any  # multipliers, counted in those of an fp32 lane
    channels: Any  # of DRAM, 32 bits of GDDR wide
    sram: Any  # B


class AreaModel(NamedTuple):
    """Coefficients of the area (floats or arrays): gate pitch x metal pitch of an SM
    without multipliers, of an fp32 multiplier lane; mm2 of a DRAM channel."""

    sm: Any
    lane: Any
    channel: Any


def count_circuits(
    values: Mapping[str, Any], num_sms: Any, l2_capacity: Any, channels: Any
) -> Circuits:
    """Circuits of `num_sms` SMs as `values` (fields of `GpuSpec`) describe one.

    lanes of an SM = sum over rates r of r/2 (significand bits / 24)^2; its SRAM =
    registers + the larger of shared memory and L1 (p-norm), which mostly are one array.
    """
    lanes = sum(
        values[rate] / 2 * (bits / SIGNIFICANDS["fma_flop_per_cycle_fp32"]) ** 2
        for rate, bits in SIGNIFICANDS.items()
    )
    smem, ratio = values["smem_per_sm"], values["l1_capacity"] / values["smem_per_sm"]
    array = smem * (1 + ratio**_SHARPNESS) ** (1 / _SHARPNESS)
    sram = l2_capacity + num_sms * (4 * values["registers_per_sm"] + array)
    return Circuits(num_sms, num_sms * lanes, channels, sram)


def die_area(model: AreaModel, c: Circuits, logic_area: Any, bit_cell: Any) -> Any:
    """Die area, mm2.

    A = p (a SMs + b lanes) + c channels + 2 x 8 s bytes, with p = gate x metal pitch
    and s = bit cell (mm2): logic shrinks with p, SRAM with s, the interface does not.
    """
    logic = logic_area * (model.sm * c.sms + model.lane * c.lanes)
    return logic + model.channel * c.channels + sram_area(c.sram, bit_cell)


def sram_area(capacity: Any, bit_cell: Any) -> Any:
    """mm2 of `capacity` bytes."""
    return SRAM_OVERHEAD * 8 * bit_cell * capacity


def area_model() -> AreaModel:
    """Fitted coefficients of the area."""
    return AreaModel(*(facts("silicon")["area"][name] for name in AreaModel._fields))
