"""`Silicon`: area and static power of the designs that grow out of a GPU."""

import dataclasses

import equinox as eqx
from jax import Array
from jaxtyping import Float

from ...hardware._dies import die_of, process
from ...hardware._files import GpuCard, read_gpu
from ...hardware._spec import GpuSpec
from ...records import as_float
from .die_model import (
    SIGNIFICANDS,
    AreaModel,
    Circuits,
    area,
    area_model,
    board_channels,
    circuits,
    die_channels,
    idle_model,
    memory_power,
)

_PER_SM = (*SIGNIFICANDS, "smem_per_sm", "l1_capacity", "registers_per_sm")


class Silicon(eqx.Module):
    """What the silicon of a design takes, the design having grown out of `base`.

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
    base_rules: Float[Array, "2"]  # gate x metal pitch, bit cell; mm2
    rules: Float[Array, "2"]  # of the process that designs are made in
    settled: bool = eqx.field(static=True)
    """Whether the area of the base is published, as one die."""

    def area(self, gpu: GpuSpec) -> Float[Array, "*batch"]:
        """Die area of `gpu`, mm2, whole die.

        published(base) x model(design) / model(base); rises with every number that it
        uses. See `die_model.area` for the model.
        """
        made = self._circuits(gpu)
        return self.scale * area(self._model, made, self.rules[0], self.rules[1])

    def with_static_power(self, gpu: GpuSpec) -> GpuSpec:
        """`gpu` with the idle terms and leakage of its silicon and memory.

        Clock tree and leakage grow with logic and SRAM (their area over that of the
        base, both in the base's process), the memory's share of the constant with
        bandwidth. `leakage_scale` also takes out the TDP, a limit and not silicon.
        """
        base = self.base
        growth = self._core(gpu) / self._core(base)
        wider = gpu.dram_bandwidth / base.dram_bandwidth
        return dataclasses.replace(
            gpu,
            idle_constant=base.idle_constant + self.memory * (wider - 1),
            idle_clock=base.idle_clock * growth,
            idle_leakage=base.idle_leakage * growth,
            leakage_scale=base.leakage_scale * growth * base.tdp / gpu.tdp,
        )

    @property
    def _model(self) -> AreaModel:
        return AreaModel(*self.coefficients)

    def _core(self, gpu: GpuSpec) -> Float[Array, "*batch"]:
        """mm2 of logic and SRAM in the base's process; the memory interface idles with
        the memory."""
        inside = self._circuits(gpu)._replace(channels=0.0)
        return area(self._model, inside, self.base_rules[0], self.base_rules[1])

    def _circuits(self, gpu: GpuSpec) -> Circuits:
        return circuits(
            {name: getattr(gpu, name) for name in _PER_SM},
            gpu.num_sms * self.sms,
            gpu.l2_capacity * self.l2,
            gpu.dram_bandwidth * self.channels,
        )


def silicon_of(card: GpuCard, process_node: str | None = None) -> Silicon:
    """Silicon of the designs that grow out of `card`.

    `process_node`: the process that they are made in [that of `card`]. A card that
    names another bundled GPU as `corrections` has grown out of that one: its own area
    is modelled, too.

    Raises `ValueError` for a process whose design rules are not known.

    >>> from diffenergy.hardware import read_gpu
    >>> card = read_gpu("h100-sxm")
    >>> round(float(silicon_of(card).area(card.spec)))
    814
    """
    made = process(card.process_node)
    new = process(process_node or card.process_node)
    scale, sms, l2, channels = _spare(card)
    memory = memory_power(idle_model(), card.memory, board_channels(card))
    return Silicon(
        card.spec,
        as_float(list(area_model())),
        as_float(scale),
        as_float(sms),
        as_float(l2),
        as_float(channels),
        as_float(min(memory, card.values["idle_constant"])),
        as_float(list(made[:2])),
        as_float(list(new[:2])),
        die_of(card.served_as) is not None,
    )


def _spare(card: GpuCard) -> tuple[float, float, float, float]:
    """`scale`, `sms`, `l2` and `channels` of a `Silicon`."""
    die = die_of(card.served_as)
    if die is None:
        return 1.0, 1.0, 1.0, board_channels(card) / card.values["dram_bandwidth"]
    board = read_gpu(card.served_as).values
    rules, channels = process(die.process), die_channels(die)
    whole = circuits(board, die.num_sms, die.l2_capacity, channels)
    return (
        die.die_area / area(area_model(), whole, rules.logic_area, rules.bit_cell),
        die.num_sms / board["num_sms"],
        die.l2_capacity / board["l2_capacity"],
        channels / board["dram_bandwidth"],
    )
