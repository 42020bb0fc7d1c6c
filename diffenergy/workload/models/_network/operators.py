"""Operators of a language model: what each launches forward and backward, the weights
that it has and what it keeps of a sequence.

Rows are those of one call and one micro-batch, in launch order. Bytes follow from the
tensors that a kernel reads and writes once; gradients of biases and norms are tensors
of one row and counted where a kernel of their own makes them. The fused kernels are
those of llm.c (its layer is that of GPT-2).
"""

import abc
import dataclasses
import math
from collections.abc import Sequence

from ..._listing import Kernel, Number
from ..._unlisted import HALF, rms_norm_rest, stream
from .._shared.base import Precision, rows_of
from .._shared.formats import Format
from .._shared.memory import element_bytes
from .sharding import Split, all_reduce, divided, one_at_least


@dataclasses.dataclass(frozen=True)
class Pass:
    """One forward pass, in training with the backward one: `q_len` new tokens in each
    of `sequences` against `kv_len` cached ones.

    `fused`: kernels that join elementwise work (stack serving), else one kernel an
    operator. `flash`: fused attention. `checkpointing`: a layer's forward kernels run
    again before its backward ones. `routing`: how tokens spread over experts.
    `verify`: the new tokens are a step's drafted ones, which read the cache together.
    """

    sequences: int
    q_len: int
    kv_len: int
    precision: Precision
    fused: bool
    flash: bool
    checkpointing: bool = False
    routing: str = "random"
    verify: bool = False

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.sequences * self.q_len

    @property
    def is_step(self) -> bool:
        """Whether it is a decode step: its queries share what they read of the cache,
        like more heads of one token."""
        return self.q_len == 1 or self.verify

    @property
    def values(self) -> str:
        """Type of everything but the linear layers."""
        return self.precision.values

    @property
    def element_bytes(self) -> float:
        """Bytes of a value of that type."""
        return element_bytes(self.values)

    @property
    def is_decode(self) -> bool:
        """Whether keys of earlier passes are read."""
        return self.kv_len > self.q_len

    @property
    def zeros(self) -> dict[str, float]:
        """Causally masked scores are half zeros; a decode step masks nothing."""
        return {} if self.is_decode else {"zero_share": HALF}


@dataclasses.dataclass(frozen=True)
class Weights:
    """`number` weights of one kind.

    `format`: how the checkpoint stores them, None as it keeps everything else;
    `layer`: those of a linear layer that a request's `dtype` converts. `used`: share of
    them that one token needs.
    """

    number: int
    format: Format | None = None
    layer: bool = False
    used: Number = 1


@dataclasses.dataclass(frozen=True)
class Cached:
    """What is kept of a sequence between passes: `elements` of the cache's type a
    token, of at most `window` tokens (0: of all), and `state` bytes whatever its
    length."""

    elements: Number = 0
    window: int = 0
    state: Number = 0


class Operator(abc.ABC):
    """One operator of a network."""

    @abc.abstractmethod
    def forward(self, run: Pass) -> list[Kernel]:
        """Kernels of the forward pass."""

    def weights(self) -> tuple[Weights, ...]:
        """Its weights."""
        return ()

    def cached(self) -> tuple[Cached, ...]:
        """What it keeps of a sequence."""
        return ()

    def shard(self, split: Split) -> "Operator":
        """The operator as one of several GPUs has it: whole, if nothing else is known.

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

    @abc.abstractmethod
    def backward(self, run: Pass) -> list[Kernel]:
        """Kernels that make the gradients of inputs and parameters."""

    @abc.abstractmethod
    def kept(self, run: Pass) -> float:
        """Bytes that the forward pass leaves for the backward one; what several
        operators read is the first one's."""


@dataclasses.dataclass(frozen=True)
class Fixed(Trainable):
    """Kernels without a gradient, such as masks and tables of angles."""

    rows: Sequence[Kernel]

    def forward(self, run: Pass) -> list[Kernel]:
        return list(self.rows)

    def backward(self, run: Pass) -> list[Kernel]:
        return []

    def kept(self, run: Pass) -> float:
        return 0.0


@dataclasses.dataclass(frozen=True)
class Residual(Trainable):
    """Skip connection of `width`; a kernel of its own where norms do not take it."""

    width: int

    def forward(self, run: Pass) -> list[Kernel]:
        if run.fused:
            return []
        return [stream("pointwise_add", run.tokens * self.width, run.values, 1)]

    def backward(self, run: Pass) -> list[Kernel]:
        return self.forward(run)

    def kept(self, run: Pass) -> float:
        return 0.0


