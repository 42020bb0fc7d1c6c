"""FLOP that a model asks for, whatever it runs on: what MFU counts."""

from typing import Final

from ..workload import Listing
from ..workload._listing import Kernel

_BACKWARD: Final = 2
"""Products of a backward pass / forward: gradients of inputs and of weights."""


def model_flop(forward: Listing) -> float:
    """FLOP of a training step whose forward passes are `forward`: three times theirs,
    6 a multiplied weight and token, and attention over the pairs that a causal mask
    leaves (6 q s a layer and token; sources that count the full square have 12).
    """
    once = sum(row["count"] * _products(row) for row in forward.kernels)
    return (1 + _BACKWARD) * once


def _products(row: Kernel) -> float:
    """FLOP of the products of one launch."""
    match row["op"]:
        case "gemm":
            return 2.0 * row["batch"] * row["m"] * row["n"] * row["k"]
        case "context_attention":
            seen = row["kv_len"]
            if row["causal"]:
                seen = row["kv_len"] - (row["q_len"] - 1) / 2
            if row["window_size"]:
                seen = min(seen, row["window_size"])
            pairs = row["batch"] * row["num_heads"] * row["q_len"] * seen
            return 2.0 * pairs * (row["head_dim"] + row["v_head_dim"])
        case "moe":
            matrices = 3 if row["gated"] else 2
            rows = row["num_tokens"] * row["topk"]
            return 2.0 * matrices * rows * row["hidden_size"] * row["inter_size"]
    return 0.0
