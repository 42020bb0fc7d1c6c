"""ResNet with bottleneck blocks, as torchvision builds it (stride in the 3x3)."""

import dataclasses
import functools
from typing import Final

from ..._eager_rows import HALF
from ..._kernel import Kernel
from .._checkpoint.config import Config
from .._encoder import Encoder, labels_of
from .._operators.convolution import Convolution, MaxPool
from .._operators.elementwise import (
    batch_norm,
    fork,
    forward_only,
    mean_pool,
    pointwise,
)
from .._operators.linear import Linear
from .._operators.operator import Trainable
from .._operators.passes import linear
from .._request import Request
from .._stack import Block, Stack
from .._step import Loss

MODEL_TYPES: Final = ("resnet",)
_REDUCTION = 4
"""A bottleneck's width is its output channels over this."""


@dataclasses.dataclass(frozen=True)
class Resnet(Encoder):
    """Residual network; its classifier belongs to it."""

    stem: int
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    image_size: int
    channels: int
    labels: int

    def parameters(self) -> int:
        return self.network().parameters

    def module_calls(self, base: bool) -> int:
        """10 a block, 3 a shortcut, and the stem (4), stages, pool, classifier and the
        model itself: 353 for ResNet-101."""
        stages = len(self.depths)
        return 10 * sum(self.depths) + 3 * stages + 4 + stages + 3

    def _forward(self, request: Request) -> list[Kernel]:
        network, p = self.network(), self.precision(request)
        rows = self.traced(network.blocks, request, max_pool=4, pointwise_add=2)
        return [*rows, linear(p, self.labels, request.batch, self.widths[-1])]

    def network(self, whole: bool = True) -> Stack:
        stem = Convolution(
            self.channels,
            self.image_size,
            self.stem,
            7,
            2,
            first=True,
            layout_zeros=HALF,
        )
        hw, pooled = stem.output_hw, (stem.output_hw + 1) // 2
        first = (
            stem,
            batch_norm(self.stem, hw),
            pointwise("relu", self.stem * hw**2),
            MaxPool(self.stem, pooled),
        )
        blocks, before, hw = [Block(first)], self.stem, pooled
        stages = zip(self.widths, self.depths, strict=True)
        for index, (width, depth) in enumerate(stages):
            for count, stride, shortcut in (
                (1, 2 if index else 1, True),
                (depth - 1, 1, False),
            ):
                layer, after = _bottleneck(before, hw, width, stride, shortcut)
                if count:
                    blocks.append(Block(layer, count, before * hw**2))
                    before, hw = width, after
        classifier = Linear(self.labels, before, True, wide=True)
        blocks.append(Block((mean_pool(before, hw), classifier)))
        return Stack(tuple(blocks), Loss(self.labels))


def _bottleneck(
    channels: int, hw: int, width: int, stride: int, shortcut: bool
) -> tuple[tuple[Trainable, ...], int]:
    """Operators of a bottleneck on maps of `channels` x `hw` x `hw`, and the height of
    its output."""
    inner = width // _REDUCTION
    behind_relu = functools.partial(Convolution, zero_share=HALF, layout_zeros=HALF)
    middle = behind_relu(inner, hw, inner, 3, stride)
    after = middle.output_hw
    aside = behind_relu(channels, hw, width, 1, stride, joins=True)
    layer = (
        fork(channels * hw**2),
        behind_relu(channels, hw, inner, 1),
        batch_norm(inner, hw),
        pointwise("relu", inner * hw**2),
        middle,
        batch_norm(inner, after),
        pointwise("relu", inner * after**2),
        behind_relu(inner, after, width, 1),
        batch_norm(width, after),
        *((aside, batch_norm(width, after)) if shortcut else ()),
        forward_only("pointwise_add", width * after**2, HALF),
        pointwise("relu", width * after**2),
    )
    return layer, after


def build(config: Config) -> Resnet:
    """ResNet of a config; images of 224 x 224 unless `image_size` says otherwise."""
    if config.text("layer_type", "bottleneck") != "bottleneck":
        raise config.error("layer_type", "'bottleneck'")
    widths = config.sizes("hidden_sizes")
    return Resnet(
        config=config,
        stem=config.size("embedding_size", default=64),
        widths=widths,
        depths=config.sizes("depths", len(widths)),
        image_size=config.size("image_size", default=224),
        channels=config.size("num_channels", default=3),
        labels=labels_of(config),
    )
