"""`Demand`: which blocks exist, where they start, and who wants them."""

import dataclasses
from typing import Final, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

Collective = Literal[
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "custom",
]
COLLECTIVES: Final[tuple[Collective, ...]] = get_args(Collective)
REDUCING: Final = ("reduce_scatter", "all_reduce", "reduce")
"""Collectives that add blocks up."""


@dataclasses.dataclass(frozen=True)
class Demand:
    """Blocks of data and who wants them; nodes are those of a `Topology`.

    A block is named by (source, chunk). Of a reduction the block is the sum, `source`
    the node that ends with it (of an all-reduce: that adds it up), and every GPU in
    `parts` holds a summand at the start; else `source` holds the block at the start.
    """

    collective: Collective
    source: Int[np.ndarray, " block"]
    chunk: Int[np.ndarray, " block"]
    size: Float[np.ndarray, " block"]  # B
    wanted: Bool[np.ndarray, "block node"]
    parts: Bool[np.ndarray, "block node"]
    """Nodes that hold a summand; all False for what is not reduced."""

    @property
    def reduces(self) -> bool:
        """Whether blocks are sums."""
        return bool(self.parts.any())

    @property
    def single(self) -> bool:
        """Whether no block is a sum and none has more than one taker."""
        return not self.reduces and bool((self.wanted.sum(1) <= 1).all())
