"""Every kernel of passes that no trace shows, by hand, for networks of odd sizes.

Streams are written with the elements that they read and write, `~` for those that
traces do not list; products with batch, m, n, k and the operand that holds weights.
"""

import collections
from typing import Any

import pytest

from diffenergy.workload.models import load_model

from .test_configs import built

B, S, H, INNER, V, P, L = 3, 4, 30, 70, 77, 40, 2
"""Sequences, tokens of each, features, those inside the MLP, vocabulary, positions,
layers."""
A, D = 5, 6
"""Heads and features of each."""
T = B * S
Q, SCORES = T * H, B * A * S * S
BH = B * A
HALF = 0.5


def stream(fn, read, written, n=1, dtype="bf16", out=None, zeros=0.0):
    return ((fn, read, written, dtype, out or dtype, zeros), n)


def add(elements, n=1, **more):
    return stream("pointwise_add", 2 * elements, elements, n, **more)


def gemm(m, n, k, times=1, weights="b", batch=1, layout="tn", zeros=0.0):
    return (("gemm", batch, m, n, k, weights, layout, zeros), times)


def rows(op, n, cols, times=1, dtype="bf16", residual=False, zeros=0.0):
    return ((op, n, cols, dtype, residual, zeros), times)


def key(row: dict[str, Any]) -> tuple:
    zeros = row.get("zero_share", 0.0)
    match row["op"]:
        case "elementwise":
            fn = row["fn"] if row["listed"] else "~" + row["fn"]
            sizes = (round(row["elements"] * row[x], 6) for x in ("reads", "writes"))
            return (fn, *sizes, row["dtype"], row["out_dtype"], zeros)
        case "gemm":
            names = ("batch", "m", "n", "k", "weights")
            layout = row.get("layout", "tn")
            return ("gemm", *(row[x] for x in names), layout, zeros)
        case "context_attention" | "generation_attention" | "attention_backward":
            names = ("op", "batch", "q_len", "kv_len", "num_heads", "num_kv_heads",
                     "head_dim", "window_size", "causal")  # fmt: skip
            return tuple(row[x] for x in names)
        case "conv2d":
            names = ("images", "in_channels", "out_channels", "input_hw", "kernel_size",
                     "stride", "padding", "groups", "dtype")  # fmt: skip
            return ("conv2d", *(row[x] for x in names), zeros)
    return (
        *(row[x] for x in ("op", "rows", "cols", "dtype")),
        row.get("residual", False),
        zeros,
    )


def counted(kernels) -> collections.Counter:
    found = collections.Counter()
    for row in kernels:
        found[key(row)] += row["count"]
    return found


def same(kernels, expected) -> None:
    wanted = collections.Counter()
    for row, n in expected:
        wanted[row] += n
    got = counted(kernels)
    assert (got - wanted, wanted - got) == ({}, {})


def gpt2(**changes):
    sizes = dict(
        n_embd=H, n_head=A, n_layer=L, n_inner=INNER, vocab_size=V, n_positions=P
    )
    return built("gpt2", **(sizes | changes))


def opt(**changes):
    sizes = dict(
        hidden_size=H, num_attention_heads=A, num_hidden_layers=L, ffn_dim=INNER
    )
    more = dict(vocab_size=V, max_position_embeddings=P)
    return built("opt", **sizes, **more, **changes)


def llama(family="llama", **changes):
    """Six query heads of ten features, two of keys: wider than the layers."""
    sizes = dict(hidden_size=H, num_attention_heads=6, num_key_value_heads=2,
                 head_dim=10, num_hidden_layers=L, intermediate_size=INNER)  # fmt: skip
    more = dict(vocab_size=V, max_position_embeddings=P)
    return built(family, **sizes, **more, **changes)


def step(model, **choices):
    listings = model.listings(batch=B, input_len=S, phase="train", **choices)
    return [listing.kernels for listing in listings]


# Training: eager --------------------------------------------------------------------


