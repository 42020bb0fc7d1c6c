"""BERT: bidirectional encoder with learned positions, LayerNorm and a pooler."""

import dataclasses
from typing import Final

from .._listing import Kernel
from .._unlisted import Attention, attention_copies, stream
from ._shared.attention import fused, products, score_stream, softmax
from ._shared.base import Request, linear, rows_of
from ._shared.config import Config
from ._shared.encoder import Encoder

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

    @property
    def max_positions(self) -> int:
        return self.positions

    def parameters(self) -> int:
        h, inner = self.hidden, self.inner
        tables = (self.vocab + self.positions + self.types) * h + 2 * h
        layer = 4 * (h * h + h) + 2 * h * inner + inner + h + 2 * 2 * h
        return tables + self.layers * layer + h * h + h

    def module_calls(self, base: bool) -> int:
        """18 a layer and 8 around them: 440 for BERT-large, as counted there."""
        return 18 * self.layers + 8

    def _forward(self, request: Request) -> list[Kernel]:
        p, n, h = self.precision(request), self.layers, self.hidden
        batch, length = request.batch, request.input_len or self.positions
        t = batch * length
        site = Attention(
            batch, self.heads, self.heads, length, length, h // self.heads, n
        )
        if request.attention == "flash":
            attention = [fused(site, p, causal=False)]
        else:
            scores, values = products(site, p)
            attention = [
                scores,
                score_stream("unspecified_scalar", site, p.values),
                score_stream("pointwise_add", site, p.values, reads=1),
                softmax(site, p.values),
                values,
                *attention_copies(site, p.values),
            ]
        return [
            # of the two sums of embeddings traces list one
            stream("pointwise_add", t * h, p.values, 2 * n + 1),
            rows_of("layernorm", t, h, p.values, count=2 * n + 1),
            stream("scalar_mul", t, p.values, 1),  # additive padding mask
            linear(p, h, t, h, count=4 * n),
            *attention,
            linear(p, self.inner, t, h, count=n),
            stream(self.activation, t * self.inner, p.values, n),
            linear(p, h, t, self.inner, count=n),
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
