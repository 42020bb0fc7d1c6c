"""ViT: image patches through a bidirectional transformer encoder."""

import dataclasses
from typing import ClassVar, Final

from ..._eager_rows import stream
from ..._kernel import Kernel
from .._checkpoint.config import Config
from .._encoder import Encoder, encoder_layer, labels_of
from .._operators.convolution import Convolution
from .._operators.linear import Linear
from .._operators.memory import Weights
from .._operators.operator import ForwardPass, Norm, Trainable
from .._operators.partial import Within
from .._operators.passes import linear
from .._operators.scores import Scores
from .._request import Request
from .._stack import Block, Stack
from .._step import Loss

MODEL_TYPES: Final = ("vit",)


@dataclasses.dataclass(frozen=True)
class Vit(Encoder):
    """Vision transformer with a class token; a pooler (base) or a classifier."""

    layers: int
    hidden: int
    heads: int
    inner: int
    image_size: int
    patch: int
    channels: int
    pooled: int
    labels: int
    activation: str

    scores: ClassVar[Scores] = Scores(mask="")
    adapts: ClassVar[bool] = True

    @property
    def tokens(self) -> int:
        """Patches of an image and the class token."""
        return (self.image_size // self.patch) ** 2 + 1

    def parameters(self) -> int:
        outputs = self.pooled - self.labels if not self._has_head() else 0
        return self.network().parameters + outputs * (self.hidden + 1)

    def module_calls(self, base: bool) -> int:
        """17 a layer and 8 around them: 416 for ViT-large with pooler, as counted."""
        return 17 * self.layers + 8

    def _forward(self, request: Request) -> list[Kernel]:
        rows = self.traced(self.network().blocks, request)
        p, batch = self.precision(request), request.batch
        if not request.base:
            return [*rows, linear(p, self.labels, batch, self.hidden)]
        return [
            *rows,
            linear(p, self.pooled, batch, self.hidden),
            stream("tanh", batch * self.pooled, p.values, 1),
        ]

    def length(self, request: Request) -> int:
        return self.tokens

    def network(self, whole: bool = True) -> Stack:
        h, patch = self.hidden, self.patch
        patches = Convolution(
            self.channels, self.image_size, h, patch, patch, 0, bias=True, first=True
        )
        layer = encoder_layer(h, self.heads, self.inner, self.activation, self.scores)
        classifier = Linear(self.labels, h, True, wide=True)
        return Stack(
            (
                Block((patches, _Positions(self.tokens, h))),
                Block(layer, self.layers, h),
                Block((Norm("layernorm", h), Within((classifier,)))),
            ),
            Within((Loss(self.labels),)),
        )


@dataclasses.dataclass(frozen=True)
class _Positions(Trainable):
    """Learned positions added to every one of `tokens`; the class token is another row
    of `hidden` weights."""

    tokens: int
    hidden: int

    def weights(self) -> tuple[Weights, ...]:
        return (Weights((self.tokens + 1) * self.hidden),)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [stream("scalar_add", run.tokens * self.hidden, run.values, 1)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        once = {"reads": 1, "writes": 1 / run.sequences}
        elements = run.tokens * self.hidden
        return [stream("position_grad", elements, run.values, 1, **once)]


def build(config: Config) -> Vit:
    """ViT of a config; 1,000 labels unless `num_labels` says otherwise."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    image_size = config.size("image_size")
    if image_size < config.size("patch_size"):
        raise config.error("patch_size", f"at most `image_size` = {image_size}")
    return Vit(
        config=config,
        layers=config.size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        inner=config.size("intermediate_size"),
        image_size=image_size,
        patch=config.size("patch_size"),
        channels=config.size("num_channels", default=3),
        pooled=config.size("pooler_output_size", default=hidden),
        labels=labels_of(config),
        activation=config.text("hidden_act", "gelu"),
    )
