"""GPT-2, OPT, MPT and Nemotron: LayerNorm before attention and before an MLP of two
layers."""

import dataclasses
from typing import Any, Final

from .._checkpoint.config import Config, positions
from .._language_model import LanguageModel
from .._layer import Layer, head_sizes
from .._operators.attention import Attention, Heads
from .._operators.linear import Activation, Linear
from .._operators.operator import PaddingMask
from .._operators.scores import Scores
from .._operators.sharding import Columns, Rows
from .._trained import TrainedModel

MODEL_TYPES: Final = ("gpt2", "opt", "mpt", "nemotron")


@dataclasses.dataclass(frozen=True)
class _Shape:
    """`bias`: of all linear layers. `joined`: modules have queries, keys and values as
    one layer. `row_major`: weights of `Conv1D`."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    activation: str
    scores: Scores
    bias: bool = True
    joined: bool = True
    row_major: bool = False
    rotary: bool = False


def build(config: Config) -> LanguageModel:
    """A model of a config."""
    kinds = {"gpt2": _gpt2, "opt": _opt, "mpt": _mpt, "nemotron": _nemotron}
    return kinds[config.text("model_type")](config)


def _gpt2(config: Config) -> LanguageModel:
    """GPT-2: learned positions; 13 modules a block (block, attention with 2 Conv1D and
    2 dropouts, MLP with 2 Conv1D, activation and dropout, 2 norms) and 5 around them:
    161 for GPT-2."""
    hidden, heads = config.size("n_embd"), config.size("n_head")
    config.divides("n_head", "n_embd")
    fn = config.text("activation_function", "gelu_new")
    scores = Scores("unspecified_tensor", "where", cast=False)
    shape = _Shape(
        hidden,
        heads,
        heads,
        hidden // heads,
        config.size("n_inner", default=4 * hidden),
        fn,
        scores,
        row_major=True,
    )
    reach = config.size("n_positions", "n_ctx")
    layers = config.size("n_layer")
    return _model(config, shape, layers, reach, learned=True, modules=(13, 5, 2))


def _opt(config: Config) -> LanguageModel:
    """OPT: learned positions, with two rows before position 0; the 350M variant
    (projected embeddings) is not supported. 11 modules a layer (layer, attention, 4
    projections, 2 norms, 2 linear, activation) and 5 around them: 269 for OPT-1.3B."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    if config.size("word_embed_proj_dim", default=hidden) != hidden:
        raise config.error("word_embed_proj_dim", f"`hidden_size` = {hidden}")
    shape = _Shape(
        hidden,
        heads,
        heads,
        hidden // heads,
        config.size("ffn_dim"),
        config.text("activation_function", "relu"),
        Scores(scale_queries=True),
        joined=False,
    )
    return _model(
        config,
        shape,
        config.size("num_hidden_layers"),
        config.size("max_position_embeddings"),
        learned=True,
        unread=2 * hidden,
        tables=(PaddingMask(),),
        modules=(11, 5, 2),
    )


def _mpt(config: Config) -> LanguageModel:
    """MPT: norms without shift, no biases; what ALiBi adds to the scores in place of
    positions is part of the attention kernel. With positions that are learned it is not
    supported. 10 modules a block (block, 2 norms, attention with 2 linear layers, MLP
    with 2 and the activation, dropout) and 4 around them."""
    hidden, heads = config.size("d_model"), config.size("n_heads")
    config.divides("n_heads", "d_model")
    attention = config.stated("attn_config") or {}
    if not attention.get("alibi", True):
        raise config.error("attn_config", "an `alibi` of true")
    if not config.flag("no_bias", True):
        raise config.error("no_bias", "true")
    kv_heads = int(attention.get("kv_n_heads") or heads)
    inner = config.size("expansion_ratio", default=4) * hidden
    width = hidden // heads
    shape = _Shape(hidden, heads, kv_heads, width, inner, "gelu", Scores(), bias=False)
    layers, reach = config.size("n_layers"), config.size("max_seq_len")
    return _model(config, shape, layers, reach, norm_bias=False, modules=(10, 4, 1))


def _nemotron(config: Config) -> LanguageModel:
    """Nemotron-3-8B, Nemotron-4-15B and -340B and their like: rotary positions, grouped
    queries, squared ReLU, no biases. 11 modules a layer (layer, attention, 4
    projections, 2 norms, MLP with 2 layers less its activation) and 4 around them."""
    sizes = head_sizes(config, "head_dim")
    for key in ("attention_bias", "mlp_bias"):
        if config.flag(key, False):
            raise config.error(key, "false")
    config.ignore("partial_rotary_factor", "norm_eps")
    shape = _Shape(
        **sizes,
        inner=config.size("intermediate_size"),
        activation=config.text("hidden_act", "relu2"),
        scores=Scores(),
        bias=False,
        joined=False,
        rotary=True,
    )
    layers, reach = config.size("num_hidden_layers"), positions(config)
    tied = config.tied()
    return _model(config, shape, layers, reach, tied=tied, modules=(11, 4, 2))


def _model(
    config: Config,
    shape: _Shape,
    layers: int,
    positions: int,
    tied: bool = True,
    **more: Any,
) -> LanguageModel:
    """A model of so many layers; `more`: fields of it."""
    sizes = dict(layers=layers, heads=shape.heads, kv_heads=shape.kv_heads)
    sizes |= dict(head_dim=shape.head_dim, inner=shape.inner, window=0, tied=tied)
    return TrainedModel(
        config=config,
        hidden=shape.hidden,
        vocab=config.size("vocab_size"),
        positions=positions,
        blocks=layers * (_layer(shape),),
        tied=tied,
        norm="layernorm",
        sizes={**sizes, "activation": shape.activation},
        **more,
    )


def _layer(s: _Shape) -> Layer:
    h, width, keys = s.hidden, s.heads * s.head_dim, s.kv_heads * s.head_dim
    parts = () if s.joined else (width, keys, keys)
    inward = Columns(2 * keys, s.kv_heads)
    activation = Activation(s.activation, s.inner)
    every = (s.bias, s.row_major)
    return Layer(
        (
            Linear(width + 2 * keys, h, *every, parts=parts, split=inward),
            Attention(Heads(s.heads, s.kv_heads, s.head_dim), s.scores, s.rotary),
            Linear(h, width, *every, split=Rows()),
            Linear(s.inner, h, *every, split=Columns()),
            Linear(h, s.inner, *every, activation=activation, split=Rows()),
        )
    )
