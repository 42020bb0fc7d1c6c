"""Every kernel of inference passes that no trace shows, by hand, for odd sizes."""

from typing import Any

import pytest

from diffenergy.workload import load_model

from .builders import (
    HALF,
    INNER,
    A,
    B,
    D,
    H,
    L,
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
    nemotron,
    one,
    opt,
    rotated,
    rows,
    same,
    small_model,
    stream,
    train,
)


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


@pytest.mark.parametrize(("q", "kv"), [(S, S), (1, 9)])
@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2", "opt"])
def test_a_fused_pass(family: str, q: int, kv: int):
    """Rotation and cache in one, norms with the sum before them; GPT-2 and OPT have
    learned positions. Half of what ReLU leaves are zeros."""
    wide = family in ("llama", "mixtral")
    model = llama(family) if wide else {"gpt2": gpt2, "opt": opt}[family]()
    phase = "prefill" if q > 1 else "decode"
    (listing,) = model.listings(batch=B, input_len=kv, phase=phase, base=False)
    t, norm = B * q, "rmsnorm" if wide else "layernorm"
    op = "context_attention" if q > 1 else "generation_attention"
    heads = (6, 2, 10) if wide else (A, A, D)
    expected = [
        rows("gather", t, H, 1 if wide else 2), rows(norm, t, H),
        rows(norm, t, H, 2 * L, residual=True), ((op, B, q, kv, *heads, 0, True), L),
        gemm(B, V, H), rows("softmax", B, V, dtype="fp32"),
    ]  # fmt: skip
    if wide:
        written = stream("rope_kv_write", t * 100, t * 100, L)
        expected += [gemm(t, 100, H, L), written, gemm(t, H, 60, L)]
    else:
        fn, zeros = ("gelu", 0.0) if family == "gpt2" else ("relu", HALF)
        expected += [
            add(t * H), gemm(t, 3 * H, H, L), gemm(t, H, H, L), gemm(t, INNER, H, L),
            stream("kv_write", t * 2 * H, t * 2 * H, L),
            stream(fn, t * INNER, t * INNER, L), gemm(t, H, INNER, L, zeros=zeros),
        ]  # fmt: skip
    if family == "llama":
        expected += [
            gemm(t, 2 * INNER, H, L), gemm(t, H, INNER, L),
            stream("silu_mul", 2 * t * INNER, t * INNER, L),
        ]  # fmt: skip
    if family == "mixtral":
        moe = ("moe", t, H, INNER, 5, 2, "random", True, "bf16")
        expected += [gemm(t, 5, H, L), rows("softmax", t, 5, L, "fp32"), (moe, L)]
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
        rows("gather", B, H),
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


@pytest.mark.parametrize(("q", "kv"), [(S, S), (1, 9)])
def test_an_eager_pass_of_nemotron(q: int, kv: int):
    """Two norms and two sums a layer, queries, keys and values apart, a squared ReLU;
    positions are rotated, none is added to the look-up."""
    (listing,) = nemotron().listings(
        batch=B, input_len=kv, phase="prefill" if q > 1 else "decode", stack="eager",
        attention="flash", base=False, dtype="fp8",
    )  # fmt: skip
    t = B * q
    attention = ("context_attention", B, q, kv, 6, 2, 10, 0, True)
    if q == 1:
        attention = ("generation_attention", *attention[1:])
    expected = [
        rows("gather", t, H),
        (("gemm", 1, 5, q, 1, "none", "tn", 0.0), 1),  # angles
        stream("scalar_mul", q * 10, q * 10, 2, "fp32"),
        rows("layernorm", t, H, 2 * L + 1), add(t * H, 2 * L),
        gemm(60, t, H, L, "a"), gemm(20, t, H, 2 * L, "a"),
        *rotated(t * 60), *rotated(t * 20), (attention, L),
        gemm(H, t, 60, L, "a"), gemm(INNER, t, H, L, "a"),
        stream("relu2", t * INNER, t * INNER, L), gemm(H, t, INNER, L, "a"),
        stream("~repeat_kv", B * kv * 20, B * kv * 60, 2 * L), gemm(V, t, H, 1, "a"),
    ]  # fmt: skip
    if q == 1:
        expected.append(stream("~concat", B * kv * 20, B * kv * 20, 2 * L))
    same(listing.kernels, expected)
    types = {k["m"]: k["dtype"] for k in listing.kernels if k["op"] == "gemm"}
    narrow = dict.fromkeys((60, 20, H, INNER), "fp8")
    assert types == {5: "fp32", **narrow, V: "bf16"}


