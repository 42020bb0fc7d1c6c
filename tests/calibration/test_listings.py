import collections
import dataclasses

import pytest

from calibration.listings import complete_listing
from diffenergy.workload import Listing, normalise_kernel, read_listings


def launches(kernels):
    return sum(kernel["count"] for kernel in kernels)


def kind(kernel):
    """Class of a kernel as the study of whole passes counts them."""
    if kernel["op"] == "gemm":
        return "gemm" if kernel["batch"] == 1 else "bmm"
    if kernel["op"] != "elementwise":
        return kernel["op"]
    known = {"nchw_to_nhwc": "layout", "nhwc_to_nchw": "layout", "max_pool": "pool"}
    known |= {"copy": "copy", "batch_norm": "batch_norm"}
    return known.get(kernel["fn"], "elementwise")


@pytest.fixture(scope="module")
def traced(shared):
    path = shared / "data" / "energaizer" / "workloads.jsonl"
    return {listing.name: listing for listing in read_listings(path)}


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name, calls, counts",
    [
        (
            "optmodel_opt-1p3b_pbf16_b8_s1024_modeprefill",
            269,
            dict(gemm=144, bmm=48, elementwise=171, softmax=24, layernorm=49, copy=96),
        ),
        (
            "resnet101__pbf16_b32_freq900",
            353,
            dict(
                conv2d=104, elementwise=133, batch_norm=104, layout=208, pool=1, gemm=1
            ),
        ),
        (
            "gpt2model_gpt2_pbf16_b1_s128_modeprefill",
            161,
            dict(gemm=48, bmm=24, elementwise=145, softmax=12, layernorm=25, copy=12),
        ),
    ],
)
def test_launches_of_whole_passes(traced, name, calls, counts):
    """Launches by class; in all 532, 551 and 266."""
    listing = complete_listing(traced[name])
    result = collections.Counter()
    for kernel in listing.kernels:
        result[kind(kernel)] += kernel["count"]
    assert dict(result) == counts
    assert listing.module_calls == calls


@pytest.mark.shared_data
def test_listed_kernels_keep_their_shapes_and_counts(traced):
    for listing in traced.values():
        listed = [k for k in complete_listing(listing).kernels if k["listed"]]
        assert launches(listed) == launches(listing.kernels), listing.name


QWEN = dict(name="q", model="qwen2model", precision="bf16", batch=1, seq_len=128)


def qwen(**fields):
    """One Qwen2 layer's attention at S = D = 128: all sizes of the scores coincide."""
    rows = [
        dict(op="gemm", batch=12, m=128, n=128, k=128, dtype="bf16", count=2),
        dict(op="softmax", rows=12 * 128, cols=128, dtype="fp32"),
        dict(op="elementwise", fn="pointwise_add", elements=12 * 128**2, dtype="bf16")
        | dict(count=3),
        dict(op="gemm", m=1536, n=128, k=1536, dtype="bf16"),
    ]
    kernels = tuple(normalise_kernel(row, "test") for row in rows)
    return Listing(**{**QWEN, "kernels": kernels, **fields})


def test_rows_that_share_a_shape_are_split():
    kernels = complete_listing(qwen()).kernels
    products = [k for k in kernels if k["op"] == "gemm" and k["batch"] == 12]
    assert [(k.get("zero_share", 0), k["count"]) for k in products] == [
        (0.5, 1),
        (0, 1),
    ]
    adds = [k for k in kernels if k.get("fn") == "pointwise_add"]
    assert [(k["reads"], k["count"]) for k in adds] == [(1, 1), (2, 2)]
    (linear,) = [k for k in kernels if k["op"] == "gemm" and k["batch"] == 1]
    assert (linear["layout"], linear["weights"]) == ("tn", "a")


def test_grouped_queries_repeat_keys_and_rotate():
    """12 heads on 2 KV heads: k has 2 x 128 x 128 elements, q and scores six times."""
    rest = [k for k in complete_listing(qwen()).kernels if not k["listed"]]
    q, k = 12 * 128 * 128, 2 * 128 * 128
    result = [(x["fn"], x["elements"], x["count"]) for x in rest]
    assert result == [
        ("copy", q, 1),
        ("repeat_kv", q, 2),
        ("negate", q / 2, 1),
        ("concat", q, 1),
        ("negate", k / 2, 1),
        ("concat", k, 1),
    ]
    assert rest[1]["reads"] == pytest.approx(1 / 6)


def test_other_and_completed_listings_are_left_alone():
    others = [qwen(**x) for x in (dict(model="llama"), dict(model=None))]
    again = complete_listing(qwen())
    for listing in (*others, qwen(module_calls=9), again):
        assert complete_listing(listing) is listing
    again = dataclasses.replace(again, module_calls=0)
    assert complete_listing(again) is again


@pytest.mark.shared_data
def test_depthwise_convolutions_of_mobilevit(traced):
    """Seven inverted residuals; the dense 3x3 convolutions keep one group."""
    listing = complete_listing(traced["mobilevitmodel_small_pbf16_b8_freq900"])
    grouped = collections.Counter()
    for kernel in listing.kernels:
        if kernel["op"] == "conv2d" and kernel["groups"] > 1:
            assert kernel["groups"] == kernel["in_channels"]
            grouped[kernel["in_channels"], kernel["input_hw"]] += kernel["count"]
    assert grouped == {
        (64, 128): 1,
        (128, 128): 1,
        (256, 64): 3,
        (384, 32): 1,
        (512, 16): 1,
    }
