"""Linear layers of a training step: a product forward, two products backward."""

import dataclasses
from typing import Final

from .... import dtypes
from ..._listing import Kernel
from ..._unlisted import stream
from .._shared.base import Precision, dense, linear, product
from .activations import Activation
from .operators import Operator, Pass

_ONE_STAGE: Final = 64 * 80
"""Columns from which llm.c sums a bias gradient in one stage: a CTA holds 64 columns
(8 warp lanes of 8 values), an RTX 3080 Ti has 80 SMs. GPUs differ; the second stage
takes microseconds."""
_PARTIAL_SUMS: Final = 4
"""Rows of partial sums that the second stage reads."""


@dataclasses.dataclass(frozen=True)
class Linear(Operator):
    """Linear layer: one product forward, gradients of input and weight backward.

    `row_major`: weights as in `Conv1D`. `wide`: stays in 16 bit where others have 8.
    `joins`: its input feeds another layer, whose gradient is added. `activation`: what
    makes its input; the gradient follows where llm.c has it, behind the input's.
    """

    outputs: int
    inputs: int
    bias: bool = False
    row_major: bool = False
    wide: bool = False
    joins: bool = False
    activation: Activation | None = None

    def forward(self, run: Pass) -> list[Kernel]:
        p, t, zeros = self._precision(run), run.tokens, self._zeros
        rows = self.activation.forward(run) if self.activation else []
        if not run.fused and not self.row_major:
            return [*rows, linear(p, self.outputs, t, self.inputs, **zeros)]
        layout = {} if run.fused else {"layout": "nn"}
        row = dense(p.linear, t, self.outputs, self.inputs, **layout, **zeros)
        return [*rows, row]

    def backward(self, run: Pass) -> list[Kernel]:
        dtype, t, behind = self._precision(run).linear, run.tokens, self.activation
        add = stream("pointwise_add", t * self.inputs, run.values, 1)
        return [
            *(behind.again(run) if behind else []),
            *(self._bias_gradient(run) if self.bias else []),
            dense(dtype, t, self.inputs, self.outputs),
            *(behind.backward(run) if behind else []),
            product(dtype, 1, self.outputs, self.inputs, t, **self._zeros),
            *([add] if self.joins and not run.fused else []),
        ]

    def _bias_gradient(self, run: Pass) -> list[Kernel]:
        """Sum over the tokens."""
        t, n = run.tokens, self.outputs
        sums = [stream("bias_grad", t * n, run.values, 1, reads=1, writes=1 / t)]
        if run.fused and n < _ONE_STAGE:
            reads = {"reads": _PARTIAL_SUMS, "out_dtype": run.values}
            sums.append(stream("bias_reduce", n, "fp32", 1, **reads))
        return sums

    def _precision(self, run: Pass) -> Precision:
        p = run.precision
        narrow = dtypes.BYTES[dtypes.code(p.linear)] < 2
        return dataclasses.replace(p, linear=p.values) if self.wide and narrow else p

    @property
    def _zeros(self) -> dict[str, float]:
        return self.activation.zeros if self.activation else {}
