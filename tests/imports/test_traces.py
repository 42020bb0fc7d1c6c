"""Profiler traces: joined with operators, by twins, by launches; sums and shares."""

import contextlib
import gc
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from diffenergy import imports
from diffenergy.imports._rows.names import kernel_class, kernel_dtype
from tests.imports import builders


def rows(path: str, **options: Any):
    return imports.read(path, **options).listings[0].kernels


def fields(row: Any, *names: str) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_sizes_come_from_the_innermost_operator(tmp_path, name):
    result = imports.read(builders.trace(tmp_path, name=name))
    gemm, softmax, add, custom = result.listings[0].kernels
    assert fields(gemm, "op", "m", "n", "k") == ("gemm", 128, 128, 64)
    assert fields(gemm, "dtype", "layout", "how") == ("bf16", "tn", "operator")
    assert fields(softmax, "rows", "cols") == (4 * 8 * 32, 32)
    assert fields(add, "fn", "elements", "reads", "writes") == ("add", 16384, 2, 1)
    assert fields(add, "count", "traced_us", "traced_total_us") == (2, 3.0, 6.0)
    assert fields(custom, "op", "class", "traced_us") == ("traced", "unknown", 3.0)
    assert fields(custom, "stream", "how", "kernel") == (9, "name", "my_own_kernel")
    summary = result.summary
    assert fields(summary, "kind", "gpu", "kernels") == ("kineto", "h100-sxm", 5)
    assert (summary["sum_us"], summary["busy_us"]) == (24.0, 23.0)
    assert summary["classes"] == {
        "gemm": 10.0, "elementwise": 6.0, "norm": 5.0, "unknown": 3.0,
    }  # fmt: skip
    assert summary["class_share"] == pytest.approx(21 / 24)
    assert summary["shape_share"] == pytest.approx(21 / 24)
    assert summary["unknown"] == [{"name": "my_own_kernel", "us": 3.0}]
    assert result.listings[0].dispatch == "eager"


IMAGES = [[4, 3, 224, 224], [768, 3, 16, 16], *[[]] * 7]
PATCHES = ["", "", "[0, 0]", "[16, 16]", "[1, 1]", "1", "False", "False", "True"]
SMALL = [[8, 128, 28, 28], [8, 64, 56, 56], [128, 64, 3, 3], *[[]] * 8]
HALVED = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
HEADS = [2, 128, 8, 64]
FPROP = "cutlass_tensorop_bf16_s16816fprop_256x64_32x4"
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<x>, "
    "at::detail::Array<char*, 2> >"
)
STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<x> >"
CAT = "void at::native::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>"


def elementwise(name: str, dims: list[Any], kernel: str, elements: int, reads: int):
    """A row of the table below; what is written to is no input."""
    expected = dict(elements=elements, reads=reads, writes=1)
    return (name, dims, None, [(kernel, 10.0)], [expected])


