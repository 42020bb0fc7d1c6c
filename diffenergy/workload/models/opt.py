"""OPT: learned positions, LayerNorm before attention and MLP, ReLU."""

import dataclasses
from typing import Final

from .._listing import Kernel
from .._unlisted import HALF, stream
from ._shared.attention import cast_softmax, products, score_stream
from ._shared.base import Request, dense, linear, rows_of
from ._shared.config import Config
from ._shared.decoder import Decoder, Step
from ._training.linear_layer import Linear
from ._training.self_attention import Scores
from ._training.step import Network
from .gpt2 import embeddings, pre_norm_network

MODEL_TYPES: Final = ("opt",)
_POSITION_OFFSET = 2
"""Rows of the position table before position 0."""


@dataclasses.dataclass(frozen=True)
class Opt(Decoder):
    """OPT with pre-norm layers; biases are fused into the linear layers."""

    activation: str

    def parameters(self) -> int:
        h, inner = self.hidden, self.inner
        layer = 4 * h * h + 4 * h + 2 * h * inner + inner + h + 2 * 2 * h
        tables = (self.vocab + self.positions + _POSITION_OFFSET) * h
        return tables + self.layers * layer + 2 * h

    def module_calls(self, base: bool) -> int:
        """11 a layer (layer, attention, 4 projections, 2 norms, 2 linear, activation)
        and 5 around them: 269 for OPT-1.3B."""
        return 11 * self.layers + 5 + (0 if base else 2)

    def _serving_pass(self, step: Step) -> list[Kernel]:
        p, t, n, h = step.precision, step.tokens, self.layers, self.hidden
        return [
            *embeddings(step, h),
            rows_of("layernorm", t, h, p.values),
            dense(p.linear, t, 3 * h, h, count=n),
            self._kv_write(step, "kv_write", rotated=False),
            *self._serving_attention(step),
            dense(p.linear, t, h, h, count=n),
            dense(p.linear, t, self.inner, h, count=n),
            stream(self.activation, t * self.inner, p.values, n),
            dense(p.linear, t, h, self.inner, count=n, **self._behind_activation()),
            rows_of("layernorm", t, h, p.values, count=2 * n, residual=True),
        ]

    def _eager_pass(self, step: Step) -> list[Kernel]:
        p, t, n, h = step.precision, step.tokens, self.layers, self.hidden
        mask = step.batch * step.q_len * step.kv_len
        return [
            stream("pointwise_add", mask, "fp32", 1),
            stream("pointwise_mul", t, "fp32", 1),  # positions from the padding mask
            stream("pointwise_add", t * h, p.values, 2 * n + 1),
            rows_of("layernorm", t, h, p.values, count=2 * n + 1),
            linear(p, h, t, h, count=4 * n),
            *self._eager_attention(step),
            linear(p, self.inner, t, h, count=n),
            stream(self.activation, t * self.inner, p.values, n),
            linear(p, h, t, self.inner, count=n, **self._behind_activation()),
            *self._eager_copies(step),
        ]

    def _eager_attention(self, step: Step) -> list[Kernel]:
        if step.flash:
            return [self._fused_attention(step)]
        site, p = self._site(step), step.precision
        scores, values = products(site, p, **step.zeros)
        return [
            stream("scalar_mul", site.queries, p.values, self.layers),
            scores,
            score_stream("pointwise_add", site, p.values, reads=1, **step.zeros),
            *cast_softmax(site, p.values, **step.zeros),
            values,
        ]

    def _network(self, request: Request) -> Network:
        h, t = self.hidden, request.batch * (request.input_len or 1)
        scores = Scores(scale_queries=True)
        if request.stack == "serving":
            qkv = (Linear(3 * h, h, True),)
            return pre_norm_network(self, qkv, scores, self.activation)
        masks = (  # causal mask, and positions from the padding mask
            stream("pointwise_add", t * (request.input_len or 1), "fp32", 1),
            stream("pointwise_mul", t, "fp32", 1),
        )
        qkv = (Linear(h, h, True), *2 * (Linear(h, h, True, joins=True),))
        return pre_norm_network(self, qkv, scores, self.activation, masks)

    def _behind_activation(self) -> dict[str, float]:
        return {"zero_share": HALF} if self.activation == "relu" else {}


def build(config: Config) -> Opt:
    """OPT of a config; the 350M variant (projected embeddings) is not supported."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    if config.size("word_embed_proj_dim", default=hidden) != hidden:
        raise config.error("word_embed_proj_dim", f"`hidden_size` = {hidden}")
    return Opt(
        config=config,
        layers=config.size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        inner=config.size("ffn_dim"),
        vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        window=0,
        activation=config.text("activation_function", "relu"),
    )
