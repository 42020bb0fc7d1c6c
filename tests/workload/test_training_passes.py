"""Every kernel of training passes that no trace shows, by hand, for odd sizes."""

from typing import Any

import pytest

from diffenergy.workload import ModelShare, ModelSplit, TrainedModel

from .builders import (
    BH,
    HALF,
    INNER,
    SCORES,
    B,
    D,
    H,
    L,
    P,
    Q,
    S,
    T,
    V,
    add,
    counted,
    dense,
    gemm,
    gpt2,
    llama,
    mpt,
    opt,
    rotated,
    rows,
    same,
    same_counts,
    step,
    stream,
)


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


DENSE = {"qwen3": (2, "silu"), "gemma2": (4, "gelu"), "cohere": (1, "silu")}
"""Of a layer norms; the activation."""


@pytest.mark.parametrize("kind", DENSE)
def test_gradients_of_dense_families(kind: str):
    """Five sums a layer: of skips, and of an input's gradients by several layers (in
    Command R gate and up read the queries' input, too). Qwen3 has norms of queries and
    keys, and here biases of the MLP alone. Three heads share keys, whose gradients are
    summed."""
    norms, fn = DENSE[kind]
    bias = kind == "qwen3"
    model = llama("qwen3", mlp_bias=True) if bias else dense(kind)
    forward, backward, _ = step(model, stack="eager", attention="flash")
    q, k = T * 60, T * 20
    heads = [*rms_backward(T * 6, 10, L), *rms_backward(T * 2, 10, L)] if bias else []
    windows = (3, 0) if kind == "gemma2" else (0, 0)
    attention = [("attention_backward", B, S, S, 6, 2, 10, x, True) for x in windows]
    expected = [
        *loss_backward(), *rms_backward(T, H, norms * L + 1), *heads,
        stream("zero", 0, V * H), rows("gather", T, H), add(Q, 5 * L),
        *linear_backward(H, INNER, L, bias), *linear_backward(INNER, H, 2 * L, bias),
        stream("pointwise_mul", 2 * T * INNER, T * INNER, 2 * L),
        stream(f"{fn}_backward", 2 * T * INNER, T * INNER, L),
        *linear_backward(H, 60, L, bias=False), *linear_backward(60, H, L, bias=False),
        *linear_backward(20, H, 2 * L, bias=False), *rotated(q), *rotated(k),
        *((row, 1) for row in attention), stream("~sum_of_groups", q, q / 3, 2 * L),
    ]  # fmt: skip
    same(backward, expected)
    assert counted(forward)[add(Q)[0]] == 2 * L
    if kind != "qwen3":
        return
    eager = counted(step(model, stack="eager", attention="eager")[1])
    scores = B * 6 * S * S
    inside = [
        *attention_backward(B * 6, 10),
        stream("typecast_to_fp32", scores, scores, L, out="fp32", zeros=HALF),
        stream("softmax_backward", 2 * scores, scores, L, "fp32", zeros=HALF),
        stream("typecast_to_bf16", scores, scores, L, "fp32", "bf16", zeros=HALF),
        stream("scalar_mul", scores, scores, L, zeros=HALF),
        stream("~copy", q, q, 2 * L),
    ]  # fmt: skip
    same_counts(eager - counted(backward), inside)


R = 4
"""Rank of adapters."""


def adapters(outputs: int, inputs: int, n: int):
    """Of so many layers: y + s B A x by operators."""
    return [
        gemm(R, T, inputs, n, "a"), gemm(outputs, T, R, n, "a"),
        stream("scalar_mul", T * outputs, T * outputs, n), add(T * outputs, n),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["gemma2", "cohere", "glm4", "nemotron"])