@pytest.mark.parametrize(
    ("name", "dims", "values", "kernels", "expected"),
    [
        # a convolution with its layout kernels: the time is the call's
        ("aten::cudnn_convolution", IMAGES, PATCHES,
         [("void cudnn::nchwToNhwcKernel<__nv_bfloat16>", 10.0), (FPROP, 98.0),
          ("void cudnn::nhwcToNchwKernel<__nv_bfloat16>", 2.0)],
         [dict(op="conv2d", count=1, images=4, in_channels=3, out_channels=768,
               kernel_size=16, stride=16, padding=0, traced_us=110.0, kernel=FPROP)]),
        ("aten::convolution_backward", SMALL, HALVED,
         [("sm80_xmma_dgrad_implicit_gemm_bf16bf16", 10.0),
          ("sm80_xmma_wgrad_implicit_gemm_bf16bf16", 12.0)],
         [dict(op="conv2d_input_grad", traced_us=10.0, stride=2, padding=1),
          dict(op="conv2d_weight_grad", traced_us=12.0, stride=2, padding=1)]),
        # along one axis: 2 x 10 places, two groups of 16 outputs, 4 channels x 3 taps
        ("aten::conv1d", [[2, 8, 10], [32, 4, 3], *[[]] * 5],
         ["", "", "", "[1]", "[1]", "[1]", "2"], [(FPROP, 9.0)],
         [dict(op="gemm", batch=2, m=2 * 10, n=16, k=4 * 3)]),
        ("aten::_flash_attention_forward", [HEADS] * 3 + [[]] * 8,
         [*[""] * 5, "128", "128", "0.", "True", "False", "0.125"],
         [(builders.FLASH, 10.0)],
         [dict(op="context_attention", causal=True, batch=2, q_len=128, num_heads=8)]),
        # indices count, never the table
        ("aten::embedding", [[150_000, 1024], [16, 100], []], None,
         [("indexSelectLargeIndex<c10::BFloat16>", 10.0)],
         [dict(op="gather", rows=1600, cols=1024)]),
        elementwise("aten::mul", [[4096], [], [4096]], MUL, 4096, 1),
        elementwise("aten::mul", [[64, 64], [64, 64], [64, 64]], STRIDED, 4096, 2),
        elementwise("aten::add", [[4096], [4096], [], [0]], STRIDED, 4096, 2),
        elementwise("aten::tanh", [[4096], [4096]], STRIDED, 4096, 1),
        elementwise("aten::cat", [[[64], [32]], [], [96]], CAT, 96, 1),
        elementwise("aten::add_", [[4096], [4096], []], builders.ADD, 4096, 2),
    ],
)  # fmt: skip
def test_kernels_of_a_call(tmp_path, name, dims, values, kernels, expected):
    kind = "float" if "elements" in expected[0] else builders.BF16
    blocks = 1 if name == "aten::cat" else 8
    events = [
        builders.operator(name, 0, 50, dims, values, kind),
        *builders.launched(*((5, x, time, blocks) for x, time in kernels)),
    ]
    result = rows(builders.trace(tmp_path, events))
    assert [{x: row.get(x) for x in e} for row, e in zip(result, expected)] == expected  # noqa: B905
    assert len(result) == len(expected)


def bare(name: str, start: float, duration: float, *dims: list[int]):
    """A call with sizes and neither types nor values, as profilers of 2021 wrote."""
    event = builders.operator(name, start, duration, list(dims))
    event["args"] = {"Input Dims": event["args"]["Input Dims"]}
    return event


@pytest.mark.parametrize(
    "size, taps, out, stride, padding",
    [(56, 1, 28, 2, 0), (56, 3, 56, 1, 1), (32, 5, 28, 1, 0), (224, 11, 55, 4, 2)],
)
def test_strides_follow_from_what_reads_the_output(
    tmp_path, size, taps, out, stride, padding
):
    x, w = [8, 64, size, size], [128, 64, taps, taps]
    result = [8, 128, out, out]
    events = [
        bare("aten::convolution", 0, 20, x, w),
        bare("aten::cudnn_convolution", 5, 10, x, w),
        bare("aten::add_", 22, 3, [1]),
        bare("aten::cudnn_batch_norm", 30, 5, result, [128]),
        bare("aten::cudnn_convolution_backward", 40, 30, x, result, w),
        bare("aten::cudnn_convolution_backward_input", 45, 9, [], result, w),
        bare("aten::cudnn_convolution_backward_weight", 55, 9, [], result, x),
        bare("aten::convolution_backward", 80, 9, result, x, w),
        *builders.launched(
            (8, "implicit_convolve_sgemm", 9.0),
            (47, "cudnn::detail::dgrad_engine<float>", 8.0),
            (57, "volta_scudnn_128x64_stridedB_splitK", 7.0),
            (82, "sm80_xmma_dgrad_implicit_gemm", 6.0),
            (84, "sm80_xmma_wgrad_implicit_gemm", 5.0),
        ),
    ]
    kernels = rows(builders.trace(tmp_path, events))
    gradients = ["conv2d_input_grad", "conv2d_weight_grad"]
    assert [x["op"] for x in kernels] == ["conv2d", *gradients * 2]
    assert [x["traced_us"] for x in kernels] == [9.0, 8.0, 7.0, 6.0, 5.0]
    for row in kernels:
        assert (row["images"], row["in_channels"], row["out_channels"]) == (8, 64, 128)
        assert (row["stride"], row["padding"]) == (stride, padding)


