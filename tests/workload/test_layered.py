"""Layers that differ, by hand: latent attention, windows, chunks, indexes, states,
formats of single operators."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from diffenergy.workload import LanguageModel, ModelShare, ModelSplit, load_model

from .builders import flop, language_model
from .published import of

ATTENTION = ("context_attention", "generation_attention")


def rows(model: LanguageModel, op: str | tuple[str, ...], **choices: Any) -> list[dict]:
    """Kernels of one op of a pass without the head."""
    choices = {"base": True} | choices
    (listing,) = model.listings(**choices)
    ops = (op,) if isinstance(op, str) else op
    return [k for k in listing.kernels if k["op"] in ops]


LATENT = of(
    model_type="deepseek_v3", h=7168, layers=1, heads=128, kv=128, inner=18432,
    expert=2048, vocab=129280, positions=163840, q_lora_rank=1536, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=1,
    n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
)  # fmt: skip


def test_latent_attention_is_expanded_in_prefill_and_absorbed_in_decode():
    """FLOP per pair of query and key: 2 H (n + r + v) = 81,920 and 2 H (2 c + r) =
    278,528; a cached token is read as 576 elements, once for all heads."""
    model = language_model(**LATENT)
    (many,) = rows(model, ATTENTION, phase="prefill", input_len=64)
    (one,) = rows(model, ATTENTION, phase="decode", input_len=64)
    assert (many["num_heads"], many["num_kv_heads"]) == (128, 128)
    assert 2 * 128 * (many["head_dim"] + many["v_head_dim"]) == 81_920
    assert (one["num_heads"], one["num_kv_heads"]) == (128, 1)
    assert 2 * 128 * (one["head_dim"] + one["v_head_dim"]) == 278_528
    assert one["shared_kv"] and not many["shared_kv"]
    assert one["head_dim"] * 2 == 1_152 == model.kv_bytes_per_token("bf16")
    # the expansion costs the same whether keys or queries and outputs take it
    products = rows(model, "gemm", phase="prefill", input_len=64)
    (expanded,) = [k for k in products if k["k"] == 512]
    assert (expanded["m"], expanded["n"]) == (64, 128 * 256)
    products = rows(model, "gemm", phase="decode", input_len=64)
    assert flop([k for k in products if k["batch"] > 1]) == flop([expanded]) / 64
    plain = language_model(**LATENT | {"q_lora_rank": None})
    first = rows(plain, "gemm", phase="decode", input_len=8)[0]
    assert (first["k"], first["n"]) == (7168, 128 * 192 + 576)


def test_an_index_picks_the_keys_that_are_read():
    """V3.2: 64 heads of 128 score all keys in fp8 (2 x 64 x 129 FLOP a pair), attention
    reads 2,048 of them, absorbed in prefill, too."""
    index = dict(index_topk=2048, index_n_heads=64, index_head_dim=128)
    model = language_model(**LATENT | {"model_type": "deepseek_v32"}, **index)
    scores, picked = rows(model, ATTENTION, phase="decode", input_len=100_000)
    assert (scores["kv_len"], scores["dtype"]) == (100_000, "fp8")
    assert 2 * 64 * (scores["head_dim"] + scores["v_head_dim"]) == 16_512
    assert picked["kv_len"] == 2048
    _, picked = rows(model, ATTENTION, phase="prefill", input_len=4096)
    assert (picked["num_kv_heads"], picked["window_size"]) == (1, 2048)
    (softmax,) = rows(model, "softmax", phase="prefill", input_len=4096)
    assert softmax["cols"] == 2048  # of the keys before each query, the mean
    maps = rows(model, "elementwise", phase="decode", input_len=4096)
    assert [k["count"] for k in maps if k["fn"] == "quantize"] == [1]
    (short,) = rows(language_model(**LATENT), ATTENTION, phase="decode", input_len=1000)
    _, all_of_them = rows(model, ATTENTION, phase="decode", input_len=1000)
    assert all_of_them == short


def test_layers_that_share_an_index_have_none_of_their_own():
    index = dict(index_topk=2048, index_n_heads=32, index_head_dim=128)
    both = LATENT | index | {"model_type": "glm_moe_dsa", "num_hidden_layers": 2}
    both["first_k_dense_replace"] = 2
    kinds = ["full", "shared"]
    model, alike = language_model(**both, indexer_types=kinds), language_model(**both)
    weights = 1536 * 32 * 128 + 7168 * 128 + 7168 * 32 + 2 * 128
    assert alike.parameters() - model.parameters() == weights
    cached = alike.kv_bytes_per_token("bf16") - model.kv_bytes_per_token("bf16")
    assert cached == 128 * 2


GPT_OSS = of(
    model_type="gpt_oss", h=64, layers=4, heads=8, kv=2, inner=48, vocab=100,
    positions=4096, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
    sliding_window=32, attention_bias=True,
    layer_types=["sliding_attention", "full_attention"] * 2,
)  # fmt: skip


def test_windows_stop_the_cache():
    """Two layers of 2 x 2 heads of 16 keep 32 tokens, two keep all."""
    model = language_model(**GPT_OSS)
    each = 2 * 2 * 16 * 2
    assert model.kv_bytes_per_token("bf16") == 2 * each
    assert model.kv_bytes_per_token("bf16", windowed=True) == 2 * each
    for length in (16, 32, 1000):
        request = model.request(phase="decode", input_len=length, batch=3)
        cached = model.memory(request)["kv_cache"]
        assert cached == 3 * 2 * each * (length + min(length, 32))
    windows = {
        (k["window_size"], k["sinks"], k["count"])
        for k in rows(model, ATTENTION, phase="decode", input_len=1000)
    }
    assert windows == {(32, True, 2), (0, True, 2)}


LLAMA4 = of(
    model_type="llama4_text", h=64, layers=4, heads=4, kv=2, inner=32, vocab=50,
    positions=10_000, head_dim=16, intermediate_size_mlp=96, num_local_experts=8,
    num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=100,
)  # fmt: skip


def test_chunks_attend_apart():
    """250 tokens in blocks of 100: two whole ones and one of 50; step 250 sees 50."""
    model = language_model(**LLAMA4)
    shapes = {
        (k["batch"], k["q_len"], k["kv_len"], k["count"])
        for k in rows(model, ATTENTION, phase="prefill", input_len=250, batch=3)
    }
    assert shapes == {(6, 100, 100, 3), (3, 50, 50, 3), (3, 250, 250, 1)}
    steps = {
        (k["kv_len"], k["count"])
        for k in rows(model, ATTENTION, phase="decode", input_len=250)
    }
    assert steps == {(50, 3), (250, 1)}
    assert len(rows(model, "moe", phase="decode", input_len=8)) == 1


def test_blocks_of_keys_are_chosen():
    """MiniMax M3: layers but the first read 4 blocks of 8 keys, all are kept."""
    sparse = dict(
        sparse_num_index_heads=2, sparse_index_dim=16, sparse_topk_blocks=4,
        sparse_block_size=8, sparse_attention_freq=[0, 1, 1],
    )  # fmt: skip
    config = of(
        model_type="minimax_m3", h=64, layers=3, heads=4, kv=2, inner=32, vocab=50,
        positions=10_000, head_dim=16, num_local_experts=8, num_experts_per_tok=2,
        moe_layer_freq=[0, 1, 1], dense_intermediate_size=48,
        sparse_attention_config=sparse,
    )  # fmt: skip
    model = language_model(**config)
    calls = [
        (k["kv_len"], k["num_heads"], k["count"])
        for k in rows(model, ATTENTION, phase="decode", input_len=500)
    ]
    assert calls == [(500, 4, 1), (500, 2, 2), (32, 4, 2)]
    assert model.kv_bytes_per_token("bf16") == 2 * (3 * 2 * 2 * 16 + 2 * 16)


def test_compressed_entries_are_kept():
    """DeepSeek V4: an entry of `d` elements for 4 or 128 tokens, with an index of `id`
    for the former; a window of raw ones as state."""
    config = of(
        model_type="deepseek_v4", h=64, layers=3, heads=4, kv=1, expert=32, vocab=50,
        positions=100_000, head_dim=32, q_lora_rank=16, o_groups=2, o_lora_rank=8,
        sliding_window=128, hc_mult=4, compress_ratios=[0, 4, 128, 0],
        index_n_heads=2, index_head_dim=16, index_topk=64, n_routed_experts=8,
        n_shared_experts=1, num_experts_per_tok=2,
    )  # fmt: skip
    model = language_model(**config)
    assert model.kv_bytes_per_token("bf16") == 2 * ((32 + 16) / 4 + 32 / 128)
    assert model.state_bytes() == 3 * 128 * 32 * 2
    read = [
        (k["kv_len"], k["num_heads"])
        for k in rows(model, ATTENTION, phase="decode", input_len=12_800)
    ]
    assert sorted(read) == [(64, 4), (100, 4), (128, 4), (3200, 2)]


def test_each_operator_has_its_own_type():
    """Attention in 16 bit, experts in 4 of weights and 8 of activations; a type of the
    request holds for every linear layer, also where the checkpoint's is not read."""
    exceptions = ["model.layers.*.self_attn", "lm_head"]
    stated = {"quant_method": "mxfp4", "modules_to_not_convert": exceptions}
    model = language_model(**GPT_OSS, quantization_config=stated)
    choices = dict(phase="decode", input_len=8)
    (experts,) = rows(model, "moe", **choices)
    assert (experts["dtype"], experts["weight_dtype"]) == ("mxfp8", "mxfp4")
    assert {k["dtype"] for k in rows(model, "gemm", **choices)} == {"bf16"}
    (listing,) = model.listings(**choices)
    assert listing.precision == "mxfp4"
    (wide,) = rows(model, "moe", dtype="bf16", **choices)
    assert wide["dtype"] == "bf16" and "weight_dtype" not in wide
    narrow = rows(model, "gemm", dtype="int4", **choices)
    kinds = {(k["dtype"], k.get("weight_dtype", "")) for k in narrow}
    assert kinds == {("bf16", "int4"), ("bf16", "")}  # the router stays
    same = rows(model, ("moe", "gemm"), dtype="mxfp4", **choices)
    assert same == rows(model, ("moe", "gemm"), **choices)
    unread = language_model(**GPT_OSS, quantization_config={"quant_method": "gguf"})
    assert unread.listings(dtype="int4", **choices)[0].precision == "int4"