@pytest.mark.parametrize("layers", ["all", "attention"])
def test_adapters_of_dense_families(kind: str, layers: str):
    """One for each linear layer of the modules: of GLM's gate and up together, of
    queries, keys and values apart. AdamW has their elements alone, 16 bytes each."""
    model = dense(kind)
    choices: dict[str, Any] = dict(lora=R, lora_layers=layers)
    forward, *_, optimizer = step(model, stack="eager", **choices)
    plain, *_ = step(model, stack="eager")
    sizes = [(60, H, 1), (20, H, 2), (H, 60, 1)]
    if layers == "all":
        up = {"glm4": (2 * INNER, H, 1), "nemotron": (INNER, H, 1)}
        sizes += [up.get(kind, (INNER, H, 2)), (H, INNER, 1)]
    rest = [row for m, k, n in sizes for row in adapters(m, k, n * L)]
    same(forward, [*counted(plain).items(), *rest])
    elements = L * sum(R * (m + k) * n for m, k, n in sizes)
    assert {k["elements"] for k in optimizer} == {elements}
    memory = model.memory(model.request(phase="train", batch=B, input_len=S, **choices))
    assert memory["gradients"] == 2 * elements
    assert memory["optimizer"] == 12 * elements
    # frozen weights in 16 bit beside the adapters
    assert memory["weights"] == 2 * (model.parameters() + elements)


def test_fused_adapters_of_a_parallel_layer():
    """Command R: all A of queries, keys and values at once, those of gate and up at
    once, then each B; one norm and, of the two paths and the skip, one sum a layer."""
    model = dense("cohere")
    forward, *_ = step(model, lora=R)
    plain, *_ = step(model)
    rest = [
        gemm(T, 3 * R, H, L), gemm(T, 60, R, L), gemm(T, 20, R, 2 * L), add(T * 100, L),
        gemm(T, 2 * R, H, L), gemm(T, INNER, R, 2 * L), add(T * 2 * INNER, L),
        gemm(T, R, 60, L), gemm(T, R, INNER, L), gemm(T, H, R, 2 * L), add(Q, 2 * L),
    ]  # fmt: skip
    same(forward, [*counted(plain).items(), *rest])
    counts = counted(plain)
    assert counts[rows("rmsnorm", T, H)[0]] == 1
    assert counts[rows("rmsnorm", T, H, residual=True)[0]] == L
    assert counts[add(Q)[0]] == L


def test_what_a_parallel_layer_keeps():
    """Flash attention, fused, in bf16: a norm's input, the input of queries and gate
    once, q, k, v and row sums, the attention's output, gate, up and their product."""
    model = dense("cohere")
    request = model.request(phase="train", batch=B, input_len=S)
    layer = 2 * T * (H + H + 100 + 60 + 3 * INNER) + 4 * B * 6 * S
    last = 2 * T * 2 * H  # the last norm's input, the head's
    assert model.memory(request)["activations"] == L * layer + last


def test_a_stage_of_a_pipeline_ends_with_a_sum():
    """Two of three layers: a norm alone, three that add the skip before them, the last
    skip by itself; backward four norms and neither head nor loss."""
    whole = llama(num_hidden_layers=3)
    assert isinstance(whole, TrainedModel)
    model = whole.placed(ModelShare(stages=2, stage=0))
    forward, backward, _ = (counted(x) for x in step(model))
    assert forward[rows("rmsnorm", T, H)[0]] == 1
    assert forward[rows("rmsnorm", T, H, residual=True)[0]] == 3
    assert forward[add(Q)[0]] == 1
    assert backward[stream("rmsnorm_backward", 3 * Q, Q)[0]] == 4
    assert not any(V in row for row in (*forward, *backward))