@dataclasses.dataclass(frozen=True)
class Embedding(Trainable):
    """Token look-up in a table of `vocab` rows, plus learned positions if any.

    `ranks`: GPUs that share the table; an all-reduce joins what they find.
    """

    vocab: int
    hidden: int
    positions: int = 0
    ranks: int = 1

    def shard(self, split: Split) -> "Embedding":
        return dataclasses.replace(
            self, vocab=math.ceil(self.vocab / split.tp), ranks=split.tp
        )

    def weights(self) -> tuple[Weights, ...]:
        return (Weights((self.vocab + self.positions) * self.hidden),)

    def forward(self, run: Pass) -> list[Kernel]:
        joined = all_reduce(run.tokens, self.hidden, self.ranks, run.values)
        return [*self._lookups(run), *joined]

    def _lookups(self, run: Pass) -> list[Kernel]:
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

    def kept(self, run: Pass) -> float:
        """None but the token ids."""
        return 0.0


@dataclasses.dataclass(frozen=True)
class Norm(Trainable):
    """LayerNorm or RMSNorm of `per_token` rows of `cols` elements a token.

    `residual`: a fused kernel also adds the skip connection, and its gradient.
    `weighted`: the normalised rows are scaled (and shifted, in a LayerNorm). `heads`:
    among which GPUs divide the rows of a token, or its one row over all heads; `ranks`:
    GPUs that share such a row, of which an all-reduce joins the mean squares.
    """

    op: str
    cols: int
    per_token: int = 1
    residual: bool = True
    weighted: bool = True
    heads: int = 0
    ranks: int = 1

    def shard(self, split: Split) -> "Norm":
        if not self.heads or split.tp == 1:
            return self
        share = one_at_least(self.heads, split.tp)
        if self.per_token == self.heads:
            return dataclasses.replace(self, per_token=share, heads=share)
        cols = divided(self.cols, self.heads, "features") * share
        return dataclasses.replace(self, cols=cols, heads=share, ranks=split.tp)

    def weights(self) -> tuple[Weights, ...]:
        vectors = 2 if self.op == "layernorm" else 1
        return (Weights(vectors * self.cols),) if self.weighted else ()

    def forward(self, run: Pass) -> list[Kernel]:
        rows = run.tokens * self.per_token
        if self.op == "rmsnorm" and not run.fused:
            return _rms_norm(rows, self.cols, run.values)
        more = {"residual": True} if run.fused and self.residual else {}
        joined = all_reduce(run.tokens, 1, self.ranks, "fp32")
        return [rows_of(self.op, rows, self.cols, run.values, **more), *joined]

    def backward(self, run: Pass) -> list[Kernel]:
        rows = run.tokens * self.per_token
        if run.fused:  # dy, x and the skip's gradient -> dx
            name, reads = f"{self.op}_backward", 3 if self.residual else 2
            elements = rows * self.cols
            return [stream(name, elements, run.values, 1, reads=reads, writes=1)]
        if self.op == "rmsnorm":
            return _rms_norm_backward(rows, self.cols, run.values)
        return _layer_norm_backward(rows, self.cols, run.values)

    def kept(self, run: Pass) -> float:
        """Its input; RMSNorm made of operators: the input in fp32, and the normalised
        rows that the weight multiplies."""
        elements = run.tokens * self.per_token * self.cols
        wide = 4.0 if self.op == "rmsnorm" and not run.fused else 0.0
        return elements * (run.element_bytes + wide)


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


def _rms_norm_backward(rows: int, cols: int, dtype: str) -> list[Kernel]:
    """Gradients of `_rms_norm`, last operator first. Kernels over one element a row
    (rsqrt, mean) are left out: they take microseconds."""
    elements = rows * cols

    def sums(kind: str, writes: float) -> Kernel:
        return stream("sum", elements, kind, 1, reads=1, writes=writes)

    up, down = [], []
    if dtype != "fp32":
        up = [stream("typecast_to_fp32", elements, dtype, 1, out_dtype="fp32")]
        down = [stream(f"typecast_to_{dtype}", elements, "fp32", 1, out_dtype=dtype)]
    return [
        stream("pointwise_mul", elements, dtype, 1, reads=1),  # times the weight
        stream("pointwise_mul", elements, dtype, 1),  # the weight's gradient
        sums(dtype, 1 / rows),
        *up,
        stream("pointwise_mul", elements, "fp32", 1, reads=1),  # times 1/rms
        stream("pointwise_mul", elements, "fp32", 1),  # the gradient of 1/rms
        sums("fp32", 1 / cols),
        stream("scalar_mul", elements, "fp32", 1),  # 2 x
        stream("pointwise_mul", elements, "fp32", 1, reads=1),
        stream("pointwise_add", elements, "fp32", 1),
        *down,
    ]


def _layer_norm_backward(rows: int, cols: int, dtype: str) -> list[Kernel]:
    """torch: one kernel for the input's gradient, one for weight and bias."""
    elements = rows * cols
    weights = {"reads": 2, "writes": 2 / rows}
    return [
        stream("layernorm_backward", elements, dtype, 1, reads=2, writes=1),
        stream("layernorm_weight_grad", elements, dtype, 1, **weights),
    ]
