"""Constants of single classes of kernels, one row a constant; see `Corrections`."""

from ..records import Record
from ._constant import (
    FREE,
    NO_PLANS,
    Number,
    activity,
    attention,
    constant,
    decode,
    library,
    moe,
    prefill,
    simt,
    tiled,
)


# fmt: off
class KernelConstants(Record):
    """Programs, CUDA-core tiles, mixtures of experts, fused attention."""

    # programs known by their activities alone
    activity_sharpness: Number = activity(2.7, 0.2, "-",
        "overlap of the core and the memory part of a program")
    activity_dram: Number = activity(0.78, 0.4, "-",
        "DRAM activity that a counter shows of a saturated DRAM", share=True)
    activity_fp64: Number = activity(0.5, 0.5, "-",
        "energy of busy fp64 pipes / of busy fp32 pipes")
    activity_branch: Number = activity(0.4, 0.5, "-",
        "energy of a branch / of an integer instruction")
    memory_knee: Number = activity(0.5, 0.5, "-",
        "SM clock below which DRAM follows it / the highest",
        closes="one copy of at least 1 GB at 8 SM clocks, half of them low")
    # CUDA-core matrix products whose tile is given
    simt_issue: Number = simt(1.0, 0.05, "-",
        "instructions per issue slot of the GPU file (dual issue)")
    simt_smem: Number = simt(1.0, 0.5, "-",
        "cost of a shared-memory wavefront / one cycle at full rate")
    simt_loop: Number = simt(6.0, 0.5, "-",
        "loop and address instructions of a warp and main-loop step")
    simt_path: Number = simt(1.2, 0.5, "-",
        "critical path of a step / its load and dependent FMA")
    simt_start: Number = simt(6.0, 0.4, "-", "first fill of a CTA / L2 latency")
    simt_drift: Number = simt(0.012, 0.7, "-",
        "spread along k of the CTAs of a wave / k")
    simt_sharpness: Number = simt(4.0, 0.4, "-", "overlap inside an SM and with L2")
    simt_sharpness_memory: Number = simt(4.0, 0.4, "-", "overlap of SM side and DRAM")
    # hand-made CUDA-core tiles, nothing double-buffered
    tiled_fma: Number = tiled(0.95, 0.1, "-", "fp32 rate reached / data sheet")
    tiled_issue: Number = tiled(1.0, 0.3, "-",
        "instructions per issue slot of the GPU file (dual issue)")
    tiled_smem: Number = tiled(1.0, 0.4, "-", "cycles of a shared-memory wavefront",
        levels=(*FREE, "architecture:GCN"))
    tiled_broadcast: Number = tiled(0.5, 0.5, "-",
        "least cycles of a broadcast load, per word of its width")
    tiled_l1: Number = tiled(1.2, 0.5, "-", "cycles of an L1 wavefront",
        levels=(*FREE, "architecture:Kepler", "architecture:GCN"))
    tiled_staging_store: Number = tiled(1.0, 0.5, "-",
        "stores of staging / shared-memory wavefronts")
    tiled_staging_load: Number = tiled(1.0, 0.7, "-",
        "loads of staging / L1 wavefronts")
    tiled_loop: Number = tiled(3.0, 0.7, "-",
        "loop instructions of a warp per element of k")
    tiled_address: Number = tiled(2.0, 0.7, "-",
        "address instructions of a load from L1")
    tiled_staging_address: Number = tiled(3.0, 0.7, "-",
        "the same of a load that stages")
    tiled_latency: Number = tiled(0.5, 0.7, "-",
        "exposed part of a load's latency per element of k")
    tiled_staging_latency: Number = tiled(1.5, 0.7, "-",
        "latency of staging / idle L2 latency")
    tiled_dependence: Number = tiled(0.25, 0.5, "-",
        "time between two instructions of a warp / FMA latency")
    tiled_spill: Number = tiled(2.0, 0.7, "-",
        "wavefronts of an access to a spilled register")
    tiled_l2: Number = tiled(0.82, 0.4, "-", "L2 rate reached / that of other kernels")
    tiled_camping: Number = tiled(1.0, 0.5, "-",
        "cost of few L2 channels at once (AMD)")
    tiled_sharpness: Number = tiled(3.0, 0.5, "-",
        "overlap inside an SM and with memory")
    tiled_clock: Number = tiled(1.0, 0.08, "-", "clock sustained / predicted",
        levels=("gpu",))
    # other products, overlap
    depthwise_efficiency: Number = constant(0.1, 0.5, "-",
        "depthwise convolution rate / fp32 rate",
        "depthwise convolutions of several sizes", rows=NO_PLANS,
        source="Convolution")
    misalignment: Number = library(0.8, 0.3, "-",
        "slow-down of GEMM main loops at odd sizes", "GEMM with odd N and K")
    sharpness: Number = constant(10.0, 0.3, "-",
        "overlap of units inside an SM and with memory",
        "GEMM near the ridge, where math and memory take equal time", source="Timeline")
    sharpness_stream: Number = constant(2.2, 0.2, "-",
        "overlap of SM side and DRAM in streaming kernels",
        "one copy of at least 1 GB at 8 SM clocks", source="Streams")
    # mixtures of experts
    moe_efficiency: Number = moe(0.67, 0.3, "-",
        "tensor-core rate of grouped expert GEMM, 16 bits", share=True)
    moe_efficiency_fp8: Number = moe(0.93, 0.5, "-", "the same, fp8", share=True)
    moe_efficiency_block: Number = moe(0.38, 0.3, "-", "the same, block-scaled fp8",
        share=True)
    moe_feed: Number = moe(56.0, 0.3, "B/cycle/SM",
        "tile loads of grouped GEMM that one SM sustains")
    moe_flow: Number = moe(11.0, 0.4, "B/cycle",
        "DRAM rate of one CTA of a grouped GEMM")
    moe_sharpness: Number = moe(4.8, 0.2, "-",
        "overlap of units inside an SM in grouped GEMM")
    moe_sharpness_memory: Number = moe(2.4, 0.2, "-",
        "overlap of SM side and DRAM in grouped GEMM")
    moe_own: Number = moe(2000.0, 0.4, "cycles",
        "start and end of a grouped-GEMM tile")
    moe_quantization: Number = moe(0.6, 0.5, "-",
        "share of a part-filled wave that is paid", share=True)
    moe_empty: Number = moe(105.0, 0.4, "cycles",
        "CTA of a grouped GEMM that finds no rows")
    moe_misaligned: Number = moe(22.0, 0.4, "-",
        "slow-down of 16-bit loads where k is no multiple of 16",
        closes="MoE layers with an inner size that is no multiple of 16")
    moe_stream: Number = moe(18.5, 0.3, "B/cycle/SM",
        "rate of one SM in kernels over a layer's rows")
    moe_quantise: Number = moe(1.0, 0.3, "-",
        "time of a byte in fp8 quantisation / in other kernels")
    moe_quantise_block: Number = moe(4.2, 0.3, "-", "the same, block-scaled fp8")
    moe_cycles: Number = moe(2e4, 0.3, "cycles",
        "small kernels of a layer beyond a launch, 16 bits")
    moe_cycles_fp8: Number = moe(2.8e4, 0.3, "cycles", "the same, fp8")
    moe_cycles_block: Number = moe(4.3e4, 0.3, "cycles", "the same, block-scaled fp8")
    moe_sorting: Number = moe(1.15e4, 0.4, "cycles",
        "sorting of tokens by expert, once")
    moe_align: Number = moe(0.6e-9, 0.5, "s", "sorting of tokens by expert, per row",
        closes="MoE layers of many tokens spread over several GPUs")
    moe_expert: Number = moe(1.6e-9, 0.5, "s",
        "sorting of tokens by expert, per expert")
    moe_load_energy: Number = moe(27e-12, 0.4, "J/B",
        "tile loads of grouped GEMM beyond L2 and shared memory", power=True)
    # fused attention, prefill
    prefill_efficiency: Number = prefill(0.9, 0.3, "-",
        "tensor-core rate in prefill attention", share=True)
    prefill_exp: Number = prefill(1.94, 0.3, "-",
        "softmax cost / one exponential per element")
    prefill_mask: Number = prefill(0.62, 0.5, "-",
        "extra cost of an element in a masked block")
    prefill_feed: Number = prefill(129.0, 0.5, "B/cycle/SM",
        "loads of K and V into shared memory")
    prefill_own: Number = prefill(1205.0, 0.4, "cycles",
        "start and end of a prefill tile")
    prefill_query: Number = prefill(10.5, 0.4, "B/cycle/SM",
        "load of Q and store of O")
    prefill_fill: Number = prefill(0.39, 0.4, "-",
        "share of the first block that nothing overlaps")
    prefill_sharpness: Number = prefill(4.1, 0.3, "-",
        "overlap of matrix, softmax and loads")
    prefill_serial: Number = prefill(1.5, 0.3, "-",
        "the same where matrix and softmax take turns")
    prefill_query_fast: Number = prefill(0.64, 0.3, "-",
        "time of Q and O with 4, 8 or 16 query heads a KV head")
    prefill_quantization: Number = prefill(0.77, 0.5, "-",
        "share of a part-filled wave that is paid", share=True, source="Timeline")
    prefill_tail: Number = prefill(0.4, 0.5, "-",
        "list-schedule tail of unequal tiles", source="Timeline")
    prefill_cycles: Number = prefill(7000.0, 0.4, "cycles",
        "launch cost of prefill attention beyond a launch",
        closes="prefill attention of one short sequence, at two clocks")
    prefill_schedule: Number = prefill(12e-9, 0.5, "s",
        "scheduling kernel, per sequence")
    # fused attention, decode
    decode_efficiency: Number = decode(0.8, 0.3, "-",
        "tensor-core rate in decode attention", share=True)
    decode_exp: Number = decode(0.94, 0.3, "-",
        "softmax cost / one exponential per element")
    decode_own: Number = decode(1995.0, 0.4, "cycles",
        "start and end of a decode tile")
    decode_own_head: Number = decode(19.1, 0.5, "cycles",
        "the same, per element of head_dim")
    decode_own_fp8: Number = decode(0.84, 0.4, "-", "the same, fp8 / bf16")
    decode_own_local: Number = decode(3000.0, 0.4, "cycles",
        "extra start of a decode tile with a window")
    decode_cycles_local: Number = decode(1700.0, 0.5, "cycles",
        "extra launch of decode with a window",
        closes="decode attention with a short context, at two clocks")
    decode_flow: Number = decode(200.0, 0.5, "B/cycle/SM",
        "flow of K and V into one SM in decode attention",
        closes="decode attention of few sequences with a long context")
    decode_sharpness: Number = decode(4.0, 0.4, "-",
        "overlap of matrix, softmax and loads in decode attention")
    decode_serial: Number = decode(1.2, 0.3, "-",
        "the same where matrix and softmax take turns")
    decode_quantization: Number = decode(0.48, 0.5, "-",
        "share of a part-filled wave that is paid", share=True, source="Timeline")
    decode_cycles: Number = decode(6000.0, 0.4, "cycles",
        "launch cost of decode attention beyond a launch",
        closes="decode attention with a short context, at two clocks")
    decode_schedule: Number = decode(20e-9, 0.5, "s",
        "scheduling kernel, per sequence",
        closes="decode attention with a short context, batch 1 to 992")
    transpose_rate: Number = attention(5.4, 0.5, "elements/cycle/SM",
        "transposition of fp8 V in shared memory",
        "prefill attention in fp8 and in bf16")
