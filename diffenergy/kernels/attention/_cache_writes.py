"""Kernels that write new keys and values beside attention.

Frameworks named `vllm/0.24..` also write the new keys and values to the cache and round
fp8 queries inside the timed region: one launch of 55 lane instructions an element of K
and V (x 1.8 at fp8), 5,000 a token and 34 an element of fp8 Q (not FlashInfer, Triton,
FlashAttention 2: they widen instead). Issue limits it, not DRAM. Fitted by this project
on the public AIConfigurator attention tables.
"""

from typing import Final

import numpy as np

from ...dtypes import BYTES
from .._launch import Fields, Launches, take_rows
from ..stream import stream_launches
from ._kernel import FP8
from ._shape import pair

_WRITES: Final = "vllm/0.24"
_WRITE: Final = 55.0
"""Lane instructions to write one element of K or V to the cache (1.8 times at fp8)."""
_WRITE_TOKEN: Final = 5000.0
"""The same for one token, whatever its size: a CTA."""
_ROUND: Final = 34.0
"""Lane instructions to round one element of Q to fp8."""
_WRITE_FP8: Final = 1.8
"""Cost of an element at fp8 / at 16 bits."""
_WIDENED: Final = ("fiprefill", "fidecode", "triton", "fa2")
"""Kernels that widen fp8 keys and values instead (parts of `family`)."""


def cache_writes(columns: dict[str, np.ndarray], fields: Fields) -> list[Launches]:
    """The kernels that write new keys and values to the cache and round fp8 queries, as
    one launch, where the framework runs them in the timed region. Instructions limit
    them, not DRAM."""
    rows = np.flatnonzero(np.char.startswith(fields["framework"].astype(str), _WRITES))
    if not rows.size:
        return []
    new = take_rows(columns, rows)
    fp8 = new["kv_cache_dtype"] == FP8
    tokens = new["batch"] * new["q_len"]
    elements = tokens * new["num_kv_heads"] * pair(new)
    family = fields["family"][rows].astype(str)
    widened = np.any([np.char.find(family, name) >= 0 for name in _WIDENED], axis=0)
    queries = (fp8 & ~widened) * tokens * new["num_heads"] * new["head_dim"]
    issue = _WRITE * elements * np.where(fp8, _WRITE_FP8, 1.0)
    issue += _WRITE_TOKEN * tokens + _ROUND * queries
    size = np.asarray(BYTES)[new["kv_cache_dtype"]]
    return [
        stream_launches(
            2 * (elements + queries),
            size * (elements + queries),
            host="none",
            rows=rows,
            issue=issue,
        )
    ]
