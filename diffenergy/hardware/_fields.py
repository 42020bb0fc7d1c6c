"""What a GPU file holds: its numbers with units and ranges, its words."""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

MMA_KINDS: Final = ("mma.sync", "wgmma", "tcgen05")
"""Matrix instructions of a GPU."""
ARCHITECTURES: Final = (
    "Kepler",
    "Maxwell",
    "Pascal",
    "Volta",
    "GCN",
    "Turing",
    "Ampere",
    "CDNA",
    "Ada",
    "Hopper",
    "Blackwell",
    "CDNA3",
)
"""Architectures in order of appearance."""
MEMORIES: Final = (
    "GDDR5",
    "GDDR5X",
    "GDDR6",
    "GDDR6X",
    "GDDR7",
    "HBM2",
    "HBM2e",
    "HBM3",
    "HBM3e",
)
SEGMENTS: Final = ("datacenter", "workstation", "geforce")


class NumberField(NamedTuple):
    """How one number of a file is checked and printed.

    `sign`: "+" positive, "0" zero or positive, "any" finite. A value below `low` or
    above `high` is surely in `slip` instead of `unit`. `default`: what a file without
    the number means; None: every file has it.
    """

    unit: str
    sign: str = "+"
    low: float = 0.0
    high: float = math.inf
    slip: str = ""
    default: float | None = None


_RATE = NumberField("FLOP/cycle/SM, dense", "0")
CLOCK = NumberField("Hz", low=1e7, slip="MHz")

FIELDS: Final = {
    "num_sms": NumberField("count"),
    "tensor_flop_per_cycle_tf32": _RATE,
    "tensor_flop_per_cycle_bf16": _RATE,
    "tensor_flop_per_cycle_fp16": _RATE,
    "tensor_flop_per_cycle_fp8": _RATE,
    "tensor_flop_per_cycle_int8": _RATE,
    "tensor_flop_per_cycle_fp4": _RATE,
    "fma_flop_per_cycle_fp32": NumberField("FLOP/cycle/SM"),
    "fma_flop_per_cycle_fp64": NumberField("FLOP/cycle/SM"),
    "fp32_doubled": NumberField(
        "1: half of the fp32 lanes also do integers; 0: none", "0"
    ),
    "sfu_ops_per_cycle": NumberField("op/cycle/SM"),
    "issue_slots_per_cycle": NumberField("lane instructions/cycle/SM"),
    "smem_bytes_per_cycle": NumberField("B/cycle/SM"),
    "smem_per_sm": NumberField("B", low=1e3, slip="KiB"),
    "registers_per_sm": NumberField("32-bit registers"),
    "max_threads_per_sm": NumberField("count"),
    "max_ctas_per_sm": NumberField("count"),
    "smem_reserved_per_cta": NumberField("B", "0"),
    "warp_size": NumberField("lanes"),
    "l1_capacity": NumberField("B/SM", low=1e3, slip="KiB"),
    "fma_latency": NumberField("cycles of the SM clock"),
    "smem_latency": NumberField("cycles of the SM clock"),
    "l1_latency": NumberField("cycles of the SM clock"),
    "l2_latency": NumberField("cycles of the SM clock"),
    "l2_capacity": NumberField("B", low=1e4, slip="MiB"),
    "l2_bytes_per_cycle": NumberField("B/cycle of the SM clock, whole GPU"),
    "dram_capacity": NumberField("B", low=1e6, slip="GB"),
    "dram_bandwidth": NumberField("B/s", low=1e9, slip="GB/s"),
    "dram_latency": NumberField("s", high=1e-3, slip="ns"),
    "link_bandwidth": NumberField("B/s, one direction", low=1e9, slip="GB/s"),
    "sm_clock_min": CLOCK,
    "sm_clock_max": CLOCK,
    "sm_clock_applied_share": NumberField(
        "highest clock that is applied / sm_clock_max", default=1.0
    ),
    "sm_clock_step": NumberField("Hz", low=1e4, slip="MHz"),
    "mem_clock": CLOCK,
    "tdp": NumberField("W", high=1e5, slip="mW"),
    "power_limit_min": NumberField("W", high=1e5, slip="mW"),
    "power_limit_max": NumberField("W", high=1e5, slip="mW"),
    "cap_fraction": NumberField("power held / limit set"),
    "vf_floor_voltage": NumberField("V", high=10.0, slip="mV"),
    "vf_knee_clock": CLOCK,
    "vf_slope": NumberField("V/Hz", "0", high=1e-6, slip="V/GHz"),
    "vf_curvature": NumberField("V/Hz^2", "any", high=1e-12, slip="V/GHz^2"),
    "vf_unlocked_slope": NumberField(
        "V/Hz more while the memory clock is left alone",
        "0",
        high=1e-6,
        slip="V/GHz",
        default=0.0,
    ),
    "idle_constant": NumberField("W", "0", high=1e5, slip="mW"),
    "idle_clock": NumberField("W/(V^2 Hz)", "0", high=1e-6, slip="W/(V^2 GHz)"),
    "idle_leakage": NumberField("W/V^4", "0"),
    "leakage_scale": NumberField("silicon / what is usual for tdp", default=1.0),
    "thermal_resistance": NumberField("K/W"),
    "ambient_temperature": NumberField("C", "any"),
}
"""Every number of a file: the fields of `GpuSpec` but those that names decide."""

WORDS: Final = (
    "name",
    "architecture",
    "mma",
    "memory",
    "process_node",
    "segment",
)
OPTIONAL: Final = (
    "corrections",
    "aliases",
    "mem_clocks",
    "published",
    "physical",
    "provenance",
)


def unstated(keys: Iterable[str]) -> dict[str, dict[str, str | int]]:
    """Provenance of the numbers that a file with the keys `keys` leaves out."""
    source: dict[str, str | int] = {
        "source": "not in the file: taken as one (a share) or none",
        "quality": "guess",
        "year": 2026,
    }
    given = set(keys)
    return {
        field: source
        for field, rule in FIELDS.items()
        if rule.default is not None and field not in given
    }