def loss_backward():
    """Loss, logits and the head, whose weight has a gradient of its own."""
    return [
        stream("nll_loss_backward", 0, T * V, dtype="fp32"),
        stream("log_softmax_backward", 2 * T * V, T * V, dtype="fp32"),
        stream("typecast_to_bf16", T * V, T * V, dtype="fp32", out="bf16"),
        gemm(T, H, V), gemm(V, H, T, weights="none"),
    ]  # fmt: skip


def layer_norms_backward():
    return [
        stream("layernorm_backward", 2 * Q, Q, 2 * L + 1),
        stream("layernorm_weight_grad", 2 * Q, 2 * H, 2 * L + 1),
    ]


def linear_backward(outputs, inputs, n, bias=True, zeros=0.0):
    sums = stream("bias_grad", T * outputs, outputs, n)
    return [
        *([sums] if bias else []),
        gemm(T, inputs, outputs, n),
        gemm(outputs, inputs, T, n, weights="none", zeros=zeros),
    ]


def embeddings_backward():
    return [
        stream("position_grad", Q, Q / B),
        stream("zero", 0, (V + P) * H),
        rows("gather", T, H),
    ]


def attention_backward(batch, depth, n=L):
    """dP = dO V^T; dV, dQ and dK with a half of zeros in the scores."""
    return [
        gemm(S, S, depth, n, "none", batch),
        gemm(S, depth, S, 3 * n, "none", batch, zeros=HALF),
    ]


def test_gradients_of_gpt2():
    _, backward, _ = step(gpt2(), stack="eager", attention="eager")
    expected = [
        *loss_backward(), *layer_norms_backward(), *embeddings_backward(),
        add(Q, 2 * L),
        *linear_backward(H, INNER, L), *linear_backward(INNER, H, L),
        *linear_backward(H, H, L), *linear_backward(3 * H, H, L),
        stream("pointwise_mul", 2 * T * INNER, T * INNER, 3 * L),
        stream("tanh_backward", 2 * T * INNER, T * INNER, L),
        stream("scalar_mul", T * INNER, T * INNER, 4 * L),
        stream("pow", T * INNER, T * INNER, L),
        add(T * INNER, 2 * L),
        *attention_backward(BH, D),
        stream("softmax_backward", 2 * SCORES, SCORES, L, zeros=HALF),
        stream("~where", SCORES, SCORES, L, zeros=HALF),
        stream("scalar_mul", SCORES, SCORES, L, zeros=HALF),
        stream("~copy", Q, Q, 4 * L),  # q, k^T, v apart, heads joined
    ]  # fmt: skip
    same(backward, expected)


def test_gradients_of_opt():
    """Queries, keys and values apart: two sums of gradients; ReLU's zeros."""
    _, backward, _ = step(opt(), stack="eager", attention="eager")
    expected = [
        *loss_backward(), *layer_norms_backward(), *embeddings_backward(),
        add(Q, 2 * L), add(Q, 2 * L),
        *linear_backward(H, INNER, L, zeros=HALF), *linear_backward(INNER, H, L),
        *linear_backward(H, H, 4 * L),
        stream("relu_backward", 2 * T * INNER, T * INNER, L),
        *attention_backward(BH, D),
        stream("typecast_to_fp32", SCORES, SCORES, L, out="fp32", zeros=HALF),
        stream("softmax_backward", 2 * SCORES, SCORES, L, "fp32", zeros=HALF),
        stream("typecast_to_bf16", SCORES, SCORES, L, "fp32", "bf16", zeros=HALF),
        stream("scalar_mul", Q, Q, L),  # of the queries
        stream("~copy", Q, Q, 4 * L),
    ]  # fmt: skip
    same(backward, expected)


def rms_backward(n, cols, times):
    e = n * cols
    return [
        stream("pointwise_mul", e, e, times), stream("pointwise_mul", 2 * e, e, times),
        stream("sum", e, cols, times),
        stream("typecast_to_fp32", e, e, times, out="fp32"),
        stream("pointwise_mul", e, e, 2 * times, "fp32"),
        stream("pointwise_mul", 2 * e, e, times, "fp32"),
        stream("sum", e, n, times, "fp32"), stream("scalar_mul", e, e, times, "fp32"),
        add(e, times, dtype="fp32"),
        stream("typecast_to_bf16", e, e, times, "fp32", "bf16"),
    ]  # fmt: skip


