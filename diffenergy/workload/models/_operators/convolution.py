"""Operators of vision models, forward and backward: convolutions, BatchNorm, pooling. A
pass has an image a sequence; feature maps are `channels` x `hw` x `hw` an image.
"""

import dataclasses
from typing import Final

from ..._eager_rows import convolution_rest, stream
from ..._kernel import Kernel, Number
from .._checkpoint.formats import Precision
from .memory import Weights
from .operator import Trainable
from .passes import ForwardPass

_INDEX: Final = 8.0
"""Bytes of the place of a maximum (int64 in torch)."""
_POOLED: Final = 4
"""Values that a maximum stands for: windows of 3 x 3 at a stride of 2."""


@dataclasses.dataclass(frozen=True)
class Convolution(Trainable):
    """Square convolution into `outputs` channels, same-padded unless `padding` is
    given, with the layouts that cuDNN converts around it. In fp32 it uses tensor cores
    (TF32), the default of cuDNN in PyTorch.

    `first`: its input is the image, which needs no gradient. `joins`: its input feeds
    another layer, which keeps it. `zero_share` is that of the operands, `layout_zeros`
    that of the converted tensors.
    """

    channels: int
    hw: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int | None = None
    groups: int = 1
    bias: bool = False
    first: bool = False
    joins: bool = False
    zero_share: float = 0.0
    layout_zeros: float = 0.0

    @property
    def output_hw(self) -> int:
        """Height and width of its output."""
        return (self.hw + 2 * self._padding - self.kernel) // self.stride + 1

    @property
    def _padding(self) -> int:
        return (self.kernel - 1) // 2 if self.padding is None else self.padding

    def weights(self) -> tuple[Weights, ...]:
        each = self.channels // self.groups * self.kernel**2 + self.bias
        return (Weights(self.outputs * each),)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return self.rows(run.sequences, run.precision)

    def rows(
        self, images: int, precision: Precision, batch_norm: bool = False
    ) -> list[Kernel]:
        """The convolution, conversions of layouts, and an inference's BatchNorm."""
        row: Kernel = dict(
            op="conv2d",
            images=images,
            in_channels=self.channels,
            out_channels=self.outputs,
            input_hw=self.hw,
            kernel_size=self.kernel,
            stride=self.stride,
            padding=self._padding,
            dtype=precision.values,
            groups=self.groups,
            zero_share=self.zero_share,
            count=1,
        )
        return [row, *convolution_rest(row, batch_norm, self.layout_zeros)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Gradients of bias, input and weights. cuDNN converts what each of the latter
        two reads, and the gradient of the input back."""
        kernel, *converted = self.forward(run)
        dense = {name: x for name, x in kernel.items() if name != "zero_share"}
        rows = self._bias_gradient(run) if self.bias else []
        if not self.first:
            rows += [{**dense, "op": "conv2d_input_grad"}]
            rows += [_reverse_conversion(row) for row in reversed(converted)]
        rows.append({**kernel, "op": "conv2d_weight_grad"})
        if converted:
            there, back = converted
            rows += [there, _reverse_conversion(back)]
        return rows

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of its input."""
        values = 0 if self.joins else self.channels * self.hw**2
        return run.sequences * values * run.element_bytes

    def _bias_gradient(self, run: ForwardPass) -> list[Kernel]:
        """Sum over images and pixels."""
        pixels = run.sequences * self.output_hw**2
        sums = {"reads": 1, "writes": 1 / pixels}
        return [stream("bias_grad", pixels * self.outputs, run.values, 1, **sums)]


def _reverse_conversion(row: Kernel) -> Kernel:
    """A conversion of layouts the other way: of a dense gradient."""
    fns = ("nchw_to_nhwc", "nhwc_to_nchw")
    return {**row, "fn": fns[1 - fns.index(row["fn"])], "zero_share": 0.0}


@dataclasses.dataclass(frozen=True)
class MaxPool(Trainable):
    """Maxima over windows of 3 x 3 at a stride of 2 into maps of `channels` x `hw` x
    `hw`, with their places, by which the gradient is spread."""

    channels: int
    hw: int

    def forward(self, run: ForwardPass) -> list[Kernel]:
        written = 1 + _INDEX / run.element_bytes
        return [self._row("max_pool", run, reads=_POOLED, writes=written)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        read = 1 + _INDEX / run.element_bytes
        return [self._row("max_pool_backward", run, reads=read, writes=_POOLED)]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of its input, which the ReLU before needs, and of the places."""
        return self._elements(run) * (_POOLED * run.element_bytes + _INDEX)

    def _elements(self, run: ForwardPass) -> int:
        return run.sequences * self.channels * self.hw**2

    def _row(self, fn: str, run: ForwardPass, **traffic: Number) -> Kernel:
        return stream(fn, self._elements(run), run.values, 1, **traffic)