def test_a_sidecar_says_what_the_config_does_not(tmp_path: Path):
    plain = GPT_OSS | {"architectures": ["GptOssForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    before = load_model(tmp_path).weight_bytes("bf16")
    sidecar = {
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head", "model.layers.0*"],
        }
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(sidecar))
    model = load_model(tmp_path)
    assert isinstance(model, LanguageModel)
    request = model.request()
    assert (request.dtype, request.kv_dtype) == ("nvfp4", "fp8")
    layer = 64 * (12 + 8) * 16 + 4 * 3 * 64 * 48
    saved = 3 * layer * (2 - 0.5625)  # the first layer is excluded
    assert model.weight_bytes("nvfp4") == pytest.approx(before - saved, rel=1e-12)
    assert sum(model.layer_counts.values()) == 4 and len(model.layer_counts) == 3


def test_experts_have_the_routing_of_the_request():
    model = language_model(**GPT_OSS)
    for routing, stated in ((None, "lognormal_0.8"), ("balanced", "balanced")):
        (experts,) = rows(model, "moe", routing=routing, phase="decode", input_len=8)
        assert experts["distribution"] == stated
    mixture = load_model("qwen3-30b-a3b")
    (forward, *_) = mixture.listings(phase="train", input_len=8)
    trained = {x["distribution"] for x in forward.kernels if x["op"] == "moe"}
    assert trained == {"random"}


def test_a_step_of_drafted_tokens():
    """3 drafted tokens: a pass over 4 tokens that reads the cache once (4 times the
    heads), its logits, and 3 passes of the drafting layer."""
    further = {"num_nextn_predict_layers": 1}
    model = language_model(**GPT_OSS, **further)
    choices = dict(phase="decode", input_len=500, batch=2, base=False)
    plain = rows(model, ("moe", *ATTENTION), **choices)
    drafts = dict(speculative="mtp", accept=0.8, draft_tokens=3)
    rows_of_step = rows(model, ("moe", *ATTENTION), **choices, **drafts)
    checked, drafted = rows_of_step[: len(plain)], rows_of_step[len(plain) :]
    for before, after in zip(plain, checked, strict=True):
        name = "num_tokens" if before["op"] == "moe" else "num_heads"
        assert after == before | {name: 4 * before[name]}
    passes = [(k["op"], k["count"]) for k in drafted]
    assert passes == [("generation_attention", 3), ("moe", 3)]
    heads = [
        (k["m"], k["count"]) for k in rows(model, "gemm", **choices, **drafts)
        if k["n"] == 100
    ]  # fmt: skip
    assert heads == [(2 * 4, 1), (2, 3)]
    # a predicting layer is like the last of two: the first is dense
    model = language_model(**LATENT | {"num_hidden_layers": 2}, **further)
    experts = rows(model, "moe", phase="decode", input_len=8, **drafts)
    assert [k["count"] for k in experts] == [1, 3]


def test_a_drafting_model_has_weights_and_a_cache():
    model, choices = load_model("qwen3-32b"), dict(phase="decode", input_len=1000)
    plain = model.memory(model.request(**choices))
    drafts = dict(speculative="draft=qwen3-0.6b", accept=0.5)
    both = model.memory(model.request(**choices, **drafts))
    assert both["weights"] - plain["weights"] == 2 * 596_049_920
    assert both["kv_cache"] - plain["kv_cache"] == 1000 * 114_688


def test_steps_of_a_generation_are_fewer():
    model = load_model("llama-3.1-8b")
    choices = dict(input_len=64, output_len=33)
    _, plain = model.listings(**choices)
    drafts = dict(speculative="eagle", accept=0.8, draft_tokens=3)
    _, step = model.listings(**choices, **drafts)
    tokens = (1 - 0.8**4) / (1 - 0.8)
    assert plain.passes == 32
    assert step.passes == pytest.approx(32 / tokens)
    heads = sum(k["count"] for k in step.kernels if k.get("n") == 128256)
    assert math.isclose(heads, 32 / tokens)


def test_replicas_that_share_experts_route_their_tokens_together():
    """2 GPUs a layer, 4 for its experts: two replicas' tokens, each GPU with a quarter
    of the experts; two all-to-all of all choices, then an all-gather."""
    model = language_model(**GPT_OSS)
    share = ModelShare(ModelSplit(tp=2, ep=4))
    (listing,) = model.placed(share).listings(phase="decode", input_len=8, batch=6)
    (experts,) = [k for k in listing.kernels if k["op"] == "moe"]
    assert (experts["num_tokens"], experts["moe_ep_size"]) == (12, 4)
    sent = {
        (k["collective"], k["bytes"], k["num_gpus"], k["count"])
        for k in listing.kernels
        if k["op"] == "collective" and k["collective"] in ("all_to_all", "all_gather")
    }
    assert ("all_to_all", 6 * 64 * 2 // 2 * 2, 4, 2 * 4) in sent
    assert ("all_gather", 6 * 64 * 2, 2, 4) in sent


def test_stages_send_what_they_make_to_the_next():
    """Four stages, one of which begins in another host: two transfers of 6 tokens of 64
    features in 16 bit within the host, one over the network."""
    share = ModelShare(stages=4, far=1, rate=5e10)
    model = language_model(**GPT_OSS).placed(share)
    kernels = rows(model, "collective", phase="decode", input_len=8, batch=6)
    sent = [(k["collective"], k["bytes"], k["link_rate"], k["count"]) for k in kernels]
    size = 6 * 64 * 2
    assert sent == [("send_recv", size, 0, 2), ("send_recv", size, 5e10, 1)]