def rotated(elements, n=L):
    return [
        stream("~negate", elements / 2, elements / 2, n),
        stream("~concat", elements, elements, n),
        stream("pointwise_mul", elements, elements, 2 * n), add(elements, n),
    ]  # fmt: skip


def test_gradients_of_a_llama_with_grouped_queries():
    """Qwen3: norms of queries and keys; biases of the MLP alone. Three heads share
    keys, whose gradients are summed."""
    model = llama("qwen3", mlp_bias=True)
    _, backward, _ = step(model, stack="eager", attention="eager")
    q, k, scores = T * 60, T * 20, B * 6 * S * S
    expected = [
        *loss_backward(), *rms_backward(T, H, 2 * L + 1),
        *rms_backward(T * 6, 10, L), *rms_backward(T * 2, 10, L),
        stream("zero", 0, V * H), rows("gather", T, H),
        add(Q, 2 * L), add(Q, 3 * L),  # skips; inputs of q, k, v and of gate, up
        *linear_backward(H, INNER, L), *linear_backward(INNER, H, 2 * L),
        stream("pointwise_mul", 2 * T * INNER, T * INNER, 2 * L),
        stream("silu_backward", 2 * T * INNER, T * INNER, L),
        *linear_backward(H, 60, L, bias=False), *linear_backward(60, H, L, bias=False),
        *linear_backward(20, H, 2 * L, bias=False),
        *rotated(q), *rotated(k), *attention_backward(B * 6, 10),
        stream("typecast_to_fp32", scores, scores, L, out="fp32", zeros=HALF),
        stream("softmax_backward", 2 * scores, scores, L, "fp32", zeros=HALF),
        stream("typecast_to_bf16", scores, scores, L, "fp32", "bf16", zeros=HALF),
        stream("scalar_mul", scores, scores, L, zeros=HALF),
        stream("~copy", q, q, 2 * L), stream("~sum_of_groups", q, q / 3, 2 * L),
    ]  # fmt: skip
    same(backward, expected)


def test_optimizer_of_a_small_step():
    model = gpt2()
    *_, fused = step(model)
    *_, eager = step(model, stack="eager")
    n = (
        (V + P) * H
        + L * (4 * H * H + 4 * H + 2 * H * INNER + INNER + H + 4 * H)
        + 2 * H
    )
    assert model.parameters() == n
    norm = stream("gradient_norm", n, 0)
    adamw = stream("adamw", 3.5 * n, 3.5 * n, dtype="fp32")  # 14 B of 4 B each
    same(fused, [norm, adamw])
    same(eager, [norm, stream("scalar_mul", n, n), adamw])


# Training: fused --------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_gradients_of_a_fused_llama(attention: str):
    """Queries, keys and values in one layer of 100 features; a window of 3."""
    model = llama("mistral", sliding_window=3)
    _, backward, _ = step(model, attention=attention)
    q, k = T * 60, T * 20
    visible = B * 6 * S * (S + 1) / 2
    inside = [
        stream("unpermute_backward", q, q, L), *attention_backward(B * 6, 10),
        stream("softmax_backward", 2 * visible, visible, L),
        stream("~sum_of_groups", q, q / 3, 2 * L),
        stream("permute_backward", q + 2 * k, q + 2 * k, L),
    ]  # fmt: skip
    if attention == "flash":
        inside = [(("attention_backward", B, S, S, 6, 2, 10, 3, True), L)]
    expected = [
        gemm(T, H, V), gemm(V, H, T, weights="none"),
        stream("rmsnorm_backward", 3 * Q, Q, 2 * L + 1),
        *linear_backward(H, INNER, L, bias=False),
        stream("silu_mul_backward", 3 * T * INNER, 2 * T * INNER, L),
        *linear_backward(2 * INNER, H, L, bias=False),
        *linear_backward(H, 60, L, bias=False), *inside,
        stream("rope", q + k, q + k, L), *linear_backward(100, H, L, bias=False),
        rows("gather", T, H),
    ]  # fmt: skip
    same(backward, expected)


