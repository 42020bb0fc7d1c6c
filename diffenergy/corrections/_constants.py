"""`Corrections`: everything that is fitted, one row a constant.

Centres and widths are published or fitted figures that the section of
`docs/physics.md` named by `source` gives; every energy is stated at the floor voltage
V0. A new constant is one row here: nothing else decides by its name.
"""

from collections.abc import Mapping
from typing import Final

import jax
import numpy as np

from ..records import Record, Step, gradient_table, is_concrete
from ._constant import (
    ATTENTION,
    FREE,
    NO_PLANS,
    OF_MMA,
    PRODUCTS,
    STREAMS,
    TILED_RECORDS,
    Constant,
    Number,
    activity,
    attention,
    board,
    choice,
    constant,
    constants_of,
    decode,
    dispatch,
    energy,
    library,
    moe,
    plan,
    prefill,
    simt,
    tiled,
    training,
)


# fmt: off
class Corrections(Record):
    """Constants of the model for one GPU (or a batch of them); defaults are priors."""

    def __repr__(self) -> str:
        if not is_concrete(self) or all(np.all(x > 0) for x in jax.tree.leaves(self)):
            return super().__repr__()
        return gradient_table("Corrections", vars(self), constant_steps())

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
        "SM clock below which DRAM falls with it / the highest",
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
    # rates and overlap
    tensor_efficiency: Number = constant(0.95, 0.6, "-",
        "tensor-core rate reached / data sheet", "bf16 GEMM of at least 8 waves",
        share=True, levels=ATTENTION, source="GEMM")
    tf32_efficiency: Number = constant(0.8, 0.1, "-", "tf32 / bf16",
        "tf32 and bf16 GEMM of at least 8 waves", source="Flow")
    fp8_efficiency: Number = constant(0.95, 0.15, "-", "fp8 / bf16",
        "bf16, fp8 and block-scaled fp8 GEMM of at least 8 waves", source="Flow")
    fp8_block_efficiency: Number = constant(0.8, 0.2, "-", "block-scaled fp8 / bf16",
        "bf16, fp8 and block-scaled fp8 GEMM of at least 8 waves", source="Flow")
    operand_half_tile: Number = library(10.0, 0.15, "elements",
        "tile side that halves the operand feed at 4096 B/cycle of operands",
        "GEMM with M below 128", levels=OF_MMA)
    sm_feed: Number = constant(75.0, 0.3, "B/cycle/SM",
        "tile loads that one SM sustains", "GEMM with M below 128 and large K",
        levels=OF_MMA, source="GEMM")
    tile_load_scale: Number = constant(2.1, 0.1, "-",
        "tile loads served per L2 read (loads shared by CTAs)",
        "large GEMM beside a copy that fits in L2", rows=NO_PLANS,
        source="Timeline")
    fma_efficiency: Number = library(0.96, 0.6, "-",
        "CUDA-core rate reached / data sheet", "fp32 GEMM of at least 8 waves",
        share=True, tiles=("SimtGemm",), source="Flow")
    fp32_dual: Number = library(0.65, 0.05, "-",
        "usable share of the doubled fp32 rate (GA10x, Ada)",
        "fp32 GEMM on a GA10x or Ada GPU (A10, L40S)", source="Flow",
        tiles=TILED_RECORDS)
    fma_linear: Number = library(1.0, 0.2, "-",
        "rate of fp32 products in the layout of nn.Linear / of row-major ones",
        "fp32 nn.Linear of at least 8 waves", levels=("own", "architecture"))
    fma_step_cycles: Number = library(450.0, 0.4, "cycles",
        "critical path of a CUDA-core main-loop step of 8",
        "fp32 GEMM of one wave over a range of K")
    # memory
    l2_efficiency: Number = constant(0.85, 0.5, "-", "L2 rate reached / measured rate",
        "copies that fit in L2, at the top SM clock", share=True, tiles=TILED_RECORDS,
        source="Timeline")
    l2_share: Number = constant(0.6, 0.3, "-", "usable share of L2 for operands",
        "GEMM and element-wise kernels of 8 sizes across that of L2", share=True,
        source="GEMM")
    l2_producer_share: Number = constant(0.4, 0.3, "-",
        "usable share of L2 for a producer's output",
        "GEMM and element-wise kernels of 8 sizes across that of L2", share=True,
        source="Attention")
    l2_sharpness: Number = constant(2.5, 0.2, "-", "edge of L2 misses",
        "GEMM and element-wise kernels of 8 sizes across that of L2", source="GEMM")
    wave_traffic: Number = constant(1.0, 0.2, "-",
        "re-reads between waves of tiles / ideal block order",
        "GEMM of many waves with operands beyond L2", source="GEMM")
    dram_efficiency: Number = constant(0.92, 0.4, "-", "DRAM rate reached / data sheet",
        "one copy of at least 1 GB at the top SM clock", share=True,
        source="Timeline", tiles=TILED_RECORDS, levels=(*FREE, "memory"))
    in_flight: Number = constant(45.0, 0.3, "B/cycle/SM",
        "DRAM rate of one SM at 228 KiB shared memory",
        "GEMM with fewer tiles than SMs, at two SM clocks", levels=OF_MMA,
        source="GEMM")
    stream_feed: Number = constant(18.4, 0.15, "B/cycle/SM",
        "rate of one SM in streaming kernels",
        "one copy of at least 1 GB at three SM clocks, one of them low",
        source="Streams", levels=OF_MMA, rows=STREAMS)
    strided_issue: Number = constant(30.0, 0.5, "-",
        "lane instructions of an element with a broadcast operand",
        "element-wise kernels of 1 GB with and without a broadcast operand",
        source="Streams", rows=STREAMS)
    reduction_reads: Number = constant(1.5, 0.5, "-",
        "extra reads of a row in softmax and norms",
        "softmax and layer norm of at least 100 MB", source="Streams")
    reduction_latency: Number = constant(4.0, 0.5, "-",
        "critical path of a row / DRAM latency",
        "softmax and layer norm of few, long rows", source="Streams")
    # per launch, per tile
    launch_seconds: Number = constant(1.2e-6, 0.3, "s",
        "launch cost that no clock changes", "small kernels at two clocks",
        source="Timeline", tiles=TILED_RECORDS)
    launch_cycles: Number = constant(2000.0, 0.5, "cycles",
        "launch cost that follows the SM clock", "small kernels at two clocks",
        tiles=TILED_RECORDS, source="Timeline")
    gemm_cycles: Number = library(3000.0, 0.5, "cycles",
        "cost of a library GEMM beyond its tiles",
        "small GEMM in a loop of one kernel, at two clocks",
        frees=("workload", *PRODUCTS), levels=OF_MMA)
    gemm_eager: Number = constant(3.0, 0.5, "-",
        "the same in eager passes / in a loop of one kernel",
        "a kernel trace of an eager pass", rows=("workload",), source="GEMM")
    own_cycles: Number = constant(1200.0, 0.5, "cycles",
        "first fill and epilogue of a tile, alone on its SM",
        "GEMM with small K and few waves", levels=OF_MMA, source="GEMM")
    step_cycles: Number = constant(120.0, 0.5, "cycles",
        "critical path of a tensor main-loop step of 128 B",
        "GEMM of one wave over a range of K", levels=OF_MMA, source="GEMM")
    store_exposed: Number = constant(0.9, 0.3, "-",
        "share of a store that no other tile hides (mma.sync)",
        "GEMM with large outputs and small K", share=True, source="Timeline",
        levels=OF_MMA)
    split_cycles: Number = library(2000.0, 0.5, "cycles",
        "split-K reduction beyond its launch", "GEMM with small M and N and large K",
        tiles=("SimtGemm",))
    choice_tau: Number = choice(0.03, 0.3, "-",
        "spread in ln t of a library's tile choice, tensor cores")
    choice_tau_fma: Number = choice(0.1, 0.3, "-", "the same on CUDA cores")
    choice_split: Number = choice(2.0, 0.5, "-", "reluctance to split K: weight s^-x")
    # host
    dispatch_stream: Number = dispatch(15e-6, 0.3, "s",
        "host time of one streaming operator")
    dispatch_matrix: Number = dispatch(25e-6, 0.3, "s",
        "host time of one matrix operator")
    dispatch_module: Number = dispatch(7e-6, 0.5, "s", "host time of one module call")
    dispatch_pass: Number = dispatch(1e-3, 0.5, "s", "host time of one forward pass")
    # kernels of training programs
    training_gemm: Number = training(1.0, 0.1, "-",
        "time of 16-bit products in training programs / here", levels=OF_MMA,
        closes="training steps of a dense model on one host")
    training_fp8: Number = training(0.7, 0.2, "-", "the same, fp8 / 16 bits",
        levels=OF_MMA, closes="the same plan in bf16 and in fp8")
    training_fp4: Number = training(0.7, 0.25, "-", "the same, fp4 / 16 bits",
        closes="the same plan in bf16 and in nvfp4")
    training_experts: Number = training(1.4, 0.3, "-",
        "the same of products of experts",
        closes="training steps of a mixture on one host")
    training_attention: Number = training(1.0, 0.1, "-",
        "the same of fused attention (cuDNN, FlashAttention 3)", levels=FREE,
        closes="the same plan at two lengths")
    training_attention_early: Number = training(1.8, 0.2, "-",
        "the same, FlashAttention 1 and Triton of 2023 / today", levels=OF_MMA,
        closes="one plan in software of 2023 and of 2026")
    training_attention_torch: Number = training(2.1, 0.2, "-",
        "the same, torch's scaled_dot_product_attention / today", levels=OF_MMA,
        closes="one plan in both programs")
    training_stream: Number = training(1.1, 0.2, "-",
        "the same of kernels that stream", closes="training steps of a small model")
    training_progress: Number = training(0.04, 0.7, "1/year",
        "slow-down of kernels that stream in older software",
        closes="training steps of a small model in software of two years")
    # many GPUs
    plan_contention: Number = plan(0.25, 0.6, "-",
        "slow-down of kernels beside an exchange: s a second of it",
        closes="the same plan with ZeRO-1 and ZeRO-3")
    plan_experts_contention: Number = plan(0.25, 0.4, "-",
        "slow-down of kernels beside the exchange of experts' rows: s a second of it",
        closes="the same plan of a mixture with and without overlap of its experts")
    plan_network: Number = plan(0.75, 0.2, "-",
        "rate that exchanges between hosts reach / that of the network card",
        closes="the same plan on one and on many hosts", share=True)
    plan_tp_exposed: Number = plan(0.9, 0.3, "-",
        "share of tensor-parallel exchanges that nothing hides",
        closes="the same model with tp 1 and tp 8", share=True)
    plan_tp_overlapped: Number = plan(0.4, 0.4, "-",
        "the same where they run beside the products",
        closes="the same plan with and without user buffers or async TP", share=True)
    plan_pp_exposed: Number = plan(0.7, 0.5, "-",
        "share of sends between stages that nothing hides",
        closes="the same model with pp 1 and pp 8", share=True)
    plan_fixed: Number = plan(0.02, 0.7, "-", "what a step takes beyond its parts",
        closes="steps of one plan and their kernel traces")
    plan_straggle: Number = plan(0.006, 0.7, "-",
        "slow-down with each doubling of the GPUs",
        closes="the same plan on 8 to 512 GPUs")
    # energies, all at the floor voltage V0
    energy_tensor: Number = energy(0.45e-12, 0.3, "J/FLOP",
        "bf16 tensor FLOP, operands included",
        "power of a bf16 GEMM below the power limit, at two SM clocks")
    energy_tf32: Number = energy(2.6, 0.2, "-", "tf32 / bf16",
        "power of a tf32 and a bf16 GEMM below the power limit")
    energy_fp8: Number = energy(0.65, 0.2, "-", "fp8 / bf16",
        "power of an fp8 and a bf16 GEMM below the power limit")
    energy_fp8_block: Number = energy(1.12, 0.06, "-",
        "block-scaled fp8 / fp8: sums scaled on CUDA cores every 128 of K",
        "power of a block-scaled and a plain fp8 GEMM below the power limit")
    energy_fma: Number = energy(5e-12, 0.3, "J/FLOP", "fp32 FLOP on CUDA cores",
        "power of an fp32 GEMM below the power limit")
    energy_sfu: Number = energy(3.5e-12, 0.6, "J", "special function",
        "power of prefill attention with small heads")
    energy_issue: Number = energy(8e-12, 0.5, "J",
        "lane instruction of streaming kernels",
        "power of element-wise kernels that fit in L2, at two SM clocks")
    energy_smem: Number = energy(0.5e-12, 0.7, "J/B", "shared memory",
        "power of one GEMM in a small and in a large tile")
    energy_l2: Number = energy(8e-12, 0.4, "J/B", "L2, network and SM path",
        "power of one copy that fits in L2 and of one of at least 1 GB")
    energy_dram: Number = energy(75e-12, 0.2, "J/B",
        "DRAM and its interface (own rail), HBM2",
        "one copy of at least 1 GB at two SM clocks above the voltage knee",
        levels=(*FREE, "memory", "dies"))
    energy_link: Number = energy(60e-12, 0.5, "J/B", "NVLink, 5-10 pJ/bit",
        "power of an all-reduce over NVLink", levels=())
    energy_launch: Number = energy(1e-6, 1.0, "J", "launch; no study saw it",
        "power of a stream of empty kernels", levels=())
    energy_tile: Number = energy(1e-9, 1.0, "J", "CTA; no study saw it",
        "power of a kernel of many empty CTAs", levels=())
    core_energy: Number = board(1.0, 0.2, "-",
        "factor on all core energies (process, design)",
        "five power readings of different kernels",
        levels=("own", "architecture", "gpu"))
    dynamic_energy: Number = energy(1.0, 0.2, "-",
        "factor on all core and DRAM energies (five readings)",
        "five power readings of different kernels", levels=())
    sm_clock_energy: Number = board(0.2e-9, 0.5, "J/cycle",
        "clock tree and issue of an SM that holds CTAs",
        "power of a GEMM and of a copy of at least 1 GB at 8 SM clocks")
    leakage: Number = board(1.0, 0.5, "-", "leakage / that of the idle table",
        "power of a core-bound kernel at 8 clocks with the temperature logged")
    leakage_efold: Number = energy(40.0, 0.4, "K", "e-fold of leakage",
        "power of a core-bound kernel, cold and hot, temperature logged")
    memory_idle: Number = constant(0.6, 1.0, "-",
        "share of constant idle power that follows the memory",
        "idle readings at two memory clocks", share=True, source="Power", levels=())
    voltage_knee: Number = activity(1.0, 0.1, "-",
        "clock at which the voltage rises / that of the GPU file",
        closes="power of a core-bound kernel at 8 SM clocks")
    voltage_slope: Number = activity(1.0, 0.4, "-",
        "rise of the voltage behind it / that of the GPU file",
        closes="power of a core-bound kernel at 8 SM clocks")
    voltage_curvature: Number = activity(1.0, 0.4, "-",
        "its curvature / that of the GPU file",
        closes="power of a core-bound kernel at 8 SM clocks")
    zero_saving: Number = energy(0.6, 0.2, "-",
        "energy saved by operands that are all zeros",
        "power of a GEMM with random and with zero operands")
    idle_scale: Number = board(1.0, 0.05, "-", "idle power / that of the GPU file",
        "an idle reading with a context", levels=("own", "gpu"))
# fmt: on


CONSTANTS: Final[Mapping[str, Constant]] = constants_of(Corrections)


def is_share(name: str) -> bool:
    """Whether a constant lives in (0, 1)."""
    return CONSTANTS[name].share


def constant_steps() -> dict[str, Step]:
    """1 % of the prior of every constant."""
    return {
        name: (1.0, "% of prior", 0.01 * row.centre) for name, row in CONSTANTS.items()
    }