DENSE = {
    "gemma2": (4, [(INNER, 2)], "gelu", [], 15),
    "cohere": (1, [(INNER, 2)], "silu", [], 12),
    "glm4": (4, [(2 * INNER, 1)], "silu", [], 14),
    "olmo2": (2, [(INNER, 2)], "silu", [60, 20], 15),
}
"""Families of layers that differ from Llama's: of a layer norms, products into the
MLP, the activation, widths of more norms, modules."""


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize(("q", "kv"), [(S, S), (1, 9)])
def test_an_eager_pass_of_dense_families(kind: str, q: int, kv: int):
    """As in Hugging Face's modules: Gemma and GLM have norms behind both parts, too,
    Command R one for both, OLMo norms of all queries and of all keys; GLM's gate and up
    are one layer. Gemma's first layer sees 3 tokens."""
    norms, into, fn, wide, modules = DENSE[kind]
    (listing,) = dense(kind).listings(
        batch=B, input_len=kv, phase="prefill" if q > 1 else "decode", stack="eager",
        attention="flash", base=False,
    )  # fmt: skip
    t = B * q
    op = "context_attention" if q > 1 else "generation_attention"
    windows = (3, 0) if kind == "gemma2" else (0, 0)
    expected = [
        rows("gather", t, H), gemm(5, q, 1, 1, "none"),
        stream("scalar_mul", q * 10, q * 10, 2, "fp32"),
        *rms_forward(t, H, norms * L + 1), add(t * H, 2 * L),
        *(row for cols in wide for row in rms_forward(t, cols, L)),
        gemm(60, t, H, L, "a"), gemm(20, t, H, 2 * L, "a"),
        *rotated(t * 60), *rotated(t * 20),
        *(((op, B, q, kv, 6, 2, 10, window, True), 1) for window in windows),
        gemm(H, t, 60, L, "a"),
        *(gemm(m, t, H, n * L, "a") for m, n in into),
        stream(fn, t * INNER, t * INNER, L),
        stream("pointwise_mul", 2 * t * INNER, t * INNER, L), gemm(H, t, INNER, L, "a"),
        stream("~repeat_kv", B * kv * 20, B * kv * 60, 2 * L), gemm(V, t, H, 1, "a"),
    ]  # fmt: skip
    if q == 1:
        expected.append(stream("~concat", B * kv * 20, B * kv * 20, 2 * L))
    same(listing.kernels, expected)
    assert listing.module_calls == modules * L + 4 + 2


@pytest.mark.parametrize(
    ("model", "lookups", "sums"),
    [
        (gpt2(), 2, 2 * L + 1),
        (opt(), 2, 2 * L + 1),
        (mpt(), 1, 2 * L),
        (llama(), 1, 2 * L),
    ],
)
def test_what_an_eager_pass_looks_up(model: Any, lookups: int, sums: int):
    """Tokens, and positions where they are learned, which are added to these."""
    (listing,) = model.listings(
        batch=B, input_len=S, phase="prefill", stack="eager", attention="flash"
    )
    counts = counted(listing.kernels)
    assert counts[rows("gather", T, H)[0]] == lookups
    assert counts[add(Q)[0]] == sums


@pytest.mark.parametrize("name", ["bert", "vit", "mobilevit"])
def test_encoders_with_fused_attention(name: str):
    """One kernel a layer, that masks nothing, for two products and all between."""
    model = small_model(name)
    length: dict[str, Any] = dict(input_len=7) if name == "bert" else {}
    eager, flash = (
        counted(model.listings(batch=B, attention=kind, **length)[0].kernels)
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
    model = gpt2() if family == "gpt2" else small_model(family, **more)
    request: dict[str, Any] = dict(stack="eager", phase="prefill")
    request |= dict(input_len=7) if family in ("bert", "gpt2") else {}
    whole, base = (
        counted(model.listings(batch=B, base=base, **request)[0].kernels)
        for base in (False, True)
    )
    assert (whole - base, base - whole) == (dict(head), dict(pooler))


def test_what_a_vision_model_adds():
    """Positions to every feature; 9 classes of 88 features and a bias, which a base
    model lacks."""
    forward, backward, _ = train(small_model("vit"), batch=B)
    for kernels, fn in ((forward, "scalar_add"), (backward, "position_grad")):
        assert one(kernels, fn=fn)["elements"] == B * 26 * 48
    whole = dict(architectures=["MobileViTForImageClassification"], num_labels=9)
    base = small_model("mobilevit", num_labels=9).parameters()
    assert small_model("mobilevit", **whole).parameters() - base == 89 * 9


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