def test_a_fused_forward_pass_with_eager_attention():
    forward, *_ = step(llama(), attention="eager")
    q, k = T * 60, T * 20
    expected = [
        rows("gather", T, H), rows("rmsnorm", T, H),
        rows("rmsnorm", T, H, 2 * L, residual=True),
        gemm(T, 100, H, L), stream("rope", q + k, q + k, L),
        stream("permute", q + 2 * k, q + 2 * k, L),
        stream("~repeat_kv", q / 3, q, 2 * L), gemm(S, S, 10, L, "none", B * 6),
        rows("softmax", B * 6 * S, (S + 1) / 2, L),
        gemm(S, 10, S, L, "none", B * 6, zeros=HALF), stream("unpermute", q, q, L),
        gemm(T, H, 60, L), gemm(T, 2 * INNER, H, L),
        stream("silu_mul", 2 * T * INNER, T * INNER, L), gemm(T, H, INNER, L),
        gemm(T, V, H), rows("softmax", T, V),
    ]  # fmt: skip
    same(forward, expected)


@pytest.mark.parametrize(
    ("fn", "known", "again"),
    [("gelu_new", "gelu", True), ("gelu", "gelu", True), ("relu", "relu", False)],
)
def test_a_fused_activation_runs_again_for_its_weight(fn, known, again):
    """But not where ReLU's output tells its gradient, nor where all does."""
    model = gpt2(activation_function=fn)
    found = counted(step(model)[1])
    assert found[(known, T * INNER, T * INNER, "bf16", "bf16", 0.0)] == (
        L if again else 0
    )
    assert (
        found[(f"{known}_backward", 2 * T * INNER, T * INNER, "bf16", "bf16", 0.0)] == L
    )
    found = counted(step(model, checkpointing=True)[1])
    assert found[(known, T * INNER, T * INNER, "bf16", "bf16", 0.0)] == L
    eager, *_ = step(model, stack="eager")
    names = {row[0]: n for row, n in counted(eager).items()}
    assert ("tanh" in names) == (fn == "gelu_new")
    (serving,) = model.listings(batch=B, input_len=S, phase="prefill")
    assert any(row[0] == known for row in counted(serving.kernels))


@pytest.mark.parametrize("width", [64 * 80 - 2, 64 * 80])
def test_wide_bias_gradients_take_one_stage(width: int):
    """llm.c: 64 columns for each of 80 SMs; partial sums are fp32."""
    found = counted(step(gpt2(n_inner=width))[1])
    reduced = {row[:3]: n for row, n in found.items() if row[0] == "bias_reduce"}
    expected = {("bias_reduce", 4 * n, n): L for n in (3 * H, width)}
    expected[("bias_reduce", 4 * H, H)] = 2 * L
    if width == 64 * 80:
        expected.pop(("bias_reduce", 4 * width, width))
    assert reduced == expected


# Inference --------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "kv"), [(S, S), (1, 9)])
def test_eager_attention_of_the_serving_stack(q: int, kv: int):
    """Three heads share keys: products over all heads, a scale and a mask in one."""
    (listing,) = llama().listings(
        batch=B,
        input_len=kv,
        phase="prefill" if q > 1 else "decode",
        attention="eager",
        base=False,
    )
    zeros = HALF if q > 1 else 0.0  # a decode step masks nothing
    scores, t = B * 6 * q * kv, B * q
    expected = [
        rows("gather", t, H), rows("rmsnorm", t, H), gemm(t, 100, H, L),
        stream("rope_kv_write", t * 100, t * 100, L),
        gemm(q, kv, 10, L, "none", B * 6),
        stream("scale_mask", scores, scores, L, zeros=zeros),
        rows("softmax", B * 6 * q, kv, L, "fp32", zeros=zeros),
        gemm(q, 10, kv, L, "none", B * 6, zeros=zeros),
        gemm(t, H, 60, L), gemm(t, 2 * INNER, H, L),
        stream("silu_mul", 2 * t * INNER, t * INNER, L), gemm(t, H, INNER, L),
        rows("rmsnorm", t, H, 2 * L, residual=True),
        gemm(B, V, H), rows("softmax", B, V, dtype="fp32"),
    ]  # fmt: skip
    same(listing.kernels, expected)


