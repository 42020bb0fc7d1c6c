"""Operators of a language model: what each launches forward and backward.

Rows are those of one call and one micro-batch, in launch order. Bytes follow from the
tensors that a kernel reads and writes once; gradients of biases and norms are tensors
of one row and counted where a kernel of their own makes them. The fused kernels are
those of llm.c (its layer is that of GPT-2).
"""

import abc
import dataclasses
from collections.abc import Sequence

from ..._listing import Kernel
from ..._unlisted import HALF, stream
from .._shared.base import Precision, rows_of


@dataclasses.dataclass(frozen=True)
class Pass:
    """One forward pass, in training with the backward one: `q_len` new tokens in each
    of `sequences` against `kv_len` cached ones.

    `fused`: kernels that join elementwise work (stack serving), else one kernel an
    operator. `flash`: fused attention. `checkpointing`: a layer's forward kernels run
    again before its backward ones.
    """

    sequences: int
    q_len: int
    kv_len: int
    precision: Precision
    fused: bool
    flash: bool
    checkpointing: bool = False

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.sequences * self.q_len

    @property
    def values(self) -> str:
        """Type of everything but the linear layers."""
        return self.precision.values

    @property
    def is_decode(self) -> bool:
        """Whether keys of earlier passes are read."""
        return self.kv_len > self.q_len

    @property
    def zeros(self) -> dict[str, float]:
        """Causally masked scores are half zeros; a decode step masks nothing."""
        return {} if self.is_decode else {"zero_share": HALF}


class Operator(abc.ABC):
    """One operator of a network."""

    @abc.abstractmethod
    def forward(self, run: Pass) -> list[Kernel]:
        """Kernels of the forward pass."""

    @abc.abstractmethod
    def backward(self, run: Pass) -> list[Kernel]:
        """Kernels that make the gradients of inputs and parameters."""


@dataclasses.dataclass(frozen=True)
class Fixed(Operator):
    """Kernels without a gradient, such as masks and tables of angles."""

    rows: Sequence[Kernel]

    def forward(self, run: Pass) -> list[Kernel]:
        return list(self.rows)

    def backward(self, run: Pass) -> list[Kernel]:
        return []


@dataclasses.dataclass(frozen=True)
class Residual(Operator):
    """Skip connection of `width`; a kernel of its own where norms do not take it."""

    width: int

    def forward(self, run: Pass) -> list[Kernel]:
        if run.fused:
            return []
        return [stream("pointwise_add", run.tokens * self.width, run.values, 1)]

    def backward(self, run: Pass) -> list[Kernel]:
        return self.forward(run)


@dataclasses.dataclass(frozen=True)
class Embedding(Operator):
    """Token look-up in a table of `vocab` rows, plus learned positions if any."""

    vocab: int
    hidden: int
    positions: int = 0

    def forward(self, run: Pass) -> list[Kernel]:
        t, h, dtype = run.tokens, self.hidden, run.values
        if not self.positions:
            return [rows_of("gather", t, h, dtype)]
        if run.fused:
            return [stream("embedding", t * h, dtype, 1, reads=2, writes=1)]
        lookups = rows_of("gather", t, h, dtype, count=2)
        return [lookups, stream("pointwise_add", t * h, dtype, 1)]

    def backward(self, run: Pass) -> list[Kernel]:
        """Rows summed into the tables; torch writes whole tables of zeros before."""
        t, h, dtype = run.tokens, self.hidden, run.values
        rows = []
        if self.positions:
            once = {"reads": 1, "writes": 1 / run.sequences}
            rows.append(stream("position_grad", t * h, dtype, 1, **once))
        if not run.fused:
            tables = (self.vocab + self.positions) * h
            rows.append(stream("zero", tables, dtype, 1, reads=0, writes=1))
        return [*rows, rows_of("gather", t, h, dtype)]