def test_gradients_pair_with_their_forward_pass(tmp_path):
    """No call around both gradients; a second convolution, which nothing reads, is as
    the first one of equal sizes; a third one has no pair."""
    x, w, out = [8, 64, 56, 56], [128, 64, 3, 3], [8, 128, 28, 28]
    alone = [16, 3, 3, 3]
    events = [
        bare("aten::cudnn_convolution", 0, 10, x, w),
        bare("aten::relu_", 20, 5, out),
        bare("aten::cudnn_convolution_backward_input", 30, 9, [], out, w),
        bare("aten::cudnn_convolution_backward_weight", 40, 9, [], out, x),
        bare("aten::cudnn_convolution", 50, 10, x, w),
        bare("aten::cudnn_convolution", 70, 10, [8, 3, 9, 9], alone),
        *builders.launched(
            *((when, "volta_scudnn_128x64", 9.0) for when in (5, 35, 45, 55, 75))
        ),
    ]
    kernels = rows(builders.trace(tmp_path, events))
    assert [(x["op"], x["count"]) for x in kernels] == [
        ("conv2d", 2), ("conv2d_input_grad", 1), ("conv2d_weight_grad", 1),
        ("traced", 1),
    ]  # fmt: skip
    assert {(x["stride"], x["padding"]) for x in kernels[:3]} == {(2, 1)}


@pytest.mark.parametrize(
    "node",
    ["CompiledFunction", "torch::autograd::CppNode<Lookup>", "MyFunctionBackward",
     "autograd::engine::evaluate_function: X", "fbgemm::lookup"],
)  # fmt: skip
def test_kernels_of_a_region_do_not_have_its_tensors(tmp_path, node):
    """A fill of 2 us in a node with 506 MB of tensors; the operator within the node
    has sizes of its own."""
    fill = builders.ADD.replace("CUDAFunctor_add", "FillFunctor")
    events = [
        builders.operator(node, 0, 90, [[8192, 15444]], kind="float"),
        builders.operator("aten::mm", 40, 20, [[32, 64], [64, 16]]),
        *builders.launched(
            (5, fill, 2.0, 4), (25, "triton_per_fused_sum_3", 7.0),
            (45, builders.GEMM, 9.0),
        ),
    ]  # fmt: skip
    fill_row, unknown, gemm = rows(builders.trace(tmp_path, events))
    assert (fill_row["elements"], fill_row["reads"]) == (4 * 512, 0)
    assert (fill_row["how"], gemm["how"]) == ("launch", "operator")
    assert (unknown["op"], unknown["class"]) == ("traced", "norm")
    assert (gemm["m"], gemm["n"], gemm["k"]) == (32, 16, 64)


@pytest.mark.parametrize(
    "name, lists, reads, writes",
    [("aten::_foreach_add_", 2, 2, 1), ("aten::_fused_adamw_", 6, 4, 3),
     ("aten::_foreach_mul_", 1, 1, 1)],
)  # fmt: skip
def test_kernels_over_lists_share_them_by_their_blocks(
    tmp_path, name, lists, reads, writes
):
    """3,000 elements in three tensors; two kernels of 1 and 3 blocks."""
    dims = [[[1000], [10, 150], [500]]] * lists
    apply = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, X>"
    event = builders.operator(name, 0, 50, [*dims, []])
    event["args"]["Input type"] = ["TensorList"] * lists + ["Scalar"]
    events = [
        event,
        *builders.launched((5, apply, 2.0, 1), (6, apply, 6.0, 3)),
    ]
    kernels = rows(builders.trace(tmp_path, events))
    assert [x["elements"] for x in kernels] == [750, 2250]
    assert {(x["reads"], x["writes"]) for x in kernels} == {(reads, writes)}


def test_a_triton_kernel_has_the_tensors_of_its_own_call(tmp_path):
    name = "triton_poi_fused_add_0"
    events = [
        builders.operator("CompiledFunction", 0, 90, [[8192, 8192]]),
        builders.operator(name, 10, 20, [[1024], [1024], [1024], []]),
        *builders.launched((15, name, 2.0)),
    ]
    [row] = rows(builders.trace(tmp_path, events))
    assert (row["elements"], row["reads"], row["writes"]) == (1024, 2, 1)