def rms_forward(n, cols, times):
    e = n * cols
    return [
        stream("~typecast_to_fp32", e, e, times, out="fp32"),
        stream("unspecified_scalar", e, e, times, "fp32"),
        stream("~mean", e, n, times, "fp32"),
        stream("scalar_add", n, n, times, "fp32"),
        stream("unspecified_scalar", n, n, times, "fp32"),
        stream("pointwise_mul", e, e, times, "fp32"),
        stream("~typecast_to_bf16", e, e, times, "fp32", "bf16"),
        stream("scalar_mul", e, e, times),
    ]  # fmt: skip


@pytest.mark.parametrize("flash", [True, False])
def test_an_eager_decode_step_of_qwen3(flash: bool):
    """Features of `nn.Linear` come first; the cache of 9 tokens grows by a copy."""
    model = llama("qwen3", architectures=["Qwen3ForCausalLM"])
    (listing,) = model.listings(
        batch=B, input_len=9, phase="decode", stack="eager",
        attention="flash" if flash else "eager",
    )  # fmt: skip
    scores, keys = B * 6 * 9, B * 9 * 60
    attention = [
        gemm(1, 9, 10, L, "none", 18), gemm(1, 10, 9, L, "none", 18),
        stream("scalar_mul", scores, scores, L), 
        stream("pointwise_add", scores, scores, L),
        stream("typecast_to_fp32", scores, scores, L, out="fp32"),
        rows("softmax", 18, 9, L, "fp32"),
        stream("typecast_to_bf16", scores, scores, L, "fp32", "bf16"),
        stream("~copy", B * 60, B * 60, 2 * L),
    ]  # fmt: skip
    if flash:
        attention = [(("generation_attention", B, 1, 9, 6, 2, 10, 0, True), L)]
    expected = [
        (("gemm", 1, 5, 1, 1, "none", "tn", 0.0), 1),  # angles of the new token
        stream("scalar_mul", 10, 10, 2, "fp32"),
        *rms_forward(B, H, 2 * L + 1), *rms_forward(6 * B, 10, L),
        *rms_forward(2 * B, 10, L),
        gemm(60, B, H, L, "a"), gemm(20, B, H, 2 * L, "a"), gemm(H, B, 60, L, "a"),
        add(B * H, 2 * L), *rotated(B * 60), *rotated(B * 20), *attention,
        gemm(INNER, B, H, 2 * L, "a"), stream("silu", B * INNER, B * INNER, L),
        stream("pointwise_mul", 2 * B * INNER, B * INNER, L), gemm(H, B, INNER, L, "a"),
        stream("~repeat_kv", keys / 3, keys, 2 * L),
        stream("~concat", B * 9 * 20, B * 9 * 20, 2 * L), gemm(V, B, H, 1, "a"),
    ]  # fmt: skip
    same(listing.kernels, expected)


@pytest.mark.parametrize("name", ["bert", "vit", "mobilevit"])
def test_encoders_with_fused_attention(name: str):
    """One kernel a layer, that masks nothing, for two products and all between."""
    model = built(name)
    given: dict[str, Any] = dict(input_len=7) if name == "bert" else {}
    eager, flash = (
        counted(model.listings(batch=B, attention=kind, **given)[0].kernels)
        for kind in ("eager", "flash")
    )
    tokens, heads = {"bert": 7, "vit": 26}.get(name), 3
    # (sequences, tokens, features of a head): layers
    calls: dict[tuple[int, int, int], int] = {(B, tokens or 0, 16): 2}
    if name == "mobilevit":  # sequences of every fourth pixel at 32^2, 16^2 and 8^2
        calls = {(4 * B, 256, 12): 2, (4 * B, 64, 16): 4, (4 * B, 16, 20): 3}
    added = {
        ("context_attention", n, s, s, heads, heads, d, 0, False): layers
        for (n, s, d), layers in calls.items()
    }
    assert flash - eager == added
    gone = eager - flash
    assert {row: n for row, n in gone.items() if row[0] == "gemm"} == {
        ("gemm", heads * n, s, *sizes, "none", "tn", 0.0): layers
        for (n, s, d), layers in calls.items()
        for sizes in ((s, d), (d, s))
    }
    softmax = {row[1:3]: n for row, n in gone.items() if row[0] == "softmax"}
    assert softmax == {(heads * n * s, s): k for (n, s, _), k in calls.items()}
    copies = {row[1]: n for row, n in gone.items() if row[0] == "~copy"}
    assert copies == {n * s * d * heads: 4 * k for (n, s, d), k in calls.items()}


