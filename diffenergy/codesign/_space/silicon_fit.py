"""Die area and idle power as regressions over published dies: three numbers each."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float

from ...hardware._dies import Die, Process, die_of, dies, idle_readings, process
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


class Fit(NamedTuple):
    """A regression and how well it does; one row a die or board.

    `left_out`: prediction of a row by a fit without any row of its die.
    """

    names: tuple[str, ...]
    measured: Float[np.ndarray, " row"]
    fitted: Float[np.ndarray, " row"]
    left_out: Float[np.ndarray, " row"]
    coefficients: Float[np.ndarray, " term"]

    @property
    def residuals(self) -> Float[np.ndarray, " row"]:
        """Fitted / measured - 1."""
        return self.fitted / self.measured - 1

    @property
    def left_out_errors(self) -> Float[np.ndarray, " row"]:
        """Predicted by the others / measured - 1."""
        return self.left_out / self.measured - 1


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


def die_circuits(die: Die) -> Circuits:
    """Circuits of a whole die, its SMs as the file of its first GPU has them."""
    return circuits(
        read_gpu(die.gpus[0]).values, die.num_sms, die.l2_capacity, die_channels(die)
    )


def die_channels(die: Die) -> float:
    """DRAM channels of a whole die, in 32 bits of GDDR."""
    if _stacked(die.memory):
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
    if _stacked(memory):
        return model.stack * channels / CHANNELS_PER_STACK
    return model.channel * channels


@functools.cache
def area_fit() -> Fit:
    """Least squares of the relative error of the area over every published die."""
    rows = [(die_circuits(die), process(die.process)) for die in dies()]
    terms = np.array([_area_terms(c, rules) for c, rules in rows])
    known = np.array([sram_area(c.sram, rules.bit_cell) for c, rules in rows])
    areas = np.array([die.die_area for die in dies()])
    names = [die.name for die in dies()]
    return regression(names, names, terms, areas, known)


@functools.cache
def idle_fit() -> Fit:
    """Least squares of the relative error of the idle power over the boards read."""
    boards = [name for name, reading in idle_readings().items() if reading.fit]
    watts = np.array([idle_readings()[name].power for name in boards])
    terms = np.array([idle_terms(name) for name in boards])
    owners = [_die(name).name for name in boards]
    return regression(boards, owners, terms, watts, np.zeros(len(boards)))


def area_model() -> AreaModel:
    """Coefficients of the area, fitted on first use."""
    return AreaModel(*(float(x) for x in area_fit().coefficients))


def idle_model() -> IdleModel:
    """Coefficients of the idle power, fitted on first use."""
    return IdleModel(*(float(x) for x in idle_fit().coefficients))


def idle_terms(gpu: str) -> tuple[float, float, float]:
    """10^9 transistors, HBM stacks and GDDR channels of a bundled GPU; transistors in
    proportion to the SMs that are switched on (spare ones have no supply)."""
    card, die = read_gpu(gpu), _die(gpu)
    stacked, channels = _stacked(card.memory), board_channels(card)
    return (
        die.transistors / 1e9 * card.values["num_sms"] / die.num_sms,
        channels / CHANNELS_PER_STACK if stacked else 0.0,
        0.0 if stacked else channels,
    )


def regression(
    names: Sequence[str],
    dies_of: Sequence[str],
    terms: Float[np.ndarray, "row term"],
    measured: Float[np.ndarray, " row"],
    known: Float[np.ndarray, " row"],
) -> Fit:
    """Non-negative x with the least sum of ((terms x + known) / measured - 1)^2.

    `dies_of`: the die of every row, which is left out as one.
    """

    matrix, target = terms / measured[:, None], 1 - known / measured

    def solved(rows: Bool[np.ndarray, " row"]) -> Float[np.ndarray, " term"]:
        return scipy.optimize.nnls(matrix[rows], target[rows])[0]

    owners = np.array(dies_of)
    everyone = solved(np.full(len(measured), True))
    left_out = [
        terms[i] @ solved(owners != owners[i]) + known[i] for i in range(len(measured))
    ]
    fitted = terms @ everyone + known
    return Fit(tuple(names), measured, fitted, np.array(left_out), everyone)


def _area_terms(c: Circuits, rules: Process) -> tuple[float, float, float]:
    return rules.logic_area * c.sms, rules.logic_area * c.lanes, c.channels


def _stacked(memory: str) -> bool:
    return memory.startswith("HBM")


def _die(gpu: str) -> Die:
    """The die of a board with an idle reading (the facts hold no other boards)."""
    return next(die for die in dies() if gpu in die.gpus)
