"""`kernel_name`: what tables and schedules call a kernel."""

from collections.abc import Mapping
from typing import Any, Final

_SHAPES: Final = {
    "gemm": ("batch", "m", "n", "k"),
    "conv2d": ("images", "in_channels", "input_hw", "out_channels", "kernel_size"),
    "context_attention": ("batch", "q_len", "kv_len", "num_heads", "head_dim"),
    "attention_backward": ("batch", "q_len", "kv_len", "num_heads", "head_dim"),
    "generation_attention": ("batch", "q_len", "kv_len", "num_heads", "head_dim"),
    "moe": ("num_tokens", "hidden_size", "inter_size", "num_experts", "topk"),
    "elementwise": ("elements",),
    "collective": ("bytes", "num_gpus"),
}
"""Fields that say the size of a kernel in one cell; rows and cols for the others."""


def kernel_name(kernel: Mapping[str, Any]) -> str:
    """Op and size of a kernel of a listing, as tables and schedules call it.

    >>> kernel_name({"op": "elementwise", "elements": 4096, "fn": "gelu"})
    'gelu 4096'
    """
    fields = _SHAPES.get(kernel["op"], ("rows", "cols"))
    size = "x".join(f"{kernel[field]:.6g}" for field in fields if field in kernel)
    name = kernel.get("fn", kernel["op"])
    return " ".join(filter(None, [name, size, kernel.get("dtype")]))
