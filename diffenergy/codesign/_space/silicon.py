"""`Silicon`: area and static power of the designs that grow out of a GPU.

Die area and idle power are regressions over published dies, three numbers each. They
stand in `data/facts/silicon.toml`, and `calibration/studies/silicon.py` fits them.
"""

import dataclasses
from typing import Any, Final, NamedTuple

import equinox as eqx
from jax import Array
from jaxtyping import Float

from ...files import facts
from ...hardware import (
    SIGNIFICANDS,
    AreaModel,
    Circuits,
    Die,
    GpuCard,
    GpuSpec,
    area_model,
    count_circuits,
    die_area,
    die_of,
    process_rules,
    published_dies,
    read_gpu,
)
from ...records import as_float

CHANNELS_PER_STACK: Final = 2.0
"""GDDR channels of 32 bits that take the die edge of one HBM stack of 1024, set: a
stack is some 8 mm wide, the interface of a channel 4 mm (recalled from die photos)."""
_GDDR_BITS: Final = 32
_STACK_BITS: Final = 1024
_PER_SM: Final = (*SIGNIFICANDS, "smem_per_sm", "l1_capacity", "registers_per_sm")


class IdleModel(NamedTuple):
    """Coefficients of the idle power: W per 10^9 transistors, HBM stack, channel."""

    transistors: float
    stack: float
    channel: float


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
        for board in (read_gpu(name) for die in published_dies() for name in die.gpus)
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


def idle_model() -> IdleModel:
    """Fitted coefficients of the idle power."""
    return IdleModel(*(facts("silicon")["idle"][name] for name in IdleModel._fields))


def area_errors() -> tuple[float, float]:
    """Mean and worst error of the area of dies left out of its fit, as shares."""
    die_area = facts("silicon")["area"]
    return die_area["left_out_mean"], die_area["left_out_worst"]


# --- designs that grow out of a GPU


class Silicon(eqx.Module):
    """Area and static power of the silicon of a design that grew out of `base`.

    A design keeps the spare parts of its base in proportion: where 132 of 144 SMs are
    switched on, 12 in 144 stay spare. `scale`: published area / model at the base, so
    that the base comes out exact; 1 where nothing settled is published.
    """

    base: GpuSpec
    coefficients: Float[Array, "3"]
    scale: Float[Array, ""]
    sms: Float[Array, ""]  # SMs on the die / switched on
    l2: Float[Array, ""]  # L2 on the die / switched on
    channels: Float[Array, ""]  # DRAM channels on the die / (B/s)
    memory: Float[Array, ""]  # W of `base.idle_constant` that DRAM takes
    rules: Float[Array, "2"]  # gate x metal pitch, bit cell; mm2
    settled: bool = eqx.field(static=True)
    """Whether the area of the base is published, as one die."""

    def area(self, gpu: GpuSpec) -> Float[Array, "*batch"]:
        """Die area of `gpu`, mm2, whole die.

        published(base) x model(design) / model(base); rises with every number that it
        uses. See `die_area` for the model.
        """
        return self.scale * self._area(self._circuits(gpu))

    def with_static_power(self, gpu: GpuSpec) -> GpuSpec:
        """`gpu` with the idle terms and leakage of its silicon and memory.

        Clock tree and leakage grow with logic and SRAM (their area over that of the
        base), the memory's share of the constant with bandwidth.
        """
        base = self.base
        growth = self._core(gpu) / self._core(base)
        wider = gpu.dram_bandwidth / base.dram_bandwidth
        return dataclasses.replace(
            gpu,
            idle_constant=base.idle_constant + self.memory * (wider - 1),
            idle_clock=base.idle_clock * growth,
            idle_leakage=base.idle_leakage * growth,
        )

    def _area(self, circuits: Circuits) -> Float[Array, "*batch"]:
        return die_area(AreaModel(*self.coefficients), circuits, *self.rules)

    def _core(self, gpu: GpuSpec) -> Float[Array, "*batch"]:
        """mm2 of logic and SRAM; the memory interface idles with the memory."""
        return self._area(self._circuits(gpu)._replace(channels=0.0))

    def _circuits(self, gpu: GpuSpec) -> Circuits:
        return count_circuits(
            {name: getattr(gpu, name) for name in _PER_SM},
            gpu.num_sms * self.sms,
            gpu.l2_capacity * self.l2,
            gpu.dram_bandwidth * self.channels,
        )


def silicon_of(card: GpuCard) -> Silicon:
    """Silicon of the designs that grow out of `card`, made in its process.

    A card that names another bundled GPU as `corrections` has grown out of that one:
    its own area is modelled, too.

    Raises `ValueError` for a process whose design rules are not known.

    >>> from diffenergy.hardware import read_gpu
    >>> card = read_gpu("h100-sxm")
    >>> round(float(silicon_of(card).area(card.spec)))
    814
    """
    die = die_of(card.served_as)
    scale = sms = l2 = 1.0
    channels = board_channels(card) / card.values["dram_bandwidth"]
    if die is not None:
        board, rules = read_gpu(card.served_as).values, process_rules(die.process)
        whole = count_circuits(board, die.num_sms, die.l2_capacity, die_channels(die))
        model = die_area(area_model(), whole, rules.logic_area, rules.bit_cell)
        scale, sms = die.die_area / model, die.num_sms / board["num_sms"]
        l2 = die.l2_capacity / board["l2_capacity"]
        channels = die_channels(die) / board["dram_bandwidth"]
    memory = memory_power(idle_model(), card.memory, board_channels(card))
    return Silicon(
        card.spec,
        as_float(list(area_model())),
        as_float(scale),
        as_float(sms),
        as_float(l2),
        as_float(channels),
        as_float(min(memory, card.values["idle_constant"])),
        as_float(list(process_rules(card.process_node)[:2])),
        die is not None,
    )
