"""Rows of listings in short, and networks of odd sizes.

Streams are written with the elements that they read and write, `~` for those that
traces do not list; products with batch, m, n, k and the operand that holds weights.
"""

import collections
from typing import Any

from diffenergy.workload import Config, TrainedModel
from diffenergy.workload.models import model_from_config

from ..test_configs import built

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
    return built(family, **(sizes | more | changes))


def dense(kind) -> TrainedModel:
    """A family with the sizes of `llama`; every other layer of Gemma sees 3 tokens."""
    window = dict(sliding_window=3) if kind == "gemma2" else {}
    values = dict(model_type=kind, architectures=["ForCausalLM"], hidden_size=H,
                  num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                  num_hidden_layers=L, intermediate_size=INNER, vocab_size=V,
                  max_position_embeddings=P, **window)  # fmt: skip
    model = model_from_config(Config("tiny", "config.json", values))
    assert isinstance(model, TrainedModel)
    return model


def nemotron():
    return llama("nemotron", tie_word_embeddings=False)


def mpt():
    sizes = dict(d_model=H, n_heads=A, n_layers=L, expansion_ratio=2, max_seq_len=P)
    return built("mpt", **sizes, vocab_size=V)


def step(model, **choices):
    listings = model.listings(batch=B, input_len=S, phase="train", **choices)
    return [listing.kernels for listing in listings]


def rotated(elements, n=L):
    return [
        stream("~negate", elements / 2, elements / 2, n),
        stream("~concat", elements, elements, n),
        stream("pointwise_mul", elements, elements, 2 * n), add(elements, n),
    ]  # fmt: skip
