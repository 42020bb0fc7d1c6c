"""Operators of language models: kernels forward and backward, weights, and the cache
of a sequence.

Rows are those of one call and one micro-batch, in launch order. Bytes follow from the
tensors that a kernel reads and writes once; gradients of biases and norms are tensors
of one row and counted where a kernel of their own makes them. The fused kernels are
those of llm.c (its layer is that of GPT-2).
"""

import abc
import dataclasses
import math

from ..._eager_rows import rms_norm_rest, stream
from ..._kernel import Kernel, Number
from .._checkpoint.formats import Format
from .memory import Weights
from .passes import ForwardPass, product, rows_of
from .sharding import (
    ModelSplit,
    all_reduce,
    divide,
    divide_or_copy,
    gather_rows,
    reduce_rows,
)


@dataclasses.dataclass(frozen=True)
class Cached:
    """Memory of a sequence between passes: `elements` of the cache's type a token, of
    at most `window` tokens (0: all), and `state` bytes that do not grow with its
    length."""

    elements: Number = 0
    window: int = 0
    state: Number = 0


class Operator(abc.ABC):
    """One operator of a network."""

    @abc.abstractmethod
    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the forward pass."""

    def weights(self) -> tuple[Weights, ...]:
        """Weights of the operator."""
        return ()

    def cached(self) -> tuple[Cached, ...]:
        """State and cache of a sequence."""
        return ()

    def in_training(self) -> tuple["Trainable", ...] | None:
        """Operators of a training step in its place; None if none are known."""
        return None

    def shard(self, split: ModelSplit) -> "Operator":
        """The part of the operator on one of several GPUs; by default all of it.

        Raises `ValueError` if it cannot be divided so.
        """
        return self


@dataclasses.dataclass(frozen=True)
class Stored(Operator):
    """Operator with matrices that a checkpoint may keep in a `format` of their own
    (None: 16 bit), under the name `module` ("": never)."""

    module: str = dataclasses.field(default="", kw_only=True)
    format: Format | None = dataclasses.field(default=None, kw_only=True)


class Trainable(Operator):
    """Operator with a backward pass."""

    @property
    def unfused(self) -> bool:
        """Whether it also exists as kernels of a framework's operators (stack
        eager)."""
        return True

    def in_training(self) -> tuple["Trainable", ...] | None:
        return (self,)

    @abc.abstractmethod
    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the gradients of inputs and parameters."""

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes that the forward pass saves for the backward one; a tensor that several
        operators read counts with the first of them."""
        return 0.0

    def input_bytes(self, run: ForwardPass) -> float:
        """Bytes of `saved_bytes` that are those of its input."""
        return 0.0

    def selective_bytes(self, run: ForwardPass) -> float:
        """Bytes saved under recomputation by operator ("selective-op"): half of the
        outputs of products, and those of fused attention."""
        return 0.0


class Table(Trainable):
    """A table that modules make once a pass, before their layers; it has no
    gradient."""

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [] if run.fused else self.rows(run)

    @abc.abstractmethod
    def rows(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the modules' operators."""

    def backward(self, run: ForwardPass) -> list[Kernel]:
        return []


