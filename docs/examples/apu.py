"""Prints the file of a made-up APU, from its data sheet: two dies, one memory for CPU
and GPU."""

import dataclasses

from diffenergy.hardware import gpu_toml, read_gpu

COUNT, CLOCK = 40, 2.9e9  # compute units and their highest clock, Hz
SHEET = {
    "num_sms": COUNT,
    "sm_clock_max": CLOCK,
    # dense FLOP/s / compute units / clock
    "tensor_flop_per_cycle_tf32": 0,
    "tensor_flop_per_cycle_bf16": 59.4e12 / COUNT / CLOCK,
    "tensor_flop_per_cycle_fp16": 59.4e12 / COUNT / CLOCK,
    "tensor_flop_per_cycle_int8": 118.8e12 / COUNT / CLOCK,
    "fma_flop_per_cycle_fp32": 29.7e12 / COUNT / CLOCK,
    "dram_bandwidth": 256e9,  # of the whole chip: the CPU takes its part of it
    "dram_capacity": 96e9,  # what the GPU may use of 128 GB
    "l2_capacity": 32e6,  # the last cache before DRAM
    "l2_bytes_per_cycle": 320,
    "link_bandwidth": 16e9,  # PCIe 4 x8
    "tdp": 105,  # 120 W of the package less 15 W of idle CPU cores
    "power_limit_min": 45,
    "power_limit_max": 105,
    "idle_constant": 12,
    "idle_clock": 1e-9,
    "idle_leakage": 3,
    # no curve is published: flat to 0.75 of the clock, then a quarter up
    "vf_floor_voltage": 0.7,
    "vf_knee_clock": 0.75 * CLOCK,
    "vf_slope": 0.5 * 0.175 / (0.25 * CLOCK),
    "vf_curvature": 0.5 * 0.175 / (0.25 * CLOCK) ** 2,
}
GUESSED = ("idle_constant", "idle_clock", "idle_leakage", "vf_knee_clock", "vf_slope")

like = read_gpu("rtx-a4000")  # what the sheet does not say
known = {"source": "data sheet", "quality": "datasheet", "year": 2026}
guess = {"source": "set", "quality": "guess", "year": 2026}
card = dataclasses.replace(
    like,
    name="apu",
    architecture="APU1",
    memory="LPDDR5X",
    process_node="6nm/4NP",  # base die / compute die
    corrections=None,
    aliases=(),
    published={"bf16": {"flops": 59.4e12, "clock": CLOCK}},
    physical={"num_dies": 2},
    values={**like.values, **{name: float(x) for name, x in SHEET.items()}},
    provenance={
        **like.provenance,
        **{name: guess if name in GUESSED else known for name in SHEET},
    },
)
print(gpu_toml(card))
