"""Constants of single kernel classes; `Corrections` has them all."""

from jax import Array
from jaxtyping import Float

from ..records import Record
from ._constant import constant


class Attention(Record):
    """Fused attention kernels."""

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


class Experts(Record):
    """Mixtures of experts."""

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


class GivenTiles(Record):
    """CUDA-core matrix products in tiles that the caller knows."""

    # CUDA-core matrix products whose tile is given
    simt_issue: Float[Array, "*batch"] = constant(
        1.0, 0.05, "-", "instructions per issue slot of the GPU file (dual issue)"
    )
    simt_smem: Float[Array, "*batch"] = constant(
        1.0, 0.5, "-", "cost of a shared-memory wavefront / one cycle at full rate"
    )
    simt_loop: Float[Array, "*batch"] = constant(
        6.0, 0.5, "-", "loop and address instructions of a warp and main-loop step"
    )
    simt_path: Float[Array, "*batch"] = constant(
        1.2, 0.5, "-", "critical path of a step / its load and dependent FMA"
    )
    simt_start: Float[Array, "*batch"] = constant(
        6.0, 0.4, "-", "first fill of a CTA / L2 latency"
    )
    simt_drift: Float[Array, "*batch"] = constant(
        0.012, 0.7, "-", "spread along k of the CTAs of a wave / k"
    )
    simt_sharpness: Float[Array, "*batch"] = constant(
        4.0, 0.4, "-", "overlap inside an SM and with L2"
    )
    simt_sharpness_memory: Float[Array, "*batch"] = constant(
        4.0, 0.4, "-", "overlap of SM side and DRAM"
    )
    # hand-made CUDA-core tiles, nothing double-buffered
    tiled_fma: Float[Array, "*batch"] = constant(
        0.95, 0.1, "-", "fp32 rate reached / data sheet"
    )
    tiled_issue: Float[Array, "*batch"] = constant(
        1.0, 0.3, "-", "instructions per issue slot of the GPU file (dual issue)"
    )
    tiled_smem: Float[Array, "*batch"] = constant(
        1.0, 0.4, "-", "cycles of a shared-memory wavefront"
    )
    tiled_broadcast: Float[Array, "*batch"] = constant(
        0.5, 0.5, "-", "least cycles of a broadcast load, per word of its width"
    )
    tiled_l1: Float[Array, "*batch"] = constant(
        1.2, 0.5, "-", "cycles of an L1 wavefront"
    )
    tiled_staging_store: Float[Array, "*batch"] = constant(
        1.0, 0.5, "-", "stores of staging / shared-memory wavefronts"
    )
    tiled_staging_load: Float[Array, "*batch"] = constant(
        1.0, 0.7, "-", "loads of staging / L1 wavefronts"
    )
    tiled_loop: Float[Array, "*batch"] = constant(
        3.0, 0.7, "-", "loop instructions of a warp per element of k"
    )
    tiled_address: Float[Array, "*batch"] = constant(
        2.0, 0.7, "-", "address instructions of a load from L1"
    )
    tiled_staging_address: Float[Array, "*batch"] = constant(
        3.0, 0.7, "-", "the same of a load that stages"
    )
    tiled_latency: Float[Array, "*batch"] = constant(
        0.5, 0.7, "-", "exposed part of a load's latency per element of k"
    )
    tiled_staging_latency: Float[Array, "*batch"] = constant(
        1.5, 0.7, "-", "latency of staging / idle L2 latency"
    )
    tiled_dependence: Float[Array, "*batch"] = constant(
        0.25, 0.5, "-", "time between two instructions of a warp / FMA latency"
    )
    tiled_spill: Float[Array, "*batch"] = constant(
        2.0, 0.7, "-", "wavefronts of an access to a spilled register"
    )
    tiled_l2: Float[Array, "*batch"] = constant(
        0.82, 0.4, "-", "L2 rate reached / that of other kernels"
    )
    tiled_camping: Float[Array, "*batch"] = constant(
        1.0, 0.5, "-", "cost of few L2 channels at once (AMD)"
    )
    tiled_sharpness: Float[Array, "*batch"] = constant(
        3.0, 0.5, "-", "overlap inside an SM and with memory"
    )
    tiled_clock: Float[Array, "*batch"] = constant(
        1.0, 0.08, "-", "clock sustained / predicted"
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


class Programs(Record):
    """Programs known by their activities alone."""

    activity_sharpness: Float[Array, "*batch"] = constant(
        2.7, 0.2, "-", "overlap of the core and the memory part of a program"
    )
    activity_dram: Float[Array, "*batch"] = constant(
        0.78,
        0.4,
        "-",
        "DRAM activity that a counter shows of a saturated DRAM",
        "share",
    )
    activity_fp64: Float[Array, "*batch"] = constant(
        0.5, 0.5, "-", "energy of busy fp64 pipes / of busy fp32 pipes"
    )
    activity_branch: Float[Array, "*batch"] = constant(
        0.4, 0.5, "-", "energy of a branch / of an integer instruction"
    )
    memory_knee: Float[Array, "*batch"] = constant(
        0.5, 0.5, "-", "SM clock below which DRAM follows it / the highest"
    )
