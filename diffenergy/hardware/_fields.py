"""What a GPU file holds: its numbers with units and ranges, its words."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec

from ..schema import Positive, Text
from ..units import units_like

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from ..records import Record

    Value = Float[Array, "*batch"]
else:  # files are read, checked and listed without JAX; `_spec` makes the record
    Record, Value = object, float

Mma = Literal["mma.sync", "wgmma", "tcgen05", "systolic"]
MMA_KINDS: Final = get_args(Mma)
"""Matrix instructions of a GPU, a chain; last the arrays of chips that are no GPUs."""
Segment = Literal["datacenter", "workstation", "geforce"]


class NumberField(NamedTuple):
    """How one number of a file is checked and printed, and what it means.

    `sign`: "+" positive, "0" zero or positive, "any" finite. No chip has a value below
    `low` or above `high`, limits far from those that there are; where it is likely in
    another unit, first of all in `slip`, an error says so. `default`: what a file
    without the number means; None: every file has it. `step`: how much of it a designer
    adds at once, in a designer's unit; "": nobody adds any. `counted`: rounded to whole
    tiles, waves or CTAs, so that its gradient is a straight-through one.
    """

    unit: str
    what: str
    sign: str = "+"
    low: float = 0.0
    high: float = math.inf
    slip: str = ""
    default: float | None = None
    step: str = ""
    counted: bool = False

    @property
    def stepped(self) -> tuple[float, str, float]:
        """The step: number, unit, and in the unit of the field.

        >>> FIELDS["dram_bandwidth"].stepped
        (100.0, 'GB/s', 100000000000.0)
        """
        number, _, unit = self.step.partition(" ")
        factor = float(units_like(self.bare_unit).get(unit, 1))
        return float(number), unit, float(number) * factor

    @property
    def bare_unit(self) -> str:
        """Unit of a bare number, without what it is counted over.

        >>> FIELDS["l1_capacity"].bare_unit, FIELDS["link_bandwidth"].bare_unit
        ('B', 'B/s')
        """
        return self.unit.split(",")[0].removesuffix("/SM")

    def check(self, name: str, number: float):
        """Raises `ValueError` for a number that cannot be right, with the likely
        slip."""
        if not math.isfinite(number):
            raise ValueError(
                f"`{name}` is {number:g}; give a finite number ({self.unit})."
            )
        if self.sign == "+" and number <= 0 or self.sign == "0" and number < 0:
            least = "above zero" if self.sign == "+" else "zero or above"
            raise ValueError(
                f"`{name}` is {number:g}; allowed is any number {least} ({self.unit})."
            )
        if number and not self._plausible(abs(number)):
            raise ValueError(f"`{name}` is {number:g}{self._meant(number)}.")

    def _plausible(self, number: float) -> bool:
        # records hold numbers of 32 bit, 6e-8 beside those that were given
        return self.low * (1 - 1e-6) <= number <= self.high * (1 + 1e-6)

    def _meant(self, number: float) -> str:
        """The unit in which a number is likely given, the usual slip before others."""
        units = units_like(self.bare_unit)
        for unit in filter(None, (self.slip, *units)):
            meant = number * float(units[unit])
            if self._plausible(abs(meant)):
                return (
                    f", which looks like {unit}; give it in {self.bare_unit} "
                    f"({meant:g})"
                )
        return f"; allowed are {self.low:g} to {self.high:g} ({self.unit})"


def _tensor(dtype: str) -> NumberField:
    what = f"{dtype} on tensor cores; 0: not supported"
    unit, step = "FLOP/cycle/SM, dense", "256 FLOP/cycle/SM"
    return NumberField(unit, what, "0", high=1e8, step=step)


def _cycles(what: str) -> NumberField:
    unit = "cycles of the SM clock"
    return NumberField(unit, f"latency of {what}", high=1e5, step="-1 cycle")


def _watts(what: str, sign: str = "+", step: str = "") -> NumberField:
    return NumberField("W", what, sign, high=1e5, slip="mW", step=step)


CLOCK = NumberField("Hz", "a clock", low=1e7, high=1e11, slip="MHz")


# fmt: off
class GpuNumbers(Record):
    """Every number of a GPU file, in SI: the fields of `GpuSpec` but those that names
    decide. Rates are per cycle of the SM clock and per SM unless they say otherwise,
    those of tensor cores dense with fp32 accumulation."""

    num_sms: Annotated[Value, NumberField("count", "streaming multiprocessors",
        high=1e6, step="2 SMs", counted=True)]
    tensor_flop_per_cycle_tf32: Annotated[Value, _tensor("tf32")]
    tensor_flop_per_cycle_bf16: Annotated[Value, _tensor("bf16")]
    tensor_flop_per_cycle_fp16: Annotated[Value, _tensor("fp16")]
    tensor_flop_per_cycle_fp8: Annotated[Value, _tensor("fp8")]
    tensor_flop_per_cycle_int8: Annotated[Value, _tensor("int8")]
    tensor_flop_per_cycle_fp4: Annotated[Value, _tensor("fp4")]
    fma_flop_per_cycle_fp32: Annotated[Value, NumberField("FLOP/cycle/SM",
        "fp32 on CUDA cores", high=1e6, step="32 FLOP/cycle/SM")]
    fma_flop_per_cycle_fp64: Annotated[Value, NumberField("FLOP/cycle/SM",
        "fp64 on CUDA cores", high=1e6, step="32 FLOP/cycle/SM")]
    fp32_doubled: Annotated[Value, NumberField(
        "1: half of the fp32 lanes also do integers; 0: none",
        "1 on GA10x, AD10x, GB20x", "0", high=1.0)]
    sfu_ops_per_cycle: Annotated[Value, NumberField("op/cycle/SM", "special functions",
        high=1e6, step="4 op/cycle/SM")]
    issue_slots_per_cycle: Annotated[Value, NumberField("lane instructions/cycle/SM",
        "4 schedulers x 32 lanes = 128", high=1e6, step="32 lanes/cycle/SM")]
    smem_bytes_per_cycle: Annotated[Value, NumberField("B/cycle/SM",
        "rate of shared memory", high=1e7, step="32 B/cycle/SM")]
    smem_per_sm: Annotated[Value, NumberField("B", "shared memory of an SM", low=1e3,
        high=1e11, slip="KiB", step="16 KiB", counted=True)]
    registers_per_sm: Annotated[Value, NumberField("32-bit registers",
        "register file of an SM", low=2**10, high=2**24, step="16384 registers",
        counted=True)]
    max_threads_per_sm: Annotated[Value, NumberField("count", "most threads of an SM",
        low=32, high=2**16, step="256 threads", counted=True)]
    max_ctas_per_sm: Annotated[Value, NumberField("count", "most CTAs of an SM",
        low=1, high=2**10, step="8 CTAs", counted=True)]
    smem_reserved_per_cta: Annotated[Value, NumberField("B",
        "shared memory that a CTA takes for itself", "0", high=1e9)]
    warp_size: Annotated[Value, NumberField("lanes",
        "lanes of one instruction: 32, or 64 on AMD", low=8, high=256)]
    l1_capacity: Annotated[Value, NumberField("B/SM",
        "L1, with shared memory if one", low=1e3, high=1e11, slip="KiB", step="16 KiB")]
    fma_latency: Annotated[Value, _cycles("a dependent FMA")]
    smem_latency: Annotated[Value, _cycles("shared memory")]
    l1_latency: Annotated[Value, _cycles("L1")]
    l2_latency: Annotated[Value, _cycles("L2")]
    l2_capacity: Annotated[Value, NumberField("B", "L2 of the whole GPU", low=1e4,
        high=1e12, slip="MiB", step="1 MiB")]
    l2_bytes_per_cycle: Annotated[Value, NumberField(
        "B/cycle of the SM clock, whole GPU", "measured read rate of L2",
        high=1e8, step="256 B/cycle")]
    dram_capacity: Annotated[Value, NumberField("B", "DRAM", low=1e6, high=1e15,
        slip="GB")]
    dram_bandwidth: Annotated[Value, NumberField("B/s", "rate of DRAM at `mem_clock`",
        low=1e10, high=1e17, slip="GB/s", step="100 GB/s")]
    dram_latency: Annotated[Value, NumberField("s", "latency of DRAM", high=1e-3,
        slip="ns", step="-10 ns")]
    link_bandwidth: Annotated[Value, NumberField("B/s, one direction",
        "NVLink, else PCIe", low=1e9, high=1e15, slip="GB/s", step="50 GB/s")]
    sm_clock_min: Annotated[Value, CLOCK._replace(what="lowest SM clock")]
    sm_clock_max: Annotated[Value, CLOCK._replace(
        what="highest SM clock that is accepted", step="100 MHz")]
    sm_clock_applied_share: Annotated[Value, NumberField(
        "highest clock that is applied / sm_clock_max",
        "requests above it are cut to it", high=1.0, default=1.0)]
    sm_clock_step: Annotated[Value, NumberField("Hz", "between two SM clocks", low=1e4,
        high=1e11, slip="MHz")]
    mem_clock: Annotated[Value, CLOCK._replace(
        what="memory clock that `dram_bandwidth` belongs to", step="100 MHz")]
    tdp: Annotated[Value, _watts("default power limit", step="10 W")]
    power_limit_min: Annotated[Value, _watts("least power limit that can be set")]
    power_limit_max: Annotated[Value, _watts("highest power limit that can be set")]
    cap_fraction: Annotated[Value, NumberField("power held / limit set",
        # limiters of measured GPUs settle at 0.967 to 1.004 of the limit
        "what the limiter holds", low=0.5, high=1.2)]
    vf_floor_voltage: Annotated[Value, NumberField("V",
        "core voltage at low clocks, V0", high=10.0, slip="mV")]
    vf_knee_clock: Annotated[Value, CLOCK._replace(
        what="SM clock from which the voltage rises", step="100 MHz")]
    vf_slope: Annotated[Value, NumberField("V/Hz", "rise behind the knee", "0",
        high=1e-6, slip="V/GHz", step="-0.01 V/GHz")]
    vf_curvature: Annotated[Value, NumberField("V/Hz^2", "its curvature", "any",
        high=1e-12, slip="V/GHz^2")]
    vf_unlocked_slope: Annotated[Value, NumberField(
        "V/Hz, more while the memory clock is left alone",
        "on top of `vf_slope` (GeForce)", "0", high=1e-6, slip="V/GHz", default=0.0)]
    idle_constant: Annotated[Value, _watts("idle board and memory", "0", "-1 W")]
    idle_clock: Annotated[Value, NumberField("W/(V^2 Hz)", "idle clock tree", "0",
        high=1e-6, slip="W/(V^2 GHz)")]
    idle_leakage: Annotated[Value, NumberField("W/V^4", "leakage, cold board", "0",
        high=1e5)]
    thermal_resistance: Annotated[Value, NumberField("K/W", "chip to ambient air",
        # a passively cooled board of 75 W has about 1 K/W
        low=1e-4, high=3.0, step="-0.01 K/W")]
    ambient_temperature: Annotated[Value, NumberField("C", "ambient air", "any",
        high=1e3, step="-5 C")]
# fmt: on


FIELDS: Final[Mapping[str, NumberField]] = {
    name: hint.__metadata__[-1] for name, hint in GpuNumbers.__annotations__.items()
}
"""Every number of a file, by name."""


class GpuFile(msgspec.Struct, frozen=True):
    """Words and tables of a GPU file, beside its numbers."""

    name: Text
    architecture: Text
    mma: Mma
    memory: Text
    process_node: Text
    segment: Segment
    corrections: Text | None = None
    machine: Text = ""
    lane: Positive | None = None
    links: Text = ""
    aliases: list[Any] = []
    mem_clocks: list[Any] | None = None
    published: dict[str, Any] = {}
    physical: dict[str, Any] = {}
    provenance: dict[str, Any] = {}


WORDS: Final = GpuFile.__struct_fields__[:6]
"""Those that every file has."""
OPTIONAL: Final = GpuFile.__struct_fields__[6:]


def unstated(keys: Iterable[str]) -> dict[str, dict[str, str | int]]:
    """Provenance of the numbers that a file with the keys `keys` leaves out."""
    source: dict[str, str | int] = {
        "source": "not in the file: taken as one (a share) or none",
        "quality": "guess",
        "year": 2026,
    }
    present = set(keys)
    return {
        field: source
        for field, rule in FIELDS.items()
        if rule.default is not None and field not in present
    }