@dataclasses.dataclass(frozen=True)
class Angles(Table):
    """Angles of rotary positions (an outer product of frequencies and positions), then
    their cos and sin."""

    head_dim: int

    def rows(self, run: ForwardPass) -> list[Kernel]:
        angles = product("fp32", 1, self.head_dim // 2, run.q_len, 1)
        return [angles, stream("scalar_mul", run.q_len * self.head_dim, "fp32", 2)]


@dataclasses.dataclass(frozen=True)
class PaddingMask(Table):
    """A causal mask, and positions from the padding mask (OPT)."""

    def rows(self, run: ForwardPass) -> list[Kernel]:
        return [
            stream("pointwise_add", run.tokens * run.kv_len, "fp32", 1),
            stream("pointwise_mul", run.tokens, "fp32", 1),
        ]


@dataclasses.dataclass(frozen=True)
class Residual(Trainable):
    """Skip connection of `width`; a kernel of its own where norms do not take it.
    `parts`: GPUs that divide the tokens."""

    width: int
    parts: int = 1

    def shard(self, split: ModelSplit) -> "Residual":
        return dataclasses.replace(self, parts=split.parts)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [] if run.fused else self.alone(run)

    def alone(self, run: ForwardPass) -> list[Kernel]:
        """Kernel of the sum where no norm follows."""
        elements = run.tokens // self.parts * self.width
        return [stream("pointwise_add", elements, run.values, 1)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        return self.forward(run)

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of the mask of the dropout before it."""
        return run.dropout * run.tokens / self.parts * self.width


@dataclasses.dataclass(frozen=True)
class Sum(Residual):
    """Sum of two paths from one input; backward the sum of their gradients, unless a
    linear layer `joins` them already."""

    joins: bool = False

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return self.alone(run)

    def backward(self, run: ForwardPass) -> list[Kernel]:
        return [] if self.joins else self.alone(run)

    def saved_bytes(self, run: ForwardPass) -> float:
        return 0.0


@dataclasses.dataclass(frozen=True)
class Embedding(Trainable):
    """Token look-up in a table of `vocab` rows, plus learned positions if any.

    `split`: GPUs that share the table; what they find is added up. `frozen`: its rows
    have no gradient.
    """

    vocab: int
    hidden: int
    positions: int = 0
    split: ModelSplit = ModelSplit()
    frozen: bool = False

    def shard(self, split: ModelSplit) -> "Embedding":
        vocab = math.ceil(self.vocab / split.tp)
        return dataclasses.replace(self, vocab=vocab, split=split)

    def weights(self) -> tuple[Weights, ...]:
        return (Weights((self.vocab + self.positions) * self.hidden),)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [*self._lookups(run), *reduce_rows(run, self.hidden, self.split)]

    def _lookups(self, run: ForwardPass) -> list[Kernel]:
        t, h, dtype = run.tokens, self.hidden, run.values
        if not self.positions:
            return [rows_of("gather", t, h, dtype)]
        if run.fused:
            return [stream("embedding", t * h, dtype, 1, reads=2, writes=1)]
        lookups = rows_of("gather", t, h, dtype, count=2)
        return [lookups, stream("pointwise_add", t * h, dtype, 1)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Rows summed into the tables; torch writes whole tables of zeros before."""
        if self.frozen:
            return []
        t, h, dtype = run.tokens, self.hidden, run.values
        rows = []
        if self.positions:
            once = {"reads": 1, "writes": 1 / run.sequences}
            rows.append(stream("position_grad", t * h, dtype, 1, **once))
        if not run.fused:
            tables = (self.vocab + self.positions) * h
            rows.append(stream("zero", tables, dtype, 1, reads=0, writes=1))
        whole = gather_rows(run, h, self.split)
        return [*whole, *rows, rows_of("gather", t, h, dtype)]


@dataclasses.dataclass(frozen=True)
class Norm(Trainable):
    """LayerNorm or RMSNorm of `per_token` rows of `cols` elements a token.

    `residual`: a fused kernel also adds the skip connection, and its gradient.
    `weighted`: the normalised rows are scaled (and `shifted`, in a LayerNorm). `heads`:
    among which GPUs divide the rows of a token, or its one row over all heads; `ranks`:
    GPUs that share such a row, of which an all-reduce joins the mean squares; `parts`:
    GPUs that divide the tokens. `frozen`: its weights have no gradient.
    """

    op: str
    cols: int
    per_token: int = 1
    residual: bool = True
    weighted: bool = True
    heads: int = 0
    ranks: int = 1
    parts: int = 1
    shifted: bool = True
    frozen: bool = False

    def shard(self, split: ModelSplit) -> "Norm":
        if split.tp == 1:
            return self
        if not self.heads:
            return dataclasses.replace(self, parts=split.parts)
        share = divide_or_copy(self.heads, split.tp)
        if self.per_token == self.heads:
            return dataclasses.replace(self, per_token=share, heads=share)
        cols = divide(self.cols, self.heads, "features") * share
        return dataclasses.replace(self, cols=cols, heads=share, ranks=split.tp)

    def weights(self) -> tuple[Weights, ...]:
        vectors = 2 if self.op == "layernorm" and self.shifted else 1
        return (Weights(vectors * self.cols),) if self.weighted else ()

    def forward(self, run: ForwardPass) -> list[Kernel]:
        rows = run.tokens // self.parts * self.per_token
        if self.op == "rmsnorm" and not run.fused:
            return _rms_norm(rows, self.cols, run.values)
        more = {"residual": True} if run.fused and self.residual else {}
        joined = all_reduce(run.tokens, 1, self.ranks, "fp32")
        return [rows_of(self.op, rows, self.cols, run.values, **more), *joined]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        rows = run.tokens // self.parts * self.per_token
        if run.fused:  # dy, x and the skip's gradient -> dx
            name, reads = f"{self.op}_backward", 3 if self.residual else 2
            elements = rows * self.cols
            return [stream(name, elements, run.values, 1, reads=reads, writes=1)]
        if self.op == "rmsnorm":
            return _rms_norm_backward(rows, self.cols, run.values, self.frozen)
        return _layer_norm_backward(rows, self.cols, run.values, self.frozen)

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of its input; RMSNorm made of operators: of the input in fp32 and of
        the normalised rows, by which the gradient of the weight is multiplied."""
        elements = run.tokens // self.parts * self.per_token * self.cols
        if self.op != "rmsnorm" or run.fused:
            return elements * run.element_bytes
        return elements * (4.0 + (0.0 if self.frozen else run.element_bytes))


def _rms_norm(rows: int, cols: int, dtype: str) -> list[Kernel]:
    """RMSNorm made of operators: square, mean, + eps, rsqrt, product in fp32; then the
    weight in the values' type."""
    rest = rms_norm_rest(rows, cols, dtype, 1)
    mean = len(rest) // 2  # between the casts, if there are any
    elements = rows * cols
    return [
        *rest[:mean],
        stream("unspecified_scalar", elements, "fp32", 1),
        rest[mean],
        stream("scalar_add", rows, "fp32", 1),
        stream("unspecified_scalar", rows, "fp32", 1),
        stream("pointwise_mul", elements, "fp32", 1, reads=1),
        *rest[mean + 1 :],
        stream("scalar_mul", elements, dtype, 1),
    ]


def _rms_norm_backward(rows: int, cols: int, dtype: str, frozen: bool) -> list[Kernel]:
    """Gradients of `_rms_norm`, last operator first. Kernels over one element a row
    (rsqrt, mean) are left out: they take microseconds."""
    elements = rows * cols

    def sums(kind: str, writes: float) -> Kernel:
        return stream("sum", elements, kind, 1, reads=1, writes=writes)

    up, down = [], []
    if dtype != "fp32":
        up = [stream("typecast_to_fp32", elements, dtype, 1, out_dtype="fp32")]
        down = [stream(f"typecast_to_{dtype}", elements, "fp32", 1, out_dtype=dtype)]
    of_weight = [stream("pointwise_mul", elements, dtype, 1), sums(dtype, 1 / rows)]
    return [
        stream("pointwise_mul", elements, dtype, 1, reads=1),  # times the weight
        *([] if frozen else of_weight),
        *up,
        stream("pointwise_mul", elements, "fp32", 1, reads=1),  # times 1/rms
        stream("pointwise_mul", elements, "fp32", 1),  # the gradient of 1/rms
        sums("fp32", 1 / cols),
        stream("scalar_mul", elements, "fp32", 1),  # 2 x
        stream("pointwise_mul", elements, "fp32", 1, reads=1),
        stream("pointwise_add", elements, "fp32", 1),
        *down,
    ]


def _layer_norm_backward(
    rows: int, cols: int, dtype: str, frozen: bool
) -> list[Kernel]:
    """torch: one kernel for the input's gradient, one for weight and bias."""
    elements = rows * cols
    weights = {"reads": 2, "writes": 2 / rows}
    of_weights = stream("layernorm_weight_grad", elements, dtype, 1, **weights)
    return [
        stream("layernorm_backward", elements, dtype, 1, reads=2, writes=1),
        *([] if frozen else [of_weights]),
    ]
