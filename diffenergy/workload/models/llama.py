"""Llama and its relatives: RMSNorm, rotary positions, gated MLP, grouped queries."""

import dataclasses
from typing import Any, Final

from .._listing import Kernel
from .._unlisted import rotary_copies, stream
from ._shared.attention import cast_softmax, products, score_stream
from ._shared.base import Request, dense, linear, product, rows_of
from ._shared.config import Config
from ._shared.decoder import Decoder, Step
from ._training.activations import Gated
from ._training.linear_layer import Linear
from ._training.norms import Norm, rms_norm
from ._training.operators import Embedding, Fixed, Operator, Residual
from ._training.self_attention import Rotary, Scores, SelfAttention
from ._training.step import Network


@dataclasses.dataclass(frozen=True)
class _Variant:
    """What a relative does differently."""

    qkv_bias: bool = False
    qk_norm: bool = False
    window_flag: bool = False
    """Whether `use_sliding_window` must be set for the window to apply."""


_VARIANTS: Final = {
    "llama": _Variant(),
    "mistral": _Variant(),
    "qwen2": _Variant(qkv_bias=True, window_flag=True),
    "qwen3": _Variant(qk_norm=True, window_flag=True),
    "mixtral": _Variant(),
    "qwen3_moe": _Variant(qk_norm=True, window_flag=True),
}
MODEL_TYPES: Final = ("llama", "mistral", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True)
class Llama(Decoder):
    """Decoder with RMSNorm before attention and before a gated (SiLU) MLP."""

    variant: _Variant
    tied: bool
    attention_bias: bool
    mlp_bias: bool

    def parameters(self) -> int:
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * self._layer_parameters() + self.hidden

    def module_calls(self, base: bool) -> int:
        """13 a layer: layer, attention, 4 projections, 2 norms, MLP and its 4; with
        model, embedding, rotary and norm 368 for Qwen2-1.5B, as counted there."""
        norms = 2 if self.variant.qk_norm else 0
        return (13 + norms) * self.layers + 4 + (0 if base else 2)

    def _layer_parameters(self) -> int:
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        weights = 2 * self.hidden * (width + kv_width)
        biases = width + 2 * kv_width if self.variant.qkv_bias else 0
        if self.attention_bias and not self.variant.qkv_bias:
            biases = width + 2 * kv_width + self.hidden
        norms = 2 * self.hidden + (2 * self.head_dim if self.variant.qk_norm else 0)
        return weights + biases + norms + self._mlp_parameters()

    def _mlp_parameters(self) -> int:
        biases = 2 * self.inner + self.hidden if self.mlp_bias else 0
        return 3 * self.hidden * self.inner + biases

    # Serving: fused kernels.

    def _serving_pass(self, step: Step) -> list[Kernel]:
        p, t, n = step.precision, step.tokens, self.layers
        fused = (self.heads + 2 * self.kv_heads) * self.head_dim
        width = self.heads * self.head_dim
        return [
            rows_of("gather", t, self.hidden, p.values),
            rows_of("rmsnorm", t, self.hidden, p.values),
            dense(p.linear, t, fused, self.hidden, count=n),
            *self._serving_qk_norms(step),
            self._kv_write(step, "rope_kv_write", rotated=True),
            *self._serving_attention(step),
            dense(p.linear, t, self.hidden, width, count=n),
            *self._serving_mlp(step),
            # two a layer and the final one; the very first had no residual to add
            rows_of("rmsnorm", t, self.hidden, p.values, count=2 * n, residual=True),
        ]

    def _serving_qk_norms(self, step: Step) -> list[Kernel]:
        if not self.variant.qk_norm:
            return []
        return [
            rows_of(
                "rmsnorm",
                step.tokens * heads,
                self.head_dim,
                step.precision.values,
                count=self.layers,
            )
            for heads in (self.heads, self.kv_heads)
        ]

    def _serving_mlp(self, step: Step) -> list[Kernel]:
        p, t, n = step.precision, step.tokens, self.layers
        return [
            dense(p.linear, t, 2 * self.inner, self.hidden, count=n),
            stream("silu_mul", t * self.inner, p.values, n),
            dense(p.linear, t, self.hidden, self.inner, count=n),
        ]

    # Eager: one kernel an operator.

    def _eager_pass(self, step: Step) -> list[Kernel]:
        p, t, n = step.precision, step.tokens, self.layers
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = [
            *self._rotary_tables(step.q_len),
            *rms_norm(t, self.hidden, p.values, 2 * n + 1),
            linear(p, width, t, self.hidden, count=n),
            linear(p, kv_width, t, self.hidden, count=2 * n),
            linear(p, self.hidden, t, width, count=n),
            stream("pointwise_add", t * self.hidden, p.values, 2 * n),
            *self._rotate(step, t * width),
            *self._rotate(step, t * kv_width),
            *self._eager_attention(step),
            linear(p, self.inner, t, self.hidden, count=2 * n),
            stream("silu", t * self.inner, p.values, n),
            stream("pointwise_mul", t * self.inner, p.values, n),
            linear(p, self.hidden, t, self.inner, count=n),
            *self._eager_copies(step),
            *rotary_copies(self._site(step), p.values),
        ]
        if self.variant.qk_norm:
            for heads in (self.heads, self.kv_heads):
                rows += rms_norm(t * heads, self.head_dim, p.values, n)
        return rows

    def _rotary_tables(self, length: int) -> list[Kernel]:
        """Angles (an outer product of frequencies and positions), then cos and sin."""
        angles = product("fp32", 1, self.head_dim // 2, length, 1)
        return [angles, stream("scalar_mul", length * self.head_dim, "fp32", 2)]

    def _rotate(self, step: Step, elements: int) -> list[Kernel]:
        """x cos + rotate_half(x) sin; the tables are broadcast over the heads."""
        dtype, n = step.precision.values, self.layers
        return [
            stream("pointwise_mul", elements, dtype, 2 * n, reads=1),
            stream("pointwise_add", elements, dtype, n),
        ]

    def _eager_attention(self, step: Step) -> list[Kernel]:
        if step.flash:
            return [self._fused_attention(step)]
        site, p = self._site(step), step.precision
        scores, values = products(site, p, **step.zeros)
        return [
            scores,
            score_stream("scalar_mul", site, p.values, **step.zeros),
            score_stream("pointwise_add", site, p.values, reads=1, **step.zeros),
            *cast_softmax(site, p.values, **step.zeros),
            values,
        ]

    # Training: one description for both stacks.

    def _network(self, request: Request) -> Network:
        h, fused = self.hidden, request.stack == "serving"
        norm, layout = Norm("rmsnorm", h), self.head_layout
        tables = () if fused else tuple(self._rotary_tables(request.input_len or 1))
        width = self.heads * self.head_dim
        bias = self.attention_bias and not self.variant.qkv_bias
        return Network(
            inputs=(Embedding(self.vocab, h), Fixed(tables)),
            norm=norm,
            body=(
                *self._projections(fused),
                *self._qk_norms(),
                Rotary(layout),
                SelfAttention(layout, Scores()),
                Linear(h, width, bias),
                Residual(h),
                norm,
                *self._mlp(fused),
                Residual(h),
            ),
            layers=self.layers,
            final=norm,
            head=Linear(self.vocab, h, wide=True),
        )

    def _projections(self, fused: bool) -> tuple[Linear, ...]:
        """Queries, keys and values, as one layer where they are fused."""
        h, bias = self.hidden, self.variant.qkv_bias or self.attention_bias
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if fused:
            return (Linear(width + 2 * kv_width, h, bias),)
        return (Linear(width, h, bias), *2 * (Linear(kv_width, h, bias, joins=True),))

    def _qk_norms(self) -> tuple[Norm, ...]:
        if not self.variant.qk_norm:
            return ()
        return tuple(
            Norm("rmsnorm", self.head_dim, heads, residual=False)
            for heads in (self.heads, self.kv_heads)
        )

    def _mlp(self, fused: bool) -> tuple[Operator, ...]:
        """Gate and up (one layer where they are fused), product, down."""
        h, inner, bias = self.hidden, self.inner, self.mlp_bias
        parts = (Linear(inner, h, bias), Linear(inner, h, bias, joins=True))
        first = (Linear(2 * inner, h, bias),) if fused else parts
        return (*first, Gated(inner), Linear(h, inner, bias))


def build(config: Config) -> Llama:
    """Llama, Mistral, Qwen2 or Qwen3 of a config."""
    inner = config.size("intermediate_size")
    return Llama(**llama_fields(config), inner=inner)


def llama_fields(config: Config) -> dict[str, Any]:
    """Fields shared by dense and mixture-of-experts relatives."""
    variant = _VARIANTS[config.text("model_type")]
    hidden = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        config.divides("num_key_value_heads", "num_attention_heads")
    if config.values.get("head_dim") is None:
        config.divides("num_attention_heads", "hidden_size")
    windowed = not variant.window_flag or config.flag("use_sliding_window", False)
    window = config.size("sliding_window", default=0) if windowed else 0
    return dict(
        config=config,
        layers=config.size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=config.size("head_dim", default=hidden // heads),
        vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        window=window,
        variant=variant,
        tied=config.flag("tie_word_embeddings", False),
        attention_bias=config.flag("attention_bias", False),
        mlp_bias=config.flag("mlp_bias", False),
    )
