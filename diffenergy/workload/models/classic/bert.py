"""BERT: bidirectional encoder with learned positions, LayerNorm and a pooler."""

import dataclasses
from typing import ClassVar, Final

from ..._listing import Kernel
from ..._unlisted import Attention, stream
from .._shared.attention import Scores
from .._shared.base import Request, layer_parameters, linear, rows_of
from .._shared.config import Config
from .._shared.encoder import Encoder

MODEL_TYPES: Final = ("bert",)


@dataclasses.dataclass(frozen=True)
class Bert(Encoder):
    """BertModel; heads of derived classes are not added."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocab: int
    positions: int
    types: int
    activation: str

    scores: ClassVar[Scores] = Scores("unspecified_scalar", cast=False)

    @property
    def max_positions(self) -> int:
        return self.positions

    def parameters(self) -> int:
        h = self.hidden
        tables = (self.vocab + self.positions + self.types) * h + 2 * h
        layers = self.layers * layer_parameters(h, self.inner)
        return tables + layers + h * h + h

    def module_calls(self, base: bool) -> int:
        """18 a layer and 8 around them: 440 for BERT-large, as counted there."""
        return 18 * self.layers + 8

    def _forward(self, request: Request) -> list[Kernel]:
        p, h = self.precision(request), self.hidden
        batch, length = request.batch, request.input_len or self.positions
        t = batch * length
        heads = self.heads
        site = Attention(batch, heads, heads, length, length, h // heads, self.layers)
        return [
            # of the two sums of embeddings traces list one
            stream("pointwise_add", t * h, p.values, 1),
            rows_of("layernorm", t, h, p.values),
            stream("scalar_mul", t, p.values, 1),  # additive padding mask
            *self._layers(request, site, self.inner, self.activation),
            linear(p, h, batch, h),
            stream("tanh", batch * h, p.values, 1),
        ]


def build(config: Config) -> Bert:
    """BERT of a config."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    return Bert(
        config=config,
        layers=config.size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        inner=config.size("intermediate_size"),
        vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        types=config.size("type_vocab_size", default=2),
        activation=config.text("hidden_act", "gelu"),
    )