def test_optimizer_of_a_small_step():
    model = gpt2()
    *_, fused = step(model)
    *_, eager = step(model, stack="eager")
    layer = 4 * H * H + 4 * H + 2 * H * INNER + INNER + H + 4 * H
    n = (V + P) * H + L * layer + 2 * H
    assert model.parameters() == n
    norm = stream("gradient_norm", n, 0)
    adamw = stream("adamw", 3.5 * n, 3.5 * n, dtype="fp32")  # 14 B of 4 B each
    same(fused, [norm, adamw])
    assert isinstance(model, TrainedModel)
    *_, rest = step(model.placed(ModelShare(shards=7)))
    assert {k["elements"] for k in rest} == {-(-n // 7)} != {n // 7}
    same(eager, [norm, stream("scalar_mul", n, n), adamw])
    # MPT's norms do not shift; one of two layers frozen: four matrices, two norms of H
    # weights, the last norm; the head is the table, which is frozen
    *_, optimizer = step(mpt(), frozen_layers=1)
    assert {k["elements"] for k in optimizer} == {4 * H * H + 2 * H * 2 * H + 3 * H}


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
    ("stated", "fn", "again"),
    [("gelu_new", "gelu", L), ("gelu", "gelu", L), ("relu", "relu", 0)],
)
def test_a_fused_activation_runs_again_for_its_weight(stated, fn, again):
    """But not where ReLU's output tells its gradient, nor where all does."""
    model = gpt2(activation_function=stated)
    activation = stream(fn, T * INNER, T * INNER)[0]
    gradient = stream(f"{fn}_backward", 2 * T * INNER, T * INNER)[0]
    counts = counted(step(model)[1])
    assert (counts[activation], counts[gradient]) == (again, L)
    assert counted(step(model, checkpointing=True)[1])[activation] == L
    eager, *_ = step(model, stack="eager")
    assert ("tanh" in {row[0] for row in counted(eager)}) == (stated == "gelu_new")
    (serving,) = model.listings(batch=B, input_len=S, phase="prefill")
    assert any(row[0] == fn for row in counted(serving.kernels))


@pytest.mark.parametrize("width", [64 * 80 - 2, 64 * 80])
def test_wide_bias_gradients_take_one_stage(width: int):
    """llm.c: 64 columns for each of 80 SMs; partial sums are fp32."""
    counts = counted(step(gpt2(n_inner=width))[1])
    reduced = {row[:3]: n for row, n in counts.items() if row[0] == "bias_reduce"}
    expected = {("bias_reduce", 4 * n, n): L for n in (3 * H, width)}
    expected[("bias_reduce", 4 * H, H)] = 2 * L
    if width == 64 * 80:
        expected.pop(("bias_reduce", 4 * width, width))
    assert reduced == expected


@pytest.mark.parametrize("stack", ["serving", "eager"])
@pytest.mark.parametrize(
    ("family", "stated", "inward", "outward"),
    [
        ("llama", False, False, False), ("llama", True, True, True),
        ("qwen2", False, True, False), ("qwen2", True, True, False),
    ],
)  # fmt: skip
def test_gradients_of_biases(stack, family, stated, inward, outward):
    """`attention_bias`: queries, keys and values (one layer of a fused stack), and the
    output projection; Qwen2 has the first three alone, whatever it says."""
    model = llama(family, attention_bias=stated)
    parts = {T * 60: L, T * 20: 2 * L} if stack == "eager" else {T * 100: L}
    expected = (parts if inward else {}) | ({T * H: L} if outward else {})
    counts = counted(step(model, stack=stack)[1])
    assert {row[1]: n for row, n in counts.items() if row[0] == "bias_grad"} == expected


@pytest.mark.parametrize("window", [0, 8])
def test_gpus_that_share_a_sequence_see_the_mean_number_of_keys(window):
    """Of 16 tokens each GPU has 8 queries, in balanced halves; the mean number of keys
    is 8, or that of a causal window of 8."""
    model = llama("mistral", **({"sliding_window": window} if window else {}))
    assert isinstance(model, TrainedModel)
    share = ModelShare(ModelSplit(cp=2))
    request: Any = dict(phase="train", batch=B, input_len=16)
    forward, *_ = model.placed(share).listings(**request)
    (row,) = [k for k in forward.kernels if k["op"] == "context_attention"]
    visible = [min(i + 1, window or 16) for i in range(16)]
    assert row["q_len"] == 8
    assert row["kv_len"] == pytest.approx(sum(visible) / 16, abs=0.5)
