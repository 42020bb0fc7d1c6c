"""MobileViT: inverted residuals, then transformers over unfolded patches."""

import dataclasses
from typing import ClassVar, Final

from ..._eager_rows import Attention, mobilevit_rest, stream
from ..._kernel import Kernel
from .._network.blocks import (
    Block,
    Chain,
    alone,
    batch_norm,
    copied,
    fork,
    mean_pool,
    pointwise,
)
from .._network.convolution import Convolution, Image, convolve
from .._network.linear_layer import Linear
from .._network.operators import Norm, Trainable
from .._network.parts import Within
from .._network.rows import linear, rows_of
from .._network.step import Loss
from .._request import Request
from .._shared.attention import Scores
from .._shared.config import Config
from .._shared.encoder import Encoder, encoder_layer, labels_of
from .._shared.formats import Precision

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
        return self.chain().parameters - (0 if self._has_head() else classifier)

    def module_calls(self, base: bool) -> int:
        return _MODULE_CALLS

    def _forward(self, request: Request) -> list[Kernel]:
        p, neck = self.precision(request), self.neck
        image = Image(request.batch, self.channels, self.image_size)
        image, rows = self._active(image, neck[0], 3, p, stride=2)
        for channels, stride in (
            (neck[1], 1),
            (neck[2], 2),
            (neck[2], 1),
            (neck[2], 1),
        ):
            image, block = self._inverted_residual(image, channels, stride, p)
            rows += block
        stages = []
        for width, channels, depth in zip(self.widths, neck[3:6], _DEPTHS, strict=True):
            image, block = self._inverted_residual(image, channels, 2, p)
            rows += block + self._transformer_block(image, width, depth, request)
            stages.append((width, channels, image.hw))
        rows += self._active(image, neck[6], 1, p)[1]
        rows += mobilevit_rest(request.batch, stages, p.values)
        if not request.base:
            rows.append(linear(p, self.labels, request.batch, neck[6]))
        return rows

    def chain(self, whole: bool = True) -> Chain:
        neck, channels = self.neck, self.neck[0]
        stem = Convolution(self.channels, self.image_size, channels, 3, 2, first=True)
        blocks, hw = [Block(_trained(stem))], stem.output_hw
        plain = [(neck[1], 1, 0, 0), (neck[2], 2, 0, 0), *2 * [(neck[2], 1, 0, 0)]]
        mixed = zip(neck[3:6], 3 * (2,), self.widths, _DEPTHS, strict=True)
        for outputs, stride, width, depth in (*plain, *mixed):
            layer, after = self._trained_residual(channels, hw, outputs, stride)
            blocks.append(Block(layer, 1, channels * hw**2))
            channels, hw = outputs, after
            if depth:
                layer = self._trained_transformer(channels, hw, width, depth)
                blocks.append(Block(layer, 1, channels * hw**2))
        last = _trained(Convolution(channels, hw, neck[6], 1))
        classifier = Linear(self.labels, neck[6], True, wide=True)
        blocks.append(Block((*last, mean_pool(neck[6], hw), classifier)))
        return Chain(tuple(blocks), Loss(self.labels))

    def _trained_residual(
        self, channels: int, hw: int, outputs: int, stride: int
    ) -> tuple[tuple[Trainable, ...], int]:
        """Operators of `_inverted_residual`, and the height of its output."""
        inner = self._expanded(channels)
        depthwise = Convolution(inner, hw, inner, 3, stride, groups=inner)
        after = depthwise.output_hw
        layer = (
            *_trained(Convolution(channels, hw, inner, 1)),
            *_trained(depthwise),
            *_trained(Convolution(inner, after, outputs, 1), activation=False),
        )
        if (channels, hw) != (outputs, after):
            return layer, after
        values = channels * hw**2
        return (fork(values), *layer, alone("pointwise_add", values)), after

    def _trained_transformer(
        self, channels: int, hw: int, width: int, depth: int
    ) -> tuple[Trainable, ...]:
        """Operators of `_transformer_block`."""
        area, k = self.patch**2, self.kernel
        inner = int(width * self.mlp_ratio)
        layer = encoder_layer(width, self.heads, inner, "silu", self.scores)
        inside = (*depth * layer, Norm("layernorm", width))
        order = copied("permute", width * hw**2, 2)
        return (
            fork(channels * hw**2),
            *_trained(Convolution(channels, hw, channels, k)),
            Convolution(channels, hw, width, 1),
            order,
            Within(inside, hw**2 // area, area),
            order,
            *_trained(Convolution(width, hw, channels, 1)),
            copied("concat", 2 * channels * hw**2),
            *_trained(Convolution(2 * channels, hw, channels, k)),
        )

    def _expanded(self, channels: int) -> int:
        return int(channels * self.expand_ratio)

    def _active(
        self,
        image: Image,
        channels: int,
        kernel: int,
        p: Precision,
        stride: int = 1,
        groups: int = 1,
    ) -> tuple[Image, list[Kernel]]:
        """Convolution, BatchNorm and SiLU."""
        output, rows = convolve(image, channels, kernel, p, stride, groups=groups)
        return output, [*rows, stream("silu", output.elements, p.values, 1)]

    def _inverted_residual(
        self, image: Image, channels: int, stride: int, p: Precision
    ) -> tuple[Image, list[Kernel]]:
        """1x1 widening, 3x3 depthwise, 1x1 narrowing; a sum where shapes agree."""
        inner = self._expanded(image.channels)
        wide, rows = self._active(image, inner, 1, p)
        depthwise, second = self._active(wide, inner, 3, p, stride, groups=inner)
        output, third = convolve(depthwise, channels, 1, p)
        rows = rows + second + third
        if output == image:
            rows.append(stream("pointwise_add", image.elements, p.values, 1))
        return output, rows

    def _transformer_block(
        self, image: Image, width: int, depth: int, request: Request
    ) -> list[Kernel]:
        """Local convolution, transformers over the pixels of each patch, fusion."""
        p, channels = self.precision(request), image.channels
        _, local = self._active(image, channels, self.kernel, p)
        inside, widen = convolve(image, width, 1, p)
        _, narrow = self._active(inside, channels, 1, p)
        both = Image(image.batch, 2 * channels, image.hw)
        _, fuse = self._active(both, channels, self.kernel, p)
        layers = self._transformer(inside, depth, request)
        return local + widen + layers + narrow + fuse

    def _transformer(self, image: Image, depth: int, request: Request) -> list[Kernel]:
        p, width, area = self.precision(request), image.channels, self.patch**2
        length = image.hw**2 // area
        heads, head_dim = self.heads, width // self.heads
        sequences = image.batch * area
        site = Attention(sequences, heads, heads, length, length, head_dim, depth)
        return [
            *self._layers(request, site, int(width * self.mlp_ratio), "silu"),
            rows_of("layernorm", sequences * length, width, p.values),
        ]


def _trained(conv: Convolution, activation: bool = True) -> tuple[Trainable, ...]:
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
