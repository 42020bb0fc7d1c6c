"""Die area and idle power: regressions over published dies, three numbers each.

The numbers stand in `data/facts/silicon.toml`, and `calibration/studies/silicon.py`
fits them.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...hardware._dies import Die, die_of, dies
from ...hardware._files import GpuCard, read_gpu

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
CHANNELS_PER_STACK: Final = 2.0
"""GDDR channels of 32 bits that take the die edge of one HBM stack of 1024, set: a
stack is some 8 mm wide, the interface of a channel 4 mm (recalled from die photos)."""
_FILE: Final = Path(__file__).parents[2] / "data" / "facts" / "silicon.toml"
_GDDR_BITS: Final = 32
_STACK_BITS: Final = 1024
_SHARPNESS: Final = 8


class Circuits(NamedTuple):
    """What a die is made of, in units that no process changes (floats or arrays)."""

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


class IdleModel(NamedTuple):
    """Coefficients of the idle power: W per 10^9 transistors, HBM stack, channel."""

    transistors: float
    stack: float
    channel: float


def circuits(
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


def area(model: AreaModel, c: Circuits, logic_area: Any, bit_cell: Any) -> Any:
    """Die area, mm2.

    A = p (a SMs + b lanes) + c channels + 2 x 8 s bytes, with p = gate x metal pitch
    and s = bit cell (mm2): logic shrinks with p, SRAM with s, the interface does not.
    """
    logic = logic_area * (model.sm * c.sms + model.lane * c.lanes)
    return logic + model.channel * c.channels + sram_area(c.sram, bit_cell)


def sram_area(capacity: Any, bit_cell: Any) -> Any:
    """mm2 of `capacity` bytes."""
    return SRAM_OVERHEAD * 8 * bit_cell * capacity


def die_channels(die: Die) -> float:
    """DRAM channels of a whole die, in 32 bits of GDDR."""
    if is_stacked(die.memory):
        return CHANNELS_PER_STACK * die.bus_width / _STACK_BITS
    return die.bus_width / _GDDR_BITS


def board_channels(card: GpuCard) -> float:
    """DRAM channels in use on a board, in 32 bits of GDDR: from its stacks; else those
    of its die; else its bandwidth over that of a channel on a bundled board."""
    stacks = card.physical.get("dram_stacks")
    if stacks:
        return CHANNELS_PER_STACK * float(stacks)
    die = die_of(card.served_as)
    if die is not None:
        return die_channels(die)
    like = next(
        board
        for board in (read_gpu(name) for die in dies() for name in die.gpus)
        if board.memory == card.memory
    )
    rate = like.values["dram_bandwidth"] / board_channels(like)
    return card.values["dram_bandwidth"] / rate


def memory_power(model: IdleModel, memory: str, channels: Any) -> Any:
    """Idle power of DRAM and its interface, W."""
    if is_stacked(memory):
        return model.stack * channels / CHANNELS_PER_STACK
    return model.channel * channels


def is_stacked(memory: str) -> bool:
    """Whether DRAM stands in stacks beside the die."""
    return memory.startswith("HBM")


def area_model() -> AreaModel:
    """Fitted coefficients of the area."""
    return AreaModel(*(_facts()["area"][name] for name in AreaModel._fields))


def idle_model() -> IdleModel:
    """Fitted coefficients of the idle power."""
    return IdleModel(*(_facts()["idle"][name] for name in IdleModel._fields))


def area_errors() -> tuple[float, float]:
    """Mean and worst error of the area of dies left out of its fit, as shares."""
    area = _facts()["area"]
    return area["left_out_mean"], area["left_out_worst"]


@functools.cache
def _facts() -> dict[str, dict[str, float]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
