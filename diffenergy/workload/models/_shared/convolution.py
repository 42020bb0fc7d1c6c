"""Convolutions of vision models, with what is launched around them."""

import dataclasses

from ..._eager_rows import convolution_rest
from ..._kernel import Kernel
from .base import Precision


@dataclasses.dataclass(frozen=True)
class Image:
    """Feature maps: `batch` images of `channels` x `hw` x `hw`."""

    batch: int
    channels: int
    hw: int

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return self.batch * self.channels * self.hw**2


def convolve(
    image: Image,
    channels: int,
    kernel: int,
    precision: Precision,
    stride: int = 1,
    padding: int | None = None,
    batch_norm: bool = True,
    groups: int = 1,
    zero_share: float = 0.0,
    layout_zeros: float = 0.0,
) -> tuple[Image, list[Kernel]]:
    """Output and rows of a square convolution, same-padded unless `padding` is given.

    `zero_share` is that of the operands, `layout_zeros` that of the converted tensors.
    fp32 convolutions use tensor cores (TF32), the default of cuDNN in PyTorch.
    """
    padding = (kernel - 1) // 2 if padding is None else padding
    row: Kernel = dict(
        op="conv2d",
        images=image.batch,
        in_channels=image.channels,
        out_channels=channels,
        input_hw=image.hw,
        kernel_size=kernel,
        stride=stride,
        padding=padding,
        dtype=precision.values,
        groups=groups,
        zero_share=zero_share,
        count=1,
    )
    output_hw = (image.hw + 2 * padding - kernel) // stride + 1
    rest = convolution_rest(row, batch_norm, layout_zeros)
    return Image(image.batch, channels, output_hw), [row, *rest]