def test_collectives_say_their_size(tmp_path):
    details: dict[str, Any] = {
        "Collective name": "all_gather", "In msg nelems": 1000,
        "Out msg nelems": 8000, "dtype": "BFloat16", "Group size": 8,
    }  # fmt: skip
    event = builders.kernel("ncclDevKernel_AllGather_RING_LL", 1, 100, 10.0, **details)
    [row] = rows(builders.trace(tmp_path, [event]))
    sizes = fields(row, "collective", "bytes", "num_gpus")
    assert sizes == ("all_gather", 16000, 8)


REDUCED: dict[str, Any] = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
    "dtype": "Float", "Group size": 2,
}  # fmt: skip
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_collectives_wait_for_other_ranks(tmp_path):
    """Equal ones over repetitions and GPUs: the least time is the transfer. Those of
    another size, and those whose size is not stated, are no measure of them."""
    bigger: dict[str, Any] = REDUCED | {"In msg nelems": 9000, "Out msg nelems": 9000}
    events = [
        builders.kernel(REDUCE, 1, 100, 10.0, **REDUCED),
        builders.kernel(REDUCE, 2, 200, 25.0, **REDUCED),
        builders.kernel(REDUCE, 3, 100, 8.0, device=1, **REDUCED),
        builders.kernel(REDUCE, 4, 300, 90.0, **bigger),
        builders.kernel(REDUCE, 5, 400, 3.0),
    ]
    result = imports.read(builders.trace(tmp_path, events))
    first, second = (x.kernels for x in result.listings)
    times = [(x["count"], x["traced_us"], x.get("wait_us")) for x in (*first, *second)]
    assert times == [(2, 8.0, 19.0), (1, 90.0, 0.0), (1, 3.0, None), (1, 8.0, 0.0)]
    assert [x["op"] for x in first] == ["collective", "collective", "traced"]
    assert first[0]["traced_total_us"] == 16.0
    assert (result.summary["wait_us"], result.summary["sum_us"]) == (19.0, 136.0)
    assert any("wait 19 us for other ranks" in x for x in result.notes)


def test_sizes_of_a_call_around_are_those_of_what_it_passes_on(tmp_path):
    """An exchange and a join of which only the node around states the tensors; no
    collective within another node, no copy within an exchange, and no join of another
    number of parts has them."""
    exchange = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
    events = [
        builders.operator("All2All_Pooled_Req", 0, 90, [[64, 32]], kind="float"),
        builders.operator("AccumulateGrad", 100, 90, [[96]], kind="float"),
        *(builders.operator("record_param_comms", x, 80, []) for x in (5, 105)),
        builders.operator("SplitBackward0", 200, 90, [[8, 4], [8, 6]], kind="float"),
        builders.operator("aten::cat", 210, 50, [[], []]),
        *builders.launched(
            (10, exchange, 9.0), (20, "my_own_kernel", 8.0), (110, exchange, 7.0),
            (215, CAT, 6.0, 16, 2), (216, CAT, 5.0, 16, 3),
        ),
    ]  # fmt: skip
    job = {"world_size": 8}
    kernels = rows(builders.trace(tmp_path, events, distributedInfo=job))
    assert [x["op"] for x in kernels] == [
        "collective", "traced", "traced", "elementwise", "traced",
    ]  # fmt: skip
    first = kernels[0]
    assert (first["collective"], first["bytes"]) == ("all_to_all", 64 * 32 * 4)
    assert kernels[3]["elements"] == 8 * 10


