"""Models of odd sizes, and questions that tests ask of the kernels of a listing."""

import collections
from collections.abc import Mapping
from typing import Any, TypeVar

from diffenergy.workload import Config, LanguageModel, TrainedModel, load_model
from diffenergy.workload.models import Model, model_from_config

# --- Models of configs


M = TypeVar("M", bound=Model)


def of_config(values: Mapping[str, Any], kind: type[M]) -> M:
    """The model `tiny` of a config."""
    model = model_from_config(Config("tiny", "config.json", dict(values)))
    assert isinstance(model, kind)
    return model


def language_model(**values: Any) -> LanguageModel:
    """The same of a language model."""
    return of_config(values, LanguageModel)


_HF = dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=3)
_TEXT = _HF | dict(vocab_size=77, max_position_embeddings=40)
_MIXTURE = _TEXT | dict(intermediate_size=110, num_experts_per_tok=2)
FAMILIES = {
    "gpt2": dict(n_embd=48, n_head=3, n_layer=2, vocab_size=77, n_positions=40),
    "opt": _TEXT | dict(ffn_dim=100),
    "llama": _TEXT | dict(intermediate_size=100),
    "nemotron": _TEXT | dict(intermediate_size=100),
    "mpt": dict(d_model=48, n_heads=3, n_layers=2, vocab_size=77, max_seq_len=40),
    "mistral": _TEXT | dict(intermediate_size=100),
    "qwen2": _TEXT | dict(intermediate_size=100, sliding_window=16),
    "qwen3": _TEXT | dict(intermediate_size=100, sliding_window=16),
    "mixtral": _MIXTURE | dict(num_local_experts=5),
    "qwen3_moe": _MIXTURE | dict(num_experts=5, sliding_window=16),
    "bert": _TEXT | dict(intermediate_size=100),
    "vit": _HF | dict(intermediate_size=100, image_size=35, patch_size=7),
    "resnet": dict(hidden_sizes=[16, 32], depths=[1, 2]),
    "mobilevit": dict(
        hidden_sizes=[36, 48, 60], num_attention_heads=3,
        neck_hidden_sizes=[8, 16, 24, 40, 56, 72, 88],
    ),
}  # fmt: skip
"""The least config of each."""


def small_model(family: str, **changes) -> Model:
    values = {"model_type": family} | FAMILIES[family] | changes
    present = {key: value for key, value in values.items() if value != "absent"}
    return of_config(present, Model)


# --- Kernels of listings


def train(model: str | Model, **choices):
    """Kernels of the three phases of a training step."""
    request = {"batch": 2, "phase": "train", **choices}
    network = load_model(model) if isinstance(model, str) else model
    return [listing.kernels for listing in network.listings(**request)]


def flop(kernels):
    """FLOP of the matrix products."""
    return sum(
        2 * k["batch"] * k["m"] * k["n"] * k["k"] * k["count"]
        for k in kernels
        if k["op"] == "gemm"
    )


def one(kernels, **fields):
    """The only kernel with these fields."""
    matches = [k for k in kernels if fields.items() <= k.items()]
    assert len(matches) == 1, matches
    return matches[0]


def adamw(kernels):
    """Parameters that the optimizer moves."""
    return one(kernels, fn="adamw")["elements"]


def multiset(kernels):
    """How often each launch occurs."""
    counts = collections.Counter()
    for kernel in kernels:
        key = tuple(sorted((k, x) for k, x in kernel.items() if k != "count"))
        counts[key] += kernel["count"]
    return counts


def attention_flop(rows: list[dict]) -> int:
    """FLOP of attention without a mask."""
    calls = [k for k in rows if k["op"] == "context_attention"]
    assert not any(k["causal"] for k in calls)
    return sum(
        4 * k["batch"] * k["q_len"] * k["kv_len"] * k["num_heads"] * k["head_dim"]
        * k["count"]
        for k in calls
    )  # fmt: skip


def sizes_of(row: dict) -> tuple:
    """Op and sizes of a kernel, in short."""
    match row["op"]:
        case "gemm":
            return ("gemm", row["m"], row["n"], row["k"], row["dtype"])
        case "elementwise":
            return (row["fn"], row["elements"], row["reads"], row["writes"])
        case "context_attention":
            names = ("batch", "q_len", "kv_len", "num_heads", "head_dim", "causal")
            return ("attention", *(row[name] for name in names))
    return (row["op"], row["rows"], row["cols"], row.get("residual"))


# --- Rows in short: streams are written with the elements that they read and write, `~`
# for those that traces do not list; products with batch, m, n, k and the operand that
# holds weights.

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
        case "moe":
            names = ("op", "num_tokens", "hidden_size", "inter_size", "num_experts",
                     "topk", "distribution", "gated", "dtype")  # fmt: skip
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
    counts = collections.Counter()
    for row in kernels:
        counts[key(row)] += row["count"]
    return counts


def same(kernels, expected) -> None:
    same_counts(counted(kernels), expected)


def same_counts(counts: collections.Counter, expected) -> None:
    rest = collections.Counter()
    for row, n in expected:
        rest[row] += n
    assert (counts - rest, rest - counts) == ({}, {})


def gpt2(**changes):
    sizes = dict(
        n_embd=H, n_head=A, n_layer=L, n_inner=INNER, vocab_size=V, n_positions=P
    )
    return small_model("gpt2", **(sizes | changes))


def opt(**changes):
    sizes = dict(
        hidden_size=H, num_attention_heads=A, num_hidden_layers=L, ffn_dim=INNER
    )
    more = dict(vocab_size=V, max_position_embeddings=P)
    return small_model("opt", **sizes, **more, **changes)


def llama(family="llama", **changes):
    """Six query heads of ten features, two of keys: wider than the layers."""
    sizes = dict(hidden_size=H, num_attention_heads=6, num_key_value_heads=2,
                 head_dim=10, num_hidden_layers=L, intermediate_size=INNER)  # fmt: skip
    more = dict(vocab_size=V, max_position_embeddings=P)
    return small_model(family, **(sizes | more | changes))


def dense(kind) -> TrainedModel:
    """A family with the sizes of `llama`; every other layer of Gemma sees 3 tokens."""
    window = dict(sliding_window=3) if kind == "gemma2" else {}
    values = dict(model_type=kind, architectures=["ForCausalLM"], hidden_size=H,
                  num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                  num_hidden_layers=L, intermediate_size=INNER, vocab_size=V,
                  max_position_embeddings=P, **window)  # fmt: skip
    return of_config(values, TrainedModel)


def nemotron():
    return llama("nemotron", tie_word_embeddings=False)


def mpt():
    sizes = dict(d_model=H, n_heads=A, n_layers=L, expansion_ratio=2, max_seq_len=P)
    return small_model("mpt", **sizes, vocab_size=V)


def step(model, **choices):
    listings = model.listings(batch=B, input_len=S, phase="train", **choices)
    return [listing.kernels for listing in listings]


def rotated(elements, n=L):
    return [
        stream("~negate", elements / 2, elements / 2, n),
        stream("~concat", elements, elements, n),
        stream("pointwise_mul", elements, elements, 2 * n), add(elements, n),
    ]  # fmt: skip
