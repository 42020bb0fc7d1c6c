"""Llama and its relatives: RMSNorm, rotary positions, gated MLP, grouped queries."""

import dataclasses
from typing import Any, ClassVar, Final

from ..._eager_rows import rotary_copies, stream
from ..._kernel import Kernel
from .._layers.read import head_sizes
from .._network.linear_layer import Gated, Linear
from .._network.operators import ForwardPass, Norm, Trainable
from .._network.passes import repeat_rows
from .._network.self_attention import rotation
from .._network.sharding import Columns, Rows
from .._shared.attention import Scores
from .._shared.config import Config, positions
from .._shared.decoder import Decoder


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a relative does differently."""

    qkv_bias: bool = False
    qk_norm: bool = False
    window_flag: bool = False
    """Whether `use_sliding_window` must be set for the window to apply."""
    same: tuple[str, ...] = ()
    """Keys that say what it has anyway."""


_VARIANTS: Final = {
    "llama": Variant(),
    "mistral": Variant(),
    "qwen2": Variant(qkv_bias=True, window_flag=True),
    "qwen3": Variant(qk_norm=True, window_flag=True),
    "qwen3_vl_text": Variant(qk_norm=True, window_flag=True),
    "mimo": Variant(qkv_bias=True, window_flag=True),
    "ministral3": Variant(),
    "phi3": Variant(same=("full_attn_mod", "interpolate_factor")),
    "smollm3": Variant(),
    "granite": Variant(),
    "seed_oss": Variant(qkv_bias=True),
    "qwen2_5_vl_text": Variant(qkv_bias=True, window_flag=True),
    "ernie4_5": Variant(),
    "internlm3": Variant(),
    "hunyuan_v1_dense": Variant(
        qk_norm=True,
        same=("cla_share_factor", "norm_type", "use_qk_norm", "use_rotary_pos_emb"),
    ),
}
MODEL_TYPES: Final = tuple(_VARIANTS)


@dataclasses.dataclass(frozen=True)
class Llama(Decoder):
    """Decoder with RMSNorm before attention and before a gated (SiLU) MLP."""

    variant: Variant
    attention_bias: bool
    mlp_bias: bool

    norm: ClassVar[str] = "rmsnorm"
    rotary: ClassVar[bool] = True
    scores: ClassVar[Scores] = Scores()

    def module_calls(self, base: bool) -> int:
        """13 a layer: layer, attention, 4 projections, 2 norms, MLP and its 4; with
        model, embedding, rotary and norm 368 for Qwen2-1.5B, as counted there."""
        norms = 2 if self.variant.qk_norm else 0
        return (13 + norms) * self.layers + 4 + (0 if base else 2)

    def projections(self, fused: bool) -> tuple[Linear, ...]:
        """Queries, keys and values, as one layer where they are fused."""
        bias = self.variant.qkv_bias or self.attention_bias
        return self.queries_keys_values(fused, bias, module="self_attn.q_proj")

    def head_norms(self) -> tuple[Norm, ...]:
        if not self.variant.qk_norm:
            return ()
        return tuple(
            Norm("rmsnorm", self.head_dim, heads, residual=False, heads=heads)
            for heads in (self.heads, self.kv_heads)
        )

    def output(self, fused: bool) -> Linear:
        bias = self.attention_bias and not self.variant.qkv_bias
        width, name = self.heads * self.head_dim, "self_attn.o_proj"
        return Linear(self.hidden, width, bias, module=name, split=Rows())

    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        """Gate and up (one layer where they are fused), product, down."""
        h, inner, bias = self.hidden, self.inner, self.mlp_bias
        gate = Linear(inner, h, bias, split=Columns())
        parts = (gate, dataclasses.replace(gate, joins=True))
        both = Linear(2 * inner, h, bias, module="mlp.gate_proj", split=Columns())
        down = Linear(h, inner, bias, module="mlp.down_proj", split=Rows())
        return (*((both,) if fused else parts), Gated(inner), down)

    def _eager_pass(self, run: ForwardPass) -> list[Kernel]:
        n, site = self.layers, self._site(run)
        return [
            *self.tables(run),
            *repeat_rows(Norm(self.norm, self.hidden).forward(run), 2 * n + 1),
            *self.each(run, *self.projections(False), self.output(False)),
            stream("pointwise_add", run.tokens * self.hidden, run.values, 2 * n),
            *rotation(site, run.values),
            *self._eager_attention(run),
            *self.each(run, *self.mlp(False)),
            *self._eager_copies(run),
            *rotary_copies(site, run.values),
            *self.each(run, *self.head_norms()),
        ]


def build(config: Config) -> Llama:
    """Llama, Mistral, Qwen2 or Qwen3 of a config."""
    inner = config.size("intermediate_size")
    variant = _VARIANTS[config.text("model_type")]
    model = Llama(**llama_fields(config, variant), inner=inner)
    config.ignore("attention_out_bias", "no_rope_layers", *variant.same)
    if config.size("num_experts", default=1) != 1:
        raise config.error("num_experts", "1 (no experts)")
    config.check_read()
    return model


def llama_fields(config: Config, variant: Variant) -> dict[str, Any]:
    """Fields shared by dense and mixture-of-experts relatives."""
    sizes = head_sizes(config, "head_dim")
    own_bias = config.flag("qkv_bias", variant.qkv_bias)
    return dict(
        config=config,
        layers=config.size("num_hidden_layers"),
        **sizes,
        vocab=config.size("vocab_size"),
        positions=positions(config),
        window=_window(config, variant),
        variant=dataclasses.replace(variant, qkv_bias=own_bias),
        tied=config.tied(),
        attention_bias=config.flag("attention_bias", False),
        mlp_bias=config.flag("mlp_bias", False),
    )


def _window(config: Config, variant: Variant) -> int:
    """Tokens that a query sees in every layer (0: all, also where the window holds all
    positions); raises `ValueError` if layers differ."""
    layers = config.size("num_hidden_layers")
    window = config.size("sliding_window", default=0)
    unused = variant.window_flag and not config.flag("use_sliding_window", False)
    if unused or window >= positions(config):
        window = 0
    key, slides = "max_window_layers", layers * [True]
    if config.has("layer_types"):
        key = "layer_types"
        kinds = config.words(key, ("full_attention", "sliding_attention"), layers)
        slides = [kind == "sliding_attention" for kind in kinds]
    elif variant.window_flag:  # layers before it see everything
        first = config.whole(key, 0)
        slides = [i >= first for i in range(layers)]
    if window and len(set(slides)) > 1:
        raise config.error(key, "the same attention in all layers of this model")
    return window if slides[0] else 0