def test_a_trace_without_any_shape_imports(tmp_path):
    """Every GPU has a listing of its own."""
    events = [
        builders.kernel(builders.GEMM, i, 10.0 * (i // 2), 5.0, device=i % 2)
        for i in range(4)
    ]
    result = imports.read(builders.trace(tmp_path, events))
    assert [x.name for x in result.listings] == ["t/gpu0", "t/gpu1"]
    for listing in result.listings:
        [row] = listing.kernels
        assert fields(row, "op", "class", "count") == ("traced", "gemm", 2)
        assert listing.dispatch is None
    assert fields(result.summary, "shape_share", "busy_us") == (0.0, 20.0)


@pytest.mark.parametrize(
    "window, count", [((0, 15), 2), ((10, 20), 2), ("12", 3), ("ProfilerStep#12", 3)]
)
def test_a_window_picks_kernels_by_their_start(tmp_path, window, count):
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#12", "ts": 115,
            "dur": 50}  # fmt: skip
    path = builders.trace(tmp_path, [*builders.EVENTS, step])
    assert imports.read(path, window=window).summary["kernels"] == count


def test_old_traces_have_other_words(tmp_path):
    """The profiler of 2021: capitals, `Input dims`, no types."""
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "12",
         "ts": 0, "dur": 30,
         "args": {"Input dims": [[32, 64], [64, 16]], "External id": 5}},
        {"ph": "X", "cat": "Kernel", "name": "volta_sgemm_128x64_nn", "pid": 0,
         "tid": "stream 7", "ts": 50, "dur": 8,
         "args": {"device": 0, "stream": 7, "external id": 5}},
    ]  # fmt: skip
    [row] = rows(builders.trace(tmp_path, events))
    assert (row["m"], row["n"], row["k"], row["dtype"]) == (32, 16, 64, "fp32")
    assert (row["tensor_core"], row["layout"]) == (False, "nn")


@pytest.mark.parametrize(
    "name, kind, dtype",
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collective", "bf16"),
        ("void pytorch_flash::flash_fwd_splitkv_combine_kernel", "attention", None),
        ("sm80_xmma_wgrad_implicit_gemm_tf32f32_tf32f32", "conv", "tf32"),
        ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", "gemm", "bf16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "gemm", "bf16"),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "norm", None),
        ("void at::native::CatArrayBatchedCopy<c10::Half>", "gather", "fp16"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256", "moe", "mxfp4"),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>", "gather", None),
        ("void permute_pooled_embs_kernel<float>", "gather", "fp32"),
        ("void at::native::unrolled_elementwise_kernel<norm>", "elementwise", None),
        ("void at::native::index_elementwise_kernel<128, 4>", "gather", None),
        ("SubTensorOpWithScalar1d", "elementwise", None),
        ("void at::native::cunn_SoftMaxForward<8>", "norm", None),
        ("volta_h884gemm_256x128", "gemm", "fp16"),
        ("normal_kernel", "unknown", None),
        ("zzz", "unknown", None),
    ],
)
def test_names_say_class_and_type(name, kind, dtype):
    assert kernel_class(name) == kind
    assert kernel_dtype(name) == dtype


def test_a_listing_of_an_import_is_read_back(tmp_path):
    from diffenergy.workload import listing_lines, read_listings

    [listing] = imports.import_listing(builders.trace(tmp_path))
    path = tmp_path / "x.jsonl"
    path.write_text(listing_lines([listing]))
    assert '"traced_us": 10.0' in path.read_text()
    [again] = read_listings(path)
    extra = {"traced_total_us", "stream", "kernel", "how"}
    expected = [
        {k: v for k, v in x.items()
         if k not in extra and (k != "traced_us" or x["op"] == "traced")}
        for x in listing.kernels
    ]  # fmt: skip
    assert list(again.kernels) == expected


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name, kernels, total, shape",
    [
        ("h100_bert-small_bf16_eager", 60, 307.2, 0.98),
        ("h100_vit-base_bf16_eager", 154, 1220.9, 0.999),
        ("h100_timesformer_bf16_eager", 446, 154_855.6, 0.999),
        ("h100_qwen1.5-0.5b_bf16_eager", 1465, 45_432.7, 0.99),
        ("a100_alexnet_noshapes", 79, 10_692, 0.0),
        ("mi210_gpu_only", 562, 5343.4, 0.0),
    ],
)
def test_published_traces(name, kernels, total, shape):
    path = builders.shared(f"{name}.json.gz")
    summary = imports.read(str(path)).summary
    assert summary["kernels"] == kernels
    assert summary["sum_us"] == pytest.approx(total, abs=0.1)
    assert summary["class_share"] >= 0.95 and summary["shape_share"] >= shape


