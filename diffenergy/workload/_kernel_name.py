"""`kernel_name`: what tables and schedules call a kernel."""

from collections.abc import Mapping
from typing import Any


def kernel_name(kernel: Mapping[str, Any]) -> str:
    """Op and size of a kernel of a listing, as tables and schedules call it.

    >>> kernel_name({"op": "elementwise", "elements": 4096, "fn": "gelu"})
    'gelu 4096'
    """
    from ..kernels import ops  # the kernel classes load JAX

    op, _ = ops()[kernel["op"]]
    fields = op.named or op.required
    size = "x".join(f"{kernel[field]:.6g}" for field in fields if field in kernel)
    name = kernel.get("fn", kernel["op"])
    return " ".join(filter(None, [name, size, kernel.get("dtype")]))
