"""What one of several GPUs launches and keeps, by hand and against the whole model."""

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from diffenergy.hardware import read_gpu
from diffenergy.plans import Inference, Plan, host_of
from diffenergy.workload import (
    LanguageModel,
    ModelShare,
    ModelSplit,
    Operator,
    load_model,
)
from diffenergy.workload.models import model_names
from diffenergy.workload.models._operators.elementwise import Map, Plain
from diffenergy.workload.models._operators.experts import Experts
from diffenergy.workload.models._operators.linear import Linear
from diffenergy.workload.models._operators.mixers import Convolution, GatedNorm
from diffenergy.workload.models._operators.operator import Norm
from diffenergy.workload.models._operators.sharding import Columns, Rows


@functools.cache
def language_model(name: str) -> LanguageModel:
    model = load_model(name)
    assert isinstance(model, LanguageModel)
    return model


LANGUAGE_MODELS = [x for x in model_names() if isinstance(load_model(x), LanguageModel)]


def placed(name: str, **sizes: Any) -> Inference:
    return Inference(language_model(name), Plan(**sizes))


def rows(placed: Inference, op: str, **options: Any) -> list[dict[str, Any]]:
    """Kernels of an op in the one listing of a phase."""
    (listing,) = placed.listings(**options)
    return [kernel for kernel in listing.kernels if kernel["op"] == op]


def shapes(kernels: Sequence[dict[str, Any]], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(kernel[name] for name in names) for kernel in kernels}


