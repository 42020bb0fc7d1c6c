"""Every kernel of inference passes that no trace shows, by hand, for odd sizes."""

from typing import Any

import pytest

from diffenergy.workload import Listing, load_model

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
    one,
    opt,
    rotated,
    rows,
    same,
    same_counts,
    small_model,
    stream,
    train,
)

PASSES = [(S, S), (1, 9)]
"""Queries and keys: of a prefill, and of a decode step, which masks nothing."""


def of_pass(q: int, model: Any, kv: int, **choices: Any) -> Listing:
    phase = "prefill" if q > 1 else "decode"
    (listing,) = model.listings(batch=B, input_len=kv, phase=phase, **choices)
    return listing


def attention(q: int, kv: int, *heads: int, window: int = 0) -> tuple:
    op = "context_attention" if q > 1 else "generation_attention"
    return (op, B, q, kv, *heads, window, True)


@pytest.mark.parametrize(("q", "kv"), PASSES)
@pytest.mark.parametrize("stack", ["serving", "eager"])
def test_eager_attention(stack: str, q: int, kv: int):
    """Three heads share keys: products over all heads for one kernel; the serving stack
    has a scale and a mask in one."""
    model = llama("qwen3") if stack == "eager" else llama()
    eager, flash = (
        counted(of_pass(q, model, kv, stack=stack, attention=x).kernels)
        for x in ("eager", "flash")
    )
    assert flash - eager == {attention(q, kv, 6, 2, 10): L}
    masked = HALF if q > 1 else 0.0
    scores = B * 6 * q * kv
    expected = [
        gemm(q, kv, 10, L, "none", B * 6),
        gemm(q, 10, kv, L, "none", B * 6, zeros=masked),
        rows("softmax", B * 6 * q, kv, L, "fp32", zeros=masked),
    ]  # fmt: skip
    if stack == "serving":
        expected.append(stream("scale_mask", scores, scores, L, zeros=masked))
    else:
        expected += [
            stream("scalar_mul", scores, scores, L, zeros=masked),
            stream("pointwise_add", scores, scores, L, zeros=masked),
            stream("typecast_to_fp32", scores, scores, L, out="fp32", zeros=masked),
            stream("typecast_to_bf16", scores, scores, L, "fp32", "bf16", masked),
            stream("~copy", B * q * 60, B * q * 60, 2 * L),
        ]  # fmt: skip
    same_counts(eager - flash, expected)


@pytest.mark.parametrize(("q", "kv"), PASSES)
@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2", "opt"])
def test_a_fused_pass(family: str, q: int, kv: int):
    """Rotation and cache in one, norms with the sum before them; GPT-2 and OPT have
    learned positions. Half of what ReLU leaves are zeros."""
    wide = family in ("llama", "mixtral")
    model = llama(family) if wide else {"gpt2": gpt2, "opt": opt}[family]()
    t, norm = B * q, "rmsnorm" if wide else "layernorm"
    heads = (6, 2, 10) if wide else (A, A, D)
    expected = [
        rows("gather", t, H, 1 if wide else 2), rows(norm, t, H),
        rows(norm, t, H, 2 * L, residual=True), (attention(q, kv, *heads), L),
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
        moe = ("moe", t, H, INNER, 5, 2, "lognormal_0.8", True, "bf16")
        expected += [gemm(t, 5, H, L), rows("softmax", t, 5, L, "fp32"), (moe, L)]
    same(of_pass(q, model, kv, base=False).kernels, expected)


def rms_forward(n, cols, times):
    e = n * cols
    return [
        stream("~typecast_to_fp32", e, e, times, out="fp32"),
        stream("unspecified_scalar", e, e, times, "fp32"),
        stream("~mean", e, n, times, "fp32"), stream("scalar_add", n, n, times, "fp32"),
        stream("unspecified_scalar", n, n, times, "fp32"),
        stream("pointwise_mul", e, e, times, "fp32"),
        stream("~typecast_to_bf16", e, e, times, "fp32", "bf16"),
        stream("scalar_mul", e, e, times),
    ]  # fmt: skip


EAGER = {
    "qwen3": (2, [(INNER, 2)], "silu", [(6, 10), (2, 10)], 15),
    "nemotron": (2, [(INNER, 1)], "relu2", [], 11),
    "gemma2": (4, [(INNER, 2)], "gelu", [], 15),
    "cohere": (1, [(INNER, 2)], "silu", [], 12),
    "glm4": (4, [(2 * INNER, 1)], "silu", [], 14),
    "olmo2": (2, [(INNER, 2)], "silu", [(1, 60), (1, 20)], 15),
}
"""Of a layer norms, products into the MLP, the activation, rows a token and widths of
more norms, modules."""


@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize(("q", "kv"), PASSES)
def test_an_eager_pass(kind: str, q: int, kv: int):
    """As in Hugging Face's modules, whose features come first: Gemma and GLM have norms
    behind both parts, too, Command R one for both, Qwen norms of each head, OLMo of all
    queries and of all keys; GLM's gate and up are one layer. Nemotron has no gate, and
    its norms are in one kernel. Gemma's first layer sees 3 tokens. The cache grows by
    a copy."""
    norms, into, fn, wide, modules = EAGER[kind]
    model = dense(kind)
    listing = of_pass(q, model, kv, stack="eager", attention="flash", dtype="fp8")
    t = B * q
    windows = (3, 0) if kind == "gemma2" else (0, 0)
    expected = [
        rows("gather", t, H), gemm(5, q, 1, 1, "none"),
        stream("scalar_mul", q * 10, q * 10, 2, "fp32"),
        *(row for n, cols in wide for row in rms_forward(n * t, cols, L)),
        gemm(60, t, H, L, "a"), gemm(20, t, H, 2 * L, "a"), add(t * H, 2 * L),
        *rotated(t * 60), *rotated(t * 20),
        *((attention(q, kv, 6, 2, 10, window=x), 1) for x in windows),
        gemm(H, t, 60, L, "a"), *(gemm(m, t, H, n * L, "a") for m, n in into),
        stream(fn, t * INNER, t * INNER, L), gemm(H, t, INNER, L, "a"),
        stream("~repeat_kv", B * kv * 20, B * kv * 60, 2 * L), gemm(V, t, H, 1, "a"),
    ]  # fmt: skip
    if kind == "nemotron":
        expected.append(rows("layernorm", t, H, norms * L + 1))
    else:
        expected += rms_forward(t, H, norms * L + 1)
        expected.append(stream("pointwise_mul", 2 * t * INNER, t * INNER, L))
    if q == 1:
        expected.append(stream("~concat", B * kv * 20, B * kv * 20, 2 * L))
    same(listing.kernels, expected)
    assert listing.module_calls == modules * L + 4 + 2
    types = {k["m"]: k["dtype"] for k in listing.kernels if k["op"] == "gemm"}
    narrow = dict.fromkeys((60, 20, H, *(m for m, _ in into)), "fp8")
    assert types == {5: "fp32", **narrow, V: "bf16"}


def test_an_eager_pass_of_mpt_looks_up_tokens_alone():
    listing = of_pass(S, mpt(), S, stack="eager", attention="flash")
    counts = counted(listing.kernels)
    assert (counts[rows("gather", T, H)[0]], counts[add(Q)[0]]) == (1, 2 * L)


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
