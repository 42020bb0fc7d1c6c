"""GPUs that nobody has measured, as a user would describe them."""

import dataclasses

from diffenergy.hardware import GpuCard, read_gpu


def rubin(**words: str) -> GpuCard:
    """A Rubin-like GPU: a B300 with the announced numbers (NVIDIA, CES 2026), 174 W
    idle (336e9 transistors, 8 stacks) and a voltage that rises by a quarter from 0.75
    of the top clock on; `words`: other names than those of Rubin."""
    b300 = read_gpu("b300")
    values = dict(b300.values)
    more = 224 / values["num_sms"]
    values["l2_capacity"] *= more
    values |= {
        "num_sms": 224.0,
        "tensor_flop_per_cycle_fp4": 65536.0,
        "tensor_flop_per_cycle_fp8": 32768.0,
        "sm_clock_max": 2.38e9,
        "dram_bandwidth": 22e12,
        "dram_capacity": 288e9,
        "l2_bytes_per_cycle": 16400.0,
        "link_bandwidth": 1.8e12,
        "tdp": 1800.0,
        "power_limit_max": 1800.0,
        "idle_constant": 144.0,
        "idle_clock": 1e-8,
        "idle_leakage": 20.0,
        "vf_knee_clock": 0.75 * 2.38e9,
        "vf_slope": 0.5 * 0.25 * 0.7 / (0.25 * 2.38e9),
        "vf_curvature": 0.5 * 0.25 * 0.7 / (0.25 * 2.38e9) ** 2,
    }
    named = {
        "name": "r100",
        "architecture": "Rubin",
        "memory": "HBM4",
        "process_node": "N3P",
        **words,
    }
    physical = {"num_dies": 2, "dram_stacks": 8, "transistors": 3.36e11}
    return dataclasses.replace(
        b300, values=values, physical=physical, published={}, aliases=(),
        corrections=None, machine="", links="", **named,
    )  # fmt: skip
