"""`Corrections`: what is fitted, one constant a field, with its prior.

Centres and widths are published or fitted figures that `docs/physics.md` names;
every energy is stated at the floor voltage V0.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

import equinox as eqx
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float

Transform = Literal["positive", "share"]


def constant(
    centre: float, sd: float, unit: str, what: str, transform: Transform = "positive"
) -> Any:
    """Field with a prior: centre, sd of the log (of the logit for a share)."""
    return eqx.field(
        default=centre,
        converter=as_float,
        metadata={"sd": sd, "unit": unit, "what": what, "transform": transform},
    )


class Corrections(Record):
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
    depthwise_efficiency: Float[Array, "*batch"] = constant(
        0.1, 0.5, "-", "depthwise convolution rate / fp32 rate"
    )
    misalignment: Float[Array, "*batch"] = constant(
        0.8, 0.3, "-", "slow-down of GEMM main loops at odd sizes"
    )
    sharpness: Float[Array, "*batch"] = constant(
        10.0, 0.3, "-", "overlap of units inside an SM and with memory"
    )
    sharpness_stream: Float[Array, "*batch"] = constant(
        2.2, 0.2, "-", "overlap of SM side and DRAM in streaming kernels"
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
    # fused attention, prefill
    prefill_efficiency: Float[Array, "*batch"] = constant(
        0.9, 0.3, "-", "tensor-core rate in prefill attention", "share"
    )
    prefill_exp: Float[Array, "*batch"] = constant(
        1.94, 0.3, "-", "softmax cost / one exponential per element"
    )
    prefill_mask: Float[Array, "*batch"] = constant(
        0.62, 0.5, "-", "extra cost of an element in a masked block"
    )
    prefill_feed: Float[Array, "*batch"] = constant(
        129.0, 0.5, "B/cycle/SM", "loads of K and V into shared memory"
    )
    prefill_own: Float[Array, "*batch"] = constant(
        1205.0, 0.4, "cycles", "start and end of a prefill tile"
    )
    prefill_query: Float[Array, "*batch"] = constant(
        10.5, 0.4, "B/cycle/SM", "load of Q and store of O"
    )
    prefill_fill: Float[Array, "*batch"] = constant(
        0.39, 0.4, "-", "share of the first block that nothing overlaps"
    )
    prefill_sharpness: Float[Array, "*batch"] = constant(
        4.1, 0.3, "-", "overlap of matrix, softmax and loads"
    )
    prefill_serial: Float[Array, "*batch"] = constant(
        1.5, 0.3, "-", "the same where matrix and softmax take turns"
    )
    prefill_query_fast: Float[Array, "*batch"] = constant(
        0.64, 0.3, "-", "time of Q and O with 4, 8 or 16 query heads a KV head"
    )
    prefill_quantization: Float[Array, "*batch"] = constant(
        0.77, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    prefill_tail: Float[Array, "*batch"] = constant(
        0.4, 0.5, "-", "list-schedule tail of unequal tiles"
    )
    prefill_cycles: Float[Array, "*batch"] = constant(
        7000.0, 0.4, "cycles", "launch cost of prefill attention beyond a launch"
    )
    prefill_schedule: Float[Array, "*batch"] = constant(
        12e-9, 0.5, "s", "scheduling kernel, per sequence"
    )
    # fused attention, decode
    decode_efficiency: Float[Array, "*batch"] = constant(
        0.8, 0.3, "-", "tensor-core rate in decode attention", "share"
    )
    decode_exp: Float[Array, "*batch"] = constant(
        0.94, 0.3, "-", "softmax cost / one exponential per element"
    )
    decode_own: Float[Array, "*batch"] = constant(
        1995.0, 0.4, "cycles", "start and end of a decode tile"
    )
    decode_own_head: Float[Array, "*batch"] = constant(
        19.1, 0.5, "cycles", "the same, per element of head_dim"
    )
    decode_own_fp8: Float[Array, "*batch"] = constant(
        0.84, 0.4, "-", "the same, fp8 / bf16"
    )
    decode_own_local: Float[Array, "*batch"] = constant(
        3000.0, 0.4, "cycles", "extra start of a decode tile with a window"
    )
    decode_cycles_local: Float[Array, "*batch"] = constant(
        1700.0, 0.5, "cycles", "extra launch of decode with a window"
    )
    decode_flow: Float[Array, "*batch"] = constant(
        200.0, 0.5, "B/cycle/SM", "flow of K and V into one SM in decode attention"
    )
    decode_sharpness: Float[Array, "*batch"] = constant(
        4.0, 0.4, "-", "overlap of matrix, softmax and loads in decode attention"
    )
    decode_serial: Float[Array, "*batch"] = constant(
        1.2, 0.3, "-", "the same where matrix and softmax take turns"
    )
    decode_quantization: Float[Array, "*batch"] = constant(
        0.48, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    decode_cycles: Float[Array, "*batch"] = constant(
        6000.0, 0.4, "cycles", "launch cost of decode attention beyond a launch"
    )
    decode_schedule: Float[Array, "*batch"] = constant(
        20e-9, 0.5, "s", "scheduling kernel, per sequence"
    )
    transpose_rate: Float[Array, "*batch"] = constant(
        5.4, 0.5, "elements/cycle/SM", "transposition of fp8 V in shared memory"
    )
    # mixture of experts
    moe_efficiency: Float[Array, "*batch"] = constant(
        0.67, 0.3, "-", "tensor-core rate of grouped expert GEMM, 16 bits", "share"
    )
    moe_efficiency_fp8: Float[Array, "*batch"] = constant(
        0.93, 0.5, "-", "the same, fp8", "share"
    )
    moe_efficiency_block: Float[Array, "*batch"] = constant(
        0.38, 0.3, "-", "the same, block-scaled fp8", "share"
    )
    moe_feed: Float[Array, "*batch"] = constant(
        56.0, 0.3, "B/cycle/SM", "tile loads of grouped GEMM that one SM sustains"
    )
    moe_flow: Float[Array, "*batch"] = constant(
        11.0, 0.4, "B/cycle", "DRAM rate of one CTA of a grouped GEMM"
    )
    moe_sharpness: Float[Array, "*batch"] = constant(
        4.8, 0.2, "-", "overlap of units inside an SM in grouped GEMM"
    )
    moe_sharpness_memory: Float[Array, "*batch"] = constant(
        2.4, 0.2, "-", "overlap of SM side and DRAM in grouped GEMM"
    )
    moe_own: Float[Array, "*batch"] = constant(
        2000.0, 0.4, "cycles", "start and end of a grouped-GEMM tile"
    )
    moe_quantization: Float[Array, "*batch"] = constant(
        0.6, 0.5, "-", "share of a part-filled wave that is paid", "share"
    )
    moe_empty: Float[Array, "*batch"] = constant(
        105.0, 0.4, "cycles", "CTA of a grouped GEMM that finds no rows"
    )
    moe_misaligned: Float[Array, "*batch"] = constant(
        22.0, 0.4, "-", "slow-down of 16-bit loads where k is no multiple of 16"
    )
    moe_stream: Float[Array, "*batch"] = constant(
        18.5, 0.3, "B/cycle/SM", "rate of one SM in kernels over a layer's rows"
    )
    moe_quantise: Float[Array, "*batch"] = constant(
        1.0, 0.3, "-", "time of a byte in fp8 quantisation / in other kernels"
    )
    moe_quantise_block: Float[Array, "*batch"] = constant(
        4.2, 0.3, "-", "the same, block-scaled fp8"
    )
    moe_cycles: Float[Array, "*batch"] = constant(
        2e4, 0.3, "cycles", "small kernels of a layer beyond a launch, 16 bits"
    )
    moe_cycles_fp8: Float[Array, "*batch"] = constant(
        2.8e4, 0.3, "cycles", "the same, fp8"
    )
    moe_cycles_block: Float[Array, "*batch"] = constant(
        4.3e4, 0.3, "cycles", "the same, block-scaled fp8"
    )
    moe_sorting: Float[Array, "*batch"] = constant(
        1.15e4, 0.4, "cycles", "sorting of tokens by expert, once"
    )
    moe_align: Float[Array, "*batch"] = constant(
        0.6e-9, 0.5, "s", "sorting of tokens by expert, per row"
    )
    moe_expert: Float[Array, "*batch"] = constant(
        1.6e-9, 0.5, "s", "sorting of tokens by expert, per expert"
    )
    moe_load_energy: Float[Array, "*batch"] = constant(
        27e-12, 0.4, "J/B", "tile loads of grouped GEMM beyond L2 and shared memory"
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
