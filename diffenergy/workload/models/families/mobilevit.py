"""MobileViT: inverted residuals, then transformers over unfolded patches."""

import dataclasses
from typing import ClassVar, Final

from ..._kernel import Kernel
from .._checkpoint.config import Config
from .._encoder import Encoder, encoder_layer, labels_of
from .._operators.convolution import Convolution
from .._operators.elementwise import (
    batch_norm,
    copies,
    fork,
    forward_only,
    mean_pool,
    pointwise,
)
from .._operators.linear import Linear
from .._operators.operator import Norm, Trainable
from .._operators.partial import Within
from .._operators.passes import linear
from .._operators.scores import Scores
from .._request import Request
from .._stack import Block, Stack
from .._step import Loss

MODEL_TYPES: Final = ("mobilevit",)
_DEPTHS: Final = (2, 4, 3)
"""Transformer layers of the three MobileViT blocks (fixed by the architecture)."""
_DOWNSAMPLING: Final = 32
_MODULE_CALLS: Final = 330
"""Counted on MobileViT-S; the other sizes have the same modules."""


@dataclasses.dataclass(frozen=True)
class MobileVit(Encoder):
    """MobileViT; `neck` are the channels from the stem to the last convolution."""

    widths: tuple[int, ...]
    neck: tuple[int, ...]
    heads: int
    mlp_ratio: float
    expand_ratio: float
    kernel: int
    patch: int
    image_size: int
    channels: int
    labels: int

    scores: ClassVar[Scores] = Scores("unspecified_scalar", mask="", cast=False)

    def parameters(self) -> int:
        classifier = (self.neck[6] + 1) * self.labels
        return self.network().parameters - (0 if self._has_head() else classifier)

    def module_calls(self, base: bool) -> int:
        return _MODULE_CALLS

    def _forward(self, request: Request) -> list[Kernel]:
        rows = self.traced(self.network().blocks, request, permute=1, concat=1)
        if not request.base:
            p = self.precision(request)
            rows.append(linear(p, self.labels, request.batch, self.neck[6]))
        return rows

    def network(self, whole: bool = True) -> Stack:
        neck, channels = self.neck, self.neck[0]
        stem = Convolution(self.channels, self.image_size, channels, 3, 2, first=True)
        blocks, hw = [Block(_active(stem))], stem.output_hw
        plain = [(neck[1], 1, 0, 0), (neck[2], 2, 0, 0), *2 * [(neck[2], 1, 0, 0)]]
        mixed = zip(neck[3:6], 3 * (2,), self.widths, _DEPTHS, strict=True)
        for outputs, stride, width, depth in (*plain, *mixed):
            layer, after = self._inverted_residual(channels, hw, outputs, stride)
            blocks.append(Block(layer, 1, channels * hw**2))
            channels, hw = outputs, after
            if depth:
                layer = self._transformer_block(channels, hw, width, depth)
                blocks.append(Block(layer, 1, channels * hw**2))
        last = _active(Convolution(channels, hw, neck[6], 1))
        classifier = Linear(self.labels, neck[6], True, wide=True)
        blocks.append(Block((*last, mean_pool(neck[6], hw), classifier)))
        return Stack(tuple(blocks), Loss(self.labels))

    def _inverted_residual(
        self, channels: int, hw: int, outputs: int, stride: int
    ) -> tuple[tuple[Trainable, ...], int]:
        """1x1 widening, 3x3 depthwise, 1x1 narrowing, a sum where shapes agree; and the
        height of its output."""
        inner = int(channels * self.expand_ratio)
        depthwise = Convolution(inner, hw, inner, 3, stride, groups=inner)
        after = depthwise.output_hw
        layer = (
            *_active(Convolution(channels, hw, inner, 1)),
            *_active(depthwise),
            *_active(Convolution(inner, after, outputs, 1), activation=False),
        )
        if (channels, hw) != (outputs, after):
            return layer, after
        values = channels * hw**2
        return (fork(values), *layer, forward_only("pointwise_add", values)), after

    def _transformer_block(
        self, channels: int, hw: int, width: int, depth: int
    ) -> tuple[Trainable, ...]:
        """Local convolution, transformers over the pixels of each patch, fusion."""
        area, k = self.patch**2, self.kernel
        inner = int(width * self.mlp_ratio)
        layer = encoder_layer(width, self.heads, inner, "silu", self.scores)
        inside = (*depth * layer, Norm("layernorm", width))
        order = copies("permute", width * hw**2, 2)
        return (
            fork(channels * hw**2),
            *_active(Convolution(channels, hw, channels, k)),
            Convolution(channels, hw, width, 1),
            order,
            Within(inside, hw**2 // area, area),
            order,
            *_active(Convolution(width, hw, channels, 1)),
            copies("concat", 2 * channels * hw**2),
            *_active(Convolution(2 * channels, hw, channels, k)),
        )


def _active(conv: Convolution, activation: bool = True) -> tuple[Trainable, ...]:
    """Convolution, BatchNorm and SiLU."""
    hw, channels = conv.output_hw, conv.outputs
    silu = (pointwise("silu", channels * hw**2),) if activation else ()
    return (conv, batch_norm(channels, hw), *silu)


def build(config: Config) -> MobileVit:
    """MobileViT of a config."""
    widths, heads = config.sizes("hidden_sizes", 3), config.size("num_attention_heads")
    if any(width % heads for width in widths):
        raise config.error("num_attention_heads", "a divisor of each `hidden_sizes`")
    image_size = config.size("image_size", default=256)
    patch = config.size("patch_size", default=2)
    if image_size % (_DOWNSAMPLING * patch):
        raise config.error("image_size", f"a multiple of {_DOWNSAMPLING * patch}")
    return MobileVit(
        config=config,
        widths=widths,
        neck=config.sizes("neck_hidden_sizes", 7),
        heads=heads,
        mlp_ratio=config.number("mlp_ratio", 2.0),
        expand_ratio=config.number("expand_ratio", 4.0),
        kernel=config.size("conv_kernel_size", default=3),
        patch=patch,
        image_size=image_size,
        channels=config.size("num_channels", default=3),
        labels=labels_of(config),
    )
