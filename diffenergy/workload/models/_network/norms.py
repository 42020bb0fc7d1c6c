"""LayerNorm and RMSNorm of a training step, fused or made of operators."""

import dataclasses

from ..._listing import Kernel
from ..._unlisted import rms_norm_rest, stream
from .._shared.base import rows_of
from .operators import Operator, Pass


@dataclasses.dataclass(frozen=True)
class Norm(Operator):
    """LayerNorm or RMSNorm of `per_token` rows of `cols` elements a token.

    `residual`: a fused kernel also adds the skip connection, and its gradient.
    """

    op: str
    cols: int
    per_token: int = 1
    residual: bool = True

    def forward(self, run: Pass) -> list[Kernel]:
        rows = run.tokens * self.per_token
        if self.op == "rmsnorm" and not run.fused:
            return _rms_norm(rows, self.cols, run.values)
        more = {"residual": True} if run.fused and self.residual else {}
        return [rows_of(self.op, rows, self.cols, run.values, **more)]

    def backward(self, run: Pass) -> list[Kernel]:
        rows = run.tokens * self.per_token
        if run.fused:  # dy, x and the skip's gradient -> dx
            name, reads = f"{self.op}_backward", 3 if self.residual else 2
            elements = rows * self.cols
            return [stream(name, elements, run.values, 1, reads=reads, writes=1)]
        if self.op == "rmsnorm":
            return _rms_norm_backward(rows, self.cols, run.values)
        return _layer_norm_backward(rows, self.cols, run.values)


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
