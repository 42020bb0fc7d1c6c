"""`ForwardPass`: one pass of a model over new tokens, in training with its backward
pass; rows of products, reductions and gathers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ..._activations import TrainingStorage
from ..._eager_rows import HALF
from ..._kernel import Kernel, Number
from .._checkpoint.formats import Precision
from .memory import element_bytes

ROUTING: Final = "lognormal_0.8"
"""How tokens spread over experts where a trained model decides: between what served
mixtures show, from 0 (gpt-oss-120b) to 1.4 (MiniMax-M2.5), by
`calibration/studies/served/routing.py`."""
TRAINED_ROUTING: Final = "random"
"""The same in training, whose losses and biases keep the experts alike."""

# --- Rows of products, reductions and gathers, as models write them.


def linear(
    precision: Precision, outputs: Number, tokens: Number, inputs: Number, **extra: Any
) -> Kernel:
    """Row of `nn.Linear` as traces write it: m = output features, n = tokens."""
    return _gemm(precision.linear, outputs, tokens, inputs) | {
        "layout": "tn",
        "weights": "a",
        **extra,
    }


def dense(
    dtype: str, tokens: Number, outputs: Number, inputs: Number, **extra: Any
) -> Kernel:
    """Row of a linear layer: m = tokens, n = output features, weights are operand b."""
    return _gemm(dtype, tokens, outputs, inputs) | {"weights": "b", **extra}


def product(
    dtype: str, batch: Number, m: Number, n: Number, k: Number, **extra: Any
) -> Kernel:
    """Row of a batched product of two activations."""
    return _gemm(dtype, m, n, k) | {"batch": batch, "weights": "none", **extra}


def rows_of(op: str, rows: Number, cols: Number, dtype: str, **extra: Any) -> Kernel:
    """Row of a reduction or gather over `rows` rows of `cols` elements."""
    return dict(op=op, rows=rows, cols=cols, dtype=dtype, count=1) | extra


def repeat_rows(rows: Sequence[Kernel], times: Number) -> list[Kernel]:
    """The rows with their counts multiplied."""
    return [{**row, "count": row["count"] * times} for row in rows]


def _gemm(dtype: str, m: Number, n: Number, k: Number) -> Kernel:
    return dict(op="gemm", batch=1, m=m, n=n, k=k, dtype=dtype, count=1)


# --- `ForwardPass`


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """One forward pass, in training with the backward one: `q_len` new tokens in each
    of `sequences` against `kv_len` cached ones.

    `fused`: kernels that join elementwise work (stack serving), else one kernel an
    operator. `flash`: fused attention. `routing`: how tokens spread over experts.
    `verify`: the new tokens are a step's drafted ones, which read the cache together.

    Training (`train`): `recompute`, one of `RECOMPUTE` of `base`. `cp` GPUs have an
    equal share of the tokens of each sequence, in balanced halves, so that each query
    sees half of all keys in the mean, which `kv_len` then is. `dropout`: behind
    attention and MLP, and of the probabilities, with masks of a byte a value.
    `storage`: types of what a backward pass reads. `restores`: fused stacks make an
    activation's output again in the backward pass (llm.c), else keep it (Megatron).
    """

    sequences: int
    q_len: int
    kv_len: int
    precision: Precision
    fused: bool
    flash: bool
    recompute: str = "none"
    routing: str = ROUTING
    verify: bool = False
    train: bool = False
    cp: int = 1
    dropout: bool = False
    restores: bool = True
    storage: TrainingStorage = TrainingStorage()

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
    def kept_bytes(self) -> float:
        """Bytes of a value of gate and up, and of experts' rows, until the backward
        pass."""
        narrow = self.storage.activations == "fp8"
        return element_bytes("fp8") if narrow else self.element_bytes

    @property
    def is_decode(self) -> bool:
        """Whether keys of earlier passes are read."""
        return self.kv_len > self.q_len

    @property
    def zeros(self) -> dict[str, float]:
        """Causally masked scores are half zeros; a decode step masks nothing."""
        return {} if self.is_decode else {"zero_share": HALF}
