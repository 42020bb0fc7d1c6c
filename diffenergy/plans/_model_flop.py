"""FLOP that a model asks for, whatever it runs on: what MFU counts."""

from typing import Final

from ..workload import Listing
from ..workload._listing import Kernel

_ATTENTION: Final = {"context_attention": 1, "attention_backward": 2}
"""Products of fused attention / forward, the scores not made again."""


def model_flop(*passes: Listing) -> float:
    """FLOP of the passes of a training step, forward and backward: 6 a trained weight
    and token (4 a frozen one, 2 where backward stops above it), and attention over the
    pairs that a causal mask leaves (6 q s a layer and token; sources that count the
    full square have 12).
    """
    rows = (row for listing in passes for row in listing.kernels)
    return sum(row["count"] * _products(row) for row in rows)


def _products(row: Kernel) -> float:
    """FLOP of the products of one launch."""
    match row["op"]:
        case "gemm":
            return 2.0 * row["batch"] * row["m"] * row["n"] * row["k"]
        case "context_attention" | "attention_backward" as op:
            seen = row["kv_len"]
            if row["causal"]:
                seen = row["kv_len"] - (row["q_len"] - 1) / 2
            if row["window_size"]:
                seen = min(seen, row["window_size"])
            pairs = row["batch"] * row["num_heads"] * row["q_len"] * seen
            forward = 2.0 * pairs * (row["head_dim"] + row["v_head_dim"])
            return _ATTENTION[op] * forward
        case "moe":
            matrices = 3 if row["gated"] else 2
            rows = row["num_tokens"] * row["topk"]
            return 2.0 * matrices * rows * row["hidden_size"] * row["inter_size"]
    return 0.0