@pytest.mark.parametrize(
    ("family", "head", "pooler"),
    [
        ("vit", [gemm(9, B, 48, 1, "a")],
         [gemm(20, B, 48, 1, "a"), stream("tanh", B * 20, B * 20)]),
        ("mobilevit", [gemm(9, B, 88, 1, "a")], []),
        ("gpt2", [gemm(V, B * 7, H, 1, "a")], []),
        ("bert", [], []), ("resnet", [], []),
    ],
)  # fmt: skip
def test_heads(family: str, head: list, pooler: list):
    """What a classifier or a language model has beside its base model."""
    more: dict[str, Any] = dict(num_labels=9, pooler_output_size=20)
    model = gpt2() if family == "gpt2" else built(family, **more)
    given: dict[str, Any] = dict(stack="eager", phase="prefill")
    given |= dict(input_len=7) if family in ("bert", "gpt2") else {}
    whole, base = (
        counted(model.listings(batch=B, base=base, **given)[0].kernels)
        for base in (False, True)
    )
    assert (whole - base, base - whole) == (dict(head), dict(pooler))


@pytest.mark.parametrize(
    ("name", "calls", "with_head"),
    [
        ("gpt2", 161, 163), ("opt-1.3b", 269, 271), ("qwen2-1.5b", 368, 370),
        ("bert-large", 440, 440), ("vit-large", 416, 416), ("resnet-101", 353, 353),
        ("mobilevit-small", 330, 330), ("qwen3-8b", 15 * 36 + 4, 15 * 36 + 6),
    ],
)  # fmt: skip
def test_module_calls(name: str, calls: int, with_head: int):
    """As counted on the published modules."""
    model = load_model(name)
    assert (model.module_calls(True), model.module_calls(False)) == (calls, with_head)


def test_bytes_of_weights_and_cache():
    model = llama()
    projections = 2 * H * (60 + 20)
    layers = L * (projections + 3 * H * INNER)
    others = 2 * V * H + L * 2 * H + H  # stay in 16 bit
    assert model.weight_bytes("bf16") == 2 * (layers + others)
    assert model.weight_bytes("fp8") == layers + 2 * others
    assert model.kv_bytes_per_token("fp16") == 2 * L * 2 * 10 * 2
    assert model.kv_bytes_per_token("fp32") == 2 * L * 2 * 10 * 4
    assert built("bert").kv_bytes_per_token("bf16") == 0


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("qwen2", L * (60 + 2 * 20)),
        ("qwen3", L * 2 * 10),
        ("llama", 0),
    ],
)
@pytest.mark.parametrize(
    ("changes", "biases"),
    [
        ({}, 0),
        ({"mlp_bias": True}, L * (2 * INNER + H)),
        ({"attention_bias": True}, L * (60 + 2 * 20 + H)),
        ({"tie_word_embeddings": True}, -V * H),
    ],
)
def test_parameters_of_the_relatives(family: str, more: int, changes, biases: int):
    """Biases of queries, keys and values, norms of queries and keys."""
    if family == "qwen2" and "attention_bias" in changes:
        biases = 0  # has its own
    least = llama().parameters()
    assert llama(family, **changes).parameters() == least + more + biases


def test_parameters_of_a_mixture():
    sizes = dict(hidden_size=H, num_attention_heads=A, num_hidden_layers=L)
    more = dict(vocab_size=V, intermediate_size=INNER, num_local_experts=5)
    n = built("mixtral", **sizes, **more).parameters()
    layer = 4 * H * H + 2 * H + 5 * (3 * H * INNER + H)
    assert n == 2 * V * H + L * layer + H