def test_a_dense_decoder_by_hand():
    """Llama 3.1 8B: hidden 4096, 32 heads and 8 of keys of 128, inner 14336, 128256
    words, 32 layers, on four GPUs."""
    one = placed("llama-3.1-8b", tp=4)
    options = {"phase": "decode", "batch": 2, "input_len": 100}
    assert shapes(rows(one, "gemm", **options), "m", "n", "k", "count") == {
        (2, (8 + 2 * 2) * 128, 4096, 32),
        (2, 4096, 8 * 128, 32),
        (2, 2 * 14336 // 4, 4096, 32),
        (2, 4096, 14336 // 4, 32),
        (2, 128256 // 4, 4096, 1),
    }
    attention = rows(one, "generation_attention", **options)
    assert shapes(attention, "num_heads", "num_kv_heads") == {(8, 2)}
    assert shapes(rows(one, "collective", **options), *EXCHANGE) == {
        ("custom_all_reduce", 2 * 4096 * 2, 4, 2 * 32 + 1),  # and of the look-up
        ("all_gather", 2 * 128256 * 2, 4, 1),
    }
    prompts = rows(one, "collective", phase="prefill", batch=3, input_len=50)
    every = ("custom_all_reduce", 3 * 50 * 4096 * 2, 4, 2 * 32 + 1)
    assert every in shapes(prompts, *EXCHANGE)
    stages = rows(placed("llama-3.1-8b", pp=4), "collective", phase="decode", batch=4)
    assert shapes(stages, *EXCHANGE) == {("send_recv", 4 * 4096 * 2, 2, 3)}


def test_other_hosts_are_reached_by_their_nics():
    """Of 50 GB/s: two stages of four GPUs a DGX, the third and fourth in a second one;
    16 GPUs: a reduction among the 8 of a host, then 2 S (2 - 1)/2/8 bytes a card."""
    host, size = host_of(read_gpu("h100-sxm")), 4 * 4096 * 2
    stages, both = (
        rows(Inference(language_model("llama-3.1-8b"), plan, host), "collective",
             phase="decode", batch=4)
        for plan in (Plan(tp=4, pp=4), Plan(tp=16))
    )  # fmt: skip
    sent = [x for x in stages if x["collective"] == "send_recv"]
    expected = {(size, 0, 2), (size, 50e9, 1)}
    assert shapes(sent, "bytes", "link_rate", "count") == expected
    inside = [x for x in both if x["collective"] == "custom_all_reduce"]
    over = [x for x in both if x["collective"] == "send_recv"]
    assert shapes(inside, "num_gpus", "bytes") == {(8, size)}
    assert sum(x["count"] for x in inside) == 65  # two a layer, one of the embedding
    assert size / 8 in {x["bytes"] for x in over}
    assert {x["link_rate"] for x in over} == {50e9}


EXCHANGE = ("collective", "bytes", "num_gpus", "count")
EXPERTS = {"phase": "decode", "batch": 16, "input_len": 64}
"""Qwen3 30B-A3B: hidden 2048, 128 experts of 768, 8 a token, 48 layers."""


@pytest.mark.parametrize(
    ("plan", "expert_ranks", "inner_ranks", "tokens"),
    [
        ({"tp": 4}, 1, 4, 16),
        ({"tp": 4, "ep": 2}, 2, 2, 16),
        ({"dp": 4, "ep": 4}, 4, 1, 16),  # four replicas of four sequences each
        ({"tp": 2, "dp": 2, "ep": 4}, 4, 1, 16),
        ({"dp": 4}, 1, 1, 4),
    ],
)
def test_experts_by_hand(plan, expert_ranks: int, inner_ranks: int, tokens: int):
    (row,) = rows(placed("qwen3-30b-a3b", **plan), "moe", **EXPERTS)
    assert row["num_tokens"] == tokens
    assert (row["moe_ep_size"], row["moe_tp_size"]) == (expert_ranks, inner_ranks)


def test_experts_of_replicas_exchange_tokens():
    """Every replica has 8 of 16 sequences, each of its GPUs sends half of them."""
    one = placed("qwen3-30b-a3b", tp=2, dp=2, ep=4)
    result = shapes(rows(one, "collective", **EXPERTS), *EXCHANGE)
    assert ("all_to_all", 8 // 2 * 8 * 2048 * 2, 4, 2 * 48) in result
    assert ("all_gather", 8 * 2048 * 2, 2, 48) in result
    assert ("custom_all_reduce", 8 * 2048 * 2, 2, 48 + 1) in result  # attention


def test_the_latent_is_on_every_gpu():
    """The cache of DeepSeek V3 is the same whatever the plan; 128 heads are divided.
    Shared and routed experts of its 61 layers are reduced together."""
    one, options = placed("deepseek-v3", tp=8), {"phase": "decode", "batch": 8}
    request = language_model("deepseek-v3").request(**options)
    assert one.memory(request)["kv_cache"] == one.model.memory(request)["kv_cache"]
    result = rows(one, "generation_attention", **options)
    assert shapes(result, "num_heads", "num_kv_heads") == {(16, 1)}
    sums = [x for x in rows(one, "collective", **options) if "all_reduce" in
            x["collective"]]  # fmt: skip
    assert [x["count"] for x in sums] == [2 * 61 + 1]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_one_gpu_is_the_model(name: str):
    model = language_model(name)
    for phase in ("prefill", "decode"):
        options = {"phase": phase, "batch": 2, "input_len": 64}
        one, request = placed(name), model.request(**options)
        assert one.listings(**options) == model.listings(**options)
        assert one.memory(request) == model.memory(request)


def again(x: Operator, tp: int) -> int:
    """Weights that GPUs have beside the first copy of each, by what an operator is:
    each has what is not divided, and one head of keys and values at least."""
    whole = sum(w.number for w in x.weights())
    split = getattr(x, "split", None)
    if isinstance(split, Columns):
        assert isinstance(x, Linear | Convolution)
        each = (x.inputs if isinstance(x, Linear) else x.taps) + x.bias
        more = max(tp // split.groups, 1) - 1
        return ((tp - 1) * split.whole + more * split.grouped) * each
    match x:
        case Linear(split=Rows()):
            return (tp - 1) * x.outputs * x.bias
        case Experts():  # the router; what is added behind a sum
            width = x.latent or x.hidden
            router = x.experts * (x.hidden + x.bias)
            return (tp - 1) * (router + x.experts * width * x.bias)
        case Norm() if x.heads and x.per_token == 1 != x.heads:  # of all heads
            return (max(tp // x.heads, 1) - 1) * x.cols
        case GatedNorm():
            return (tp - 1) * x.cols * (x.heads > 1)
        case Linear() | Norm():
            return (tp - 1) * whole
        case Map() | Plain():
            return 0 if x.split else (tp - 1) * whole
    return 0


@pytest.mark.parametrize("tp", (2, 8))
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_shares_add_up_to_the_model(name: str, tp: int):
    """But for copies of what is not divided, and tables filled up to a multiple."""
    model = language_model(name)
    try:
        own = Inference(model, Plan(tp=tp)).model.placed(ModelShare(ModelSplit(tp)))
        one = own.text_parameters()
    except ValueError as error:
        assert "does not divide" in str(error)
        return
    counts = model.layer_counts.items()
    more = sum(n * again(x, tp) for layer, n in counts for x in layer.operators)
    norms = 1 + sum(layer.norms * n for layer, n in counts)
    more += norms * again(Norm(model.norm, model.hidden), tp)
    more += (tp - 1) * model.embedding.positions * model.hidden
    more += -model.vocab % tp * model.hidden * (1 + model.untied)
    assert tp * one == model.text_parameters() + more


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_stages_add_up_to_the_model(name: str):
    """Stages have all layers once, and a second table where the head is tied."""
    model = language_model(name)
    shares = [ModelShare(stages=3, stage=stage) for stage in range(3)]
    parts = sum(model.placed(share).text_parameters() for share in shares)
    tied = 0 if model.untied else model.vocab * model.hidden
    assert parts == model.text_parameters() + tied
    cached = sum(model.placed(x).kv_bytes_per_token("bf16") for x in shares)
    assert cached == model.kv_bytes_per_token("bf16")


@pytest.mark.parametrize("name", ["qwen3-235b-a22b", "qwen3.5-27b"])
def test_more_gpus_never_need_more_memory(name: str):
    request = language_model(name).request(phase="decode", batch=16, input_len=1024)
    for axis in ("tp", "pp"):
        plans = (placed(name, **{axis: x}) for x in (1, 2, 4))
        sizes = [sum(x.memory(request).values()) for x in plans]
        assert sizes == sorted(sizes, reverse=True)


def test_a_quantised_model_keeps_its_formats():
    """gpt-oss: experts in mxfp4, half as many bytes on two GPUs."""
    model = language_model("gpt-oss-120b")
    experts = [
        [w.number * n for w, n in x.all_weights() if w.format]
        for x in (model, model.placed(ModelShare(ModelSplit(2))))
    ]
    assert sum(experts[0]) == 2 * sum(experts[1]) > 0


def test_rows_of_experts_are_divided():
    """Prefill of 4,096 tokens on eight GPUs: two copies of them, dispatched rows, gate
    and up of an eighth of the choices; the skip connection."""
    options = {"phase": "prefill", "batch": 1, "input_len": 4096}
    one = placed("qwen3-30b-a3b", tp=8, ep=8)
    wanted = 4096 * (2 * 2048 + 8 / 8 * (2048 + 2 * 768)) * 2 + 4096 * 2048 * 2
    request = one.model.request(**options)
    assert one.memory(request)["activations"] == wanted


def test_drafts_are_divided_too():
    options = dict(phase="decode", batch=2, speculative="eagle", accept=0.8)
    one = rows(placed("llama-3.1-8b", tp=2), "gemm", **options)
    whole = rows(placed("llama-3.1-8b"), "gemm", **options)
    assert len(one) == len(whole)
    half, full = (sum(x["n"] * x["k"] * x["count"] for x in y) for y in (one, whole))
    assert half < 0.6 * full
