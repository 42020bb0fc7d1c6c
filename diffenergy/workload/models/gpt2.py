"""GPT-2: learned positions, LayerNorm, fused QKV as Conv1D, GELU."""

import dataclasses
from typing import Any, Final

from .._listing import Kernel
from .._unlisted import masked_select, stream
from ._shared.attention import products, score_stream, softmax
from ._shared.base import Precision, Request, dense, rows_of
from ._shared.config import Config
from ._shared.decoder import Decoder, Step
from ._training.activations import Activation, gelu_new
from ._training.linear_layer import Linear
from ._training.norms import Norm
from ._training.operators import Embedding, Fixed, Residual
from ._training.self_attention import Scores, SelfAttention
from ._training.step import Network

MODEL_TYPES: Final = ("gpt2",)


@dataclasses.dataclass(frozen=True)
class Gpt2(Decoder):
    """GPT-2; its linear layers are row-major (`Conv1D`), biases are fused."""

    activation: str

    def parameters(self) -> int:
        h, inner = self.hidden, self.inner
        attention = 4 * h * h + 4 * h
        mlp = 2 * h * inner + inner + h
        layer = attention + mlp + 2 * 2 * h
        return (self.vocab + self.positions) * h + self.layers * layer + 2 * h

    def module_calls(self, base: bool) -> int:
        """13 a block (block, attention with 2 Conv1D and 2 dropouts, MLP with 2 Conv1D,
        activation and dropout, 2 norms) and 5 around them: 161 for GPT-2."""
        return 13 * self.layers + 5 + (0 if base else 2)

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
            stream("gelu", t * self.inner, p.values, n),
            dense(p.linear, t, h, self.inner, count=n),
            rows_of("layernorm", t, h, p.values, count=2 * n, residual=True),
        ]

    def _eager_pass(self, step: Step) -> list[Kernel]:
        p, t, n, h = step.precision, step.tokens, self.layers, self.hidden
        return [
            stream("pointwise_add", t * h, p.values, 2 * n + 1),
            rows_of("layernorm", t, h, p.values, count=2 * n + 1),
            _conv1d(p, t, 3 * h, h, n),
            *self._eager_attention(step),
            _conv1d(p, t, h, h, n),
            _conv1d(p, t, self.inner, h, n),
            *self._eager_activation(step),
            _conv1d(p, t, h, self.inner, n),
            *self._eager_copies(step),
        ]

    def _eager_attention(self, step: Step) -> list[Kernel]:
        if step.flash:
            return [self._fused_attention(step)]
        site, p = self._site(step), step.precision
        scores, values = products(site, p, **step.zeros)
        return [
            scores,
            score_stream("unspecified_tensor", site, p.values, **step.zeros),
            *masked_select(site, p.values, **step.zeros),
            softmax(site, p.values, **step.zeros),
            values,
        ]

    def _eager_activation(self, step: Step) -> list[Kernel]:
        elements, dtype = step.tokens * self.inner, step.precision.values
        if self.activation != "gelu_new":
            return [stream(self.activation, elements, dtype, self.layers)]
        return gelu_new(elements, dtype, self.layers)

    def _network(self, request: Request) -> Network:
        row_major = request.stack == "eager"
        scores = Scores("unspecified_tensor", "where", cast=False)
        qkv = (Linear(3 * self.hidden, self.hidden, True, row_major),)
        return pre_norm_network(self, qkv, scores, self.activation)


def pre_norm_network(
    model: Decoder,
    qkv: tuple[Linear, ...],
    scores: Scores,
    activation: str,
    masks: tuple[Kernel, ...] = (),
) -> Network:
    """Training step of GPT-2 and OPT: LayerNorm before attention and MLP, biases
    everywhere; linear layers are stored like `qkv`."""
    h, inner, row_major = model.hidden, model.inner, qkv[0].row_major
    norm = Norm("layernorm", h)
    return Network(
        inputs=(Embedding(model.vocab, h, model.positions), Fixed(masks)),
        norm=norm,
        body=(
            *qkv,
            SelfAttention(model.head_layout, scores),
            Linear(h, h, True, row_major),
            Residual(h),
            norm,
            Linear(inner, h, True, row_major),
            Linear(h, inner, True, row_major, activation=Activation(activation, inner)),
            Residual(h),
        ),
        layers=model.layers,
        final=norm,
        head=Linear(model.vocab, h, wide=True),
    )


def embeddings(step: Step, hidden: int) -> list[Kernel]:
    """Token and position lookups and their sum."""
    dtype, tokens = step.precision.values, step.tokens
    return [
        rows_of("gather", tokens, hidden, dtype, count=2),
        stream("pointwise_add", tokens * hidden, dtype, 1),
    ]


def build(config: Config) -> Gpt2:
    """GPT-2 of a config."""
    hidden = config.size("n_embd")
    heads = config.size("n_head")
    config.divides("n_head", "n_embd")
    activation = config.text("activation_function", "gelu_new")
    fields: dict[str, Any] = dict(
        layers=config.size("n_layer"),
        inner=config.size("n_inner", default=4 * hidden),
        vocab=config.size("vocab_size"),
        positions=config.size("n_positions", "n_ctx"),
    )
    return Gpt2(
        config=config,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        window=0,
        activation=activation,
        **fields,
    )


def _conv1d(p: Precision, tokens: int, outputs: int, inputs: int, count: int) -> Kernel:
    return dense(p.linear, tokens, outputs, inputs, count=count, layout="nn")
