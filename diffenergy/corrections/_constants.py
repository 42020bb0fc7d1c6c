"""`Corrections`: what is fitted, one constant a field, with its prior.

Centres and widths are published or fitted figures that `docs/physics.md` names;
every energy is stated at the floor voltage V0.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from jax import Array
from jaxtyping import Float

from ._constant import constant
from ._kernel_constants import Attention, Experts, GivenTiles, Programs


class Corrections(Attention, Experts, GivenTiles, Programs):
    """Constants of the model for one GPU (or a batch of them); defaults are priors."""

    # rates and overlap
    tensor_efficiency: Float[Array, "*batch"] = constant(
        0.95, 0.6, "-", "tensor-core rate reached / data sheet", "share"
    )
    tf32_efficiency: Float[Array, "*batch"] = constant(0.8, 0.1, "-", "tf32 / bf16")
    fp8_efficiency: Float[Array, "*batch"] = constant(0.95, 0.15, "-", "fp8 / bf16")
    fp8_block_efficiency: Float[Array, "*batch"] = constant(
        0.8, 0.2, "-", "block-scaled fp8 / bf16"
    )
    operand_half_tile: Float[Array, "*batch"] = constant(
        10.0,
        0.15,
        "elements",
        "tile side that halves the operand feed at 4096 B/cycle of operands",
    )
    sm_feed: Float[Array, "*batch"] = constant(
        75.0, 0.3, "B/cycle/SM", "tile loads that one SM sustains"
    )
    tile_load_scale: Float[Array, "*batch"] = constant(
        2.1, 0.1, "-", "tile loads served per L2 read (loads shared by CTAs)"
    )
    fma_efficiency: Float[Array, "*batch"] = constant(
        0.96, 0.6, "-", "CUDA-core rate reached / data sheet", "share"
    )
    fp32_dual: Float[Array, "*batch"] = constant(
        0.65, 0.05, "-", "usable share of the doubled fp32 rate (GA10x, Ada)"
    )
    fma_step_cycles: Float[Array, "*batch"] = constant(
        450.0, 0.4, "cycles", "critical path of a CUDA-core main-loop step of 8"
    )
    # memory
    l2_efficiency: Float[Array, "*batch"] = constant(
        0.85, 0.5, "-", "L2 rate reached / measured rate", "share"
    )
    l2_share: Float[Array, "*batch"] = constant(
        0.6, 0.3, "-", "usable share of L2 for operands", "share"
    )
    l2_producer_share: Float[Array, "*batch"] = constant(
        0.4, 0.3, "-", "usable share of L2 for a producer's output", "share"
    )
    l2_sharpness: Float[Array, "*batch"] = constant(2.5, 0.2, "-", "edge of L2 misses")
    wave_traffic: Float[Array, "*batch"] = constant(
        1.0, 0.2, "-", "re-reads between waves of tiles / ideal block order"
    )
    dram_efficiency: Float[Array, "*batch"] = constant(
        0.92, 0.4, "-", "DRAM rate reached / data sheet", "share"
    )
    in_flight: Float[Array, "*batch"] = constant(
        45.0, 0.3, "B/cycle/SM", "DRAM rate of one SM at 228 KiB shared memory"
    )
    stream_feed: Float[Array, "*batch"] = constant(
        18.4, 0.15, "B/cycle/SM", "rate of one SM in streaming kernels"
    )
    reduction_reads: Float[Array, "*batch"] = constant(
        1.5, 0.5, "-", "extra reads of a row in softmax and norms"
    )
    reduction_latency: Float[Array, "*batch"] = constant(
        4.0, 0.5, "-", "critical path of a row / DRAM latency"
    )
    # per launch, per tile
    launch_seconds: Float[Array, "*batch"] = constant(
        1.2e-6, 0.3, "s", "launch cost that no clock changes"
    )
    launch_cycles: Float[Array, "*batch"] = constant(
        2000.0, 0.5, "cycles", "launch cost that follows the SM clock"
    )
    gemm_cycles: Float[Array, "*batch"] = constant(
        3000.0, 0.5, "cycles", "cost of a library GEMM beyond its tiles"
    )
    gemm_eager: Float[Array, "*batch"] = constant(
        3.0, 0.5, "-", "the same in eager passes / in a loop of one kernel"
    )
    own_cycles: Float[Array, "*batch"] = constant(
        1200.0, 0.5, "cycles", "first fill and epilogue of a tile, alone on its SM"
    )
    step_cycles: Float[Array, "*batch"] = constant(
        120.0, 0.5, "cycles", "critical path of a tensor main-loop step of 128 B"
    )
    store_exposed: Float[Array, "*batch"] = constant(
        0.9, 0.3, "-", "share of a store that no other tile hides (mma.sync)", "share"
    )
    split_cycles: Float[Array, "*batch"] = constant(
        2000.0, 0.5, "cycles", "split-K reduction beyond its launch"
    )
    choice_tau: Float[Array, "*batch"] = constant(
        0.03, 0.3, "-", "spread in ln t of a library's tile choice, tensor cores"
    )
    choice_tau_fma: Float[Array, "*batch"] = constant(
        0.1, 0.3, "-", "the same on CUDA cores"
    )
    choice_split: Float[Array, "*batch"] = constant(
        2.0, 0.5, "-", "reluctance to split K: weight s^-x"
    )
    # host
    dispatch_stream: Float[Array, "*batch"] = constant(
        15e-6, 0.3, "s", "host time of one streaming operator"
    )
    dispatch_matrix: Float[Array, "*batch"] = constant(
        25e-6, 0.3, "s", "host time of one matrix operator"
    )
    dispatch_module: Float[Array, "*batch"] = constant(
        7e-6, 0.5, "s", "host time of one module call"
    )
    dispatch_pass: Float[Array, "*batch"] = constant(
        1e-3, 0.5, "s", "host time of one forward pass"
    )
    # energies, all at the floor voltage V0
    energy_tensor: Float[Array, "*batch"] = constant(
        0.45e-12, 0.3, "J/FLOP", "bf16 tensor FLOP, operands included"
    )
    energy_tf32: Float[Array, "*batch"] = constant(2.6, 0.2, "-", "tf32 / bf16")
    energy_fp8: Float[Array, "*batch"] = constant(0.65, 0.2, "-", "fp8 / bf16")
    energy_fma: Float[Array, "*batch"] = constant(
        5e-12, 0.3, "J/FLOP", "fp32 FLOP on CUDA cores"
    )
    energy_sfu: Float[Array, "*batch"] = constant(3.5e-12, 0.6, "J", "special function")
    energy_issue: Float[Array, "*batch"] = constant(
        8e-12, 0.5, "J", "lane instruction of streaming kernels"
    )
    energy_smem: Float[Array, "*batch"] = constant(0.5e-12, 0.7, "J/B", "shared memory")
    energy_l2: Float[Array, "*batch"] = constant(
        8e-12, 0.4, "J/B", "L2, network and SM path"
    )
    energy_dram: Float[Array, "*batch"] = constant(
        75e-12, 0.2, "J/B", "DRAM and its interface (own rail), HBM2"
    )
    energy_link: Float[Array, "*batch"] = constant(
        60e-12, 0.5, "J/B", "NVLink, 5-10 pJ/bit"
    )
    energy_launch: Float[Array, "*batch"] = constant(
        1e-6, 1.0, "J", "launch; no study saw it"
    )
    energy_tile: Float[Array, "*batch"] = constant(
        1e-9, 1.0, "J", "CTA; no study saw it"
    )
    core_energy: Float[Array, "*batch"] = constant(
        1.0, 0.2, "-", "factor on all core energies (process, design)"
    )
    dynamic_energy: Float[Array, "*batch"] = constant(
        1.0, 0.2, "-", "factor on all core and DRAM energies (five readings)"
    )
    sm_clock_energy: Float[Array, "*batch"] = constant(
        0.2e-9, 0.5, "J/cycle", "clock tree and issue of an SM that holds CTAs"
    )
    leakage: Float[Array, "*batch"] = constant(
        0.008, 0.5, "1/TDP", "leakage at 40 C and V0 beyond the cold idle table"
    )
    leakage_efold: Float[Array, "*batch"] = constant(13.0, 0.15, "K", "e-fold")
    memory_idle: Float[Array, "*batch"] = constant(
        0.6, 1.0, "-", "share of constant idle power that follows the memory", "share"
    )
    voltage_knee: Float[Array, "*batch"] = constant(
        1.0, 0.1, "-", "clock at which the voltage rises / that of the GPU file"
    )
    voltage_slope: Float[Array, "*batch"] = constant(
        1.0, 0.4, "-", "rise of the voltage behind it / that of the GPU file"
    )
    voltage_curvature: Float[Array, "*batch"] = constant(
        1.0, 0.4, "-", "its curvature / that of the GPU file"
    )
    zero_saving: Float[Array, "*batch"] = constant(
        0.14, 0.3, "-", "energy saved by operands that are half zeros"
    )
    idle_scale: Float[Array, "*batch"] = constant(
        1.0, 0.05, "-", "idle power / that of the GPU file"
    )


CONSTANTS: Final[Mapping[str, dataclasses.Field[Any]]] = {
    field.name: field for field in dataclasses.fields(Corrections)
}


def centre(constant: str) -> float:
    """Prior centre of a global constant."""
    default: Any = CONSTANTS[constant].default
    return default


def is_share(constant: str) -> bool:
    """Whether a constant lives in (0, 1)."""
    return CONSTANTS[constant].metadata["transform"] == "share"