@pytest.mark.shared_data
def test_a_training_has_the_flop_of_its_network():
    """ResNet-50, 8.18 GFLOP an image forward; 319 convolutions of 6 steps of 53."""
    path = builders.shared("unnamed_resnet50_train_2021.json.gz")
    result = imports.read(str(path))
    assert result.summary["shape_share"] > 0.99
    forward = [x for x in result.listings[0].kernels if x["op"] == "conv2d"]
    images = 32 * sum(x["count"] for x in forward) / 53
    assert builders.gflop(forward) / images == pytest.approx(8.18, rel=0.01)


@pytest.mark.shared_data
def test_a_serving_step_needs_the_models_sizes():
    path = builders.shared("b200_gpt-oss-120b_tp8_vllm_eager.json.gz")
    result = imports.read(str(path), model="gpt-oss-120b")
    assert result.summary["busy_us"] == pytest.approx(10_793.6, abs=0.1)
    assert result.summary["shape_share"] > 0.9
    [moe] = [x for x in result.listings[0].kernels if x["op"] == "moe"]
    assert (moe["num_tokens"], moe["num_experts"], moe["moe_tp_size"]) == (888, 128, 8)


@pytest.mark.slow
def test_a_long_trace_streams(tmp_path):
    """60 MB in 250 MB: the reader holds what it needs alone (`json.load` takes 370 MB
    without a reader)."""
    import subprocess
    import sys

    text = json.dumps(builders.EVENTS)[1:-1]
    copies = 60_000_000 // len(text)
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write('{"deviceProperties": [], "traceEvents": [' + text)
        for _ in range(copies):
            file.write("," + text)
        file.write("]}")
    script = (
        "import time; from diffenergy import imports; t = time.process_time();"
        f"s = imports.read({str(path)!r}).summary; t = time.process_time() - t;"
        # of this program alone: `ru_maxrss` begins with what started it
        "peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0];"
        "print(s['kernels'], t, int(peak) * 1024)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    kernels, spent, peak = map(float, out.stdout.split())
    assert kernels == 5 * (copies + 1)
    assert spent < 18 and peak < 3.3e8  # 6 s of CPU time


# --- Graph replay


def replayed(folder: Path, tp: int = 1, tile: str = "", passes: int = 2, **more: Any):
    """Decode steps of 8 sequences of Qwen3-0.6B, 28 layers each, without operators;
    every role has a kernel of its own, an unlisted product runs once."""
    from diffenergy.workload import LanguageModel, ModelShare, ModelSplit, load_model

    model = load_model("qwen3-0.6b")
    assert isinstance(model, LanguageModel)
    part = model.placed(ModelShare(ModelSplit(tp=tp)))
    rows = part.sequence(phase="decode", batch=8, input_len=100)
    layer = [x for x in rows if x["count"] == 28]
    tail = [x for x in rows if x["op"] == "gemm" and x["count"] == 1]
    events = []
    for _ in range(passes):
        for x in [*(x for _ in range(28) for x in layer), *tail]:
            if x["op"] not in ("gemm", "generation_attention", "collective"):
                continue
            grid = (1, 1, 1)
            name = {"collective": "cross_device_all_reduce"}.get(x["op"], "flash_fwd")
            if x["op"] == "gemm":
                grid = (-(-x["n"] // 64) * -(-x["m"] // 64), 1, 1)
                name = f"cutlass_gemm{tile}_{x['n'] * tp}_{x['k']}"
            time = 100.0 * len(events)
            events.append(builders.kernel(name, len(events), time, 10.0, grid))
            if x["op"] == "gemm" and x is layer[0]:
                events.append(builders.kernel("splitKreduce", 0, time + 20, 1.0))
            events.append(builders.kernel("rms_norm_kernel", 0, time + 40, 2.0, (8, 1)))
    events.insert(40, builders.kernel("lora_gemm", 0, events[40]["ts"], 9.0, (3, 1)))
    return builders.trace(folder, events, **more), [*layer, *tail]


@pytest.mark.parametrize("tp", [1, 2])
def test_a_replay_follows_the_listing_of_its_model(tmp_path, tp):
    path, steps = replayed(tmp_path, tp, "_64x64_32x4")
    result = imports.read(path, model="qwen3-0.6b", dims={"context": 100})
    kernels = result.listings[0].kernels
    gemms = {x["kernel"]: (x["n"], x["k"]) for x in kernels if x["op"] == "gemm"}
    assert gemms == {
        f"cutlass_gemm_64x64_32x4_{x['n'] * tp}_{x['k']}": (x["n"], x["k"])
        for x in steps
        if x["op"] == "gemm"
    }
    [attention] = [x for x in kernels if x["op"] == "generation_attention"]
    assert (attention["count"], attention["batch"], attention["kv_len"]) == (56, 8, 100)
    assert attention["num_heads"] == 16 // tp
    counts = {x["n"] * x["k"]: x["count"] for x in kernels if x["op"] == "gemm"}
    assert sorted(counts.values()) == [2, *[56] * (len(gemms) - 1)]
    assert {x["rows"] for x in kernels if x["op"] == "rmsnorm"} == {8}
    assert sum(x["count"] for x in kernels if x["op"] == "collective") == 2 * 56 * (
        tp > 1
    )
    assert [x["kernel"] for x in kernels if x["op"] == "traced"] == ["lora_gemm"]
    assert any("no place for 1 x lora_gemm" in x for x in result.notes)
    assert result.summary["shape_share"] > 0.98


def test_a_replay_does_not_guess(tmp_path):
    """Without a tile nobody says how many GPUs share the model, without a length what
    attention reads; a file of sums has no order."""
    path, _ = replayed(tmp_path, 2)
    result = imports.read(path, model="qwen3-0.6b")
    assert any("give --dim tp=N" in x for x in result.notes)
    assert all(x["op"] != "gemm" for x in result.listings[0].kernels)
    stated: list[tuple[dict[str, int] | None, int]] = [({"tp": 2}, 0), (None, 2)]
    for dims, world in stated:
        path, _ = replayed(tmp_path, 2, distributedInfo={"world_size": world})
        result = imports.read(path, model="qwen3-0.6b", dims=dims)
        ops = {x["op"] for x in result.listings[0].kernels}
        assert "gemm" in ops and "generation_attention" not in ops
        assert any("--dim context=N" in x for x in result.notes)
    sums = tmp_path / "sums.csv"
    sums.write_text(builders.SUMS)
    assert any("no order" in x for x in imports.read(str(sums), model="gpt2").notes)


@pytest.mark.shared_data
def test_a_serving_step_without_operators_has_the_same_shapes(tmp_path):
    path = builders.shared("b200_gpt-oss-120b_tp8_vllm_eager.json.gz")
    whole = json.loads(gzip.decompress(Path(path).read_bytes()))
    events = [x for x in whole["traceEvents"] if x.get("cat") == "kernel"]
    for x in events:
        x["args"] = {k: x["args"][k] for k in ("device", "stream", "grid", "block")}
    bare = builders.trace(tmp_path, events)
    result = imports.read(bare, model="gpt-oss-120b")
    assert result.summary["shape_share"] > 0.9
    sizes = ("op", "m", "n", "k", "num_tokens", "moe_tp_size", "num_heads", "count",
             "window_size")  # fmt: skip
    matrix = ("gemm", "moe", "context_attention")

    def shapes(kernels):
        return {
            tuple(x.get(size) for size in sizes) for x in kernels if x["op"] in matrix
        }

    called = imports.read(str(path), model="gpt-oss-120b")
    expected = shapes(called.listings[0].kernels)
    assert shapes(result.listings[0].kernels) == expected and len(expected) == 7


@pytest.mark.shared_data
def test_a_report_of_nsight_has_the_shapes_of_its_model():
    path = builders.shared("made/h100_vit-base.sqlite")
    result = imports.read(str(path), model="vit-base")
    assert result.summary["shape_share"] > 0.99
    kernels = result.listings[0].kernels
    twice = [x for x in kernels if x["op"] == "gemm"]
    assert [x["count"] for x in twice] == [48, 12, 12, 1]
    assert any("86 of 86 matrix kernels" in x for x in result.notes)


@pytest.mark.parametrize("cut", [0, 200])
def test_the_garbage_collector_goes_on(tmp_path, cut):
    """Reading pauses it, also a file that is cut off."""
    path = Path(builders.trace(tmp_path))
    path.write_text(path.read_text()[: -cut or None])
    with pytest.raises(ValueError) if cut else contextlib.nullcontext():
        imports.read(str(path))
    assert gc.isenabled()
