"""DeepSeek V2 to V3.2 and its relatives (Kimi K2, GLM-5, Mistral 4): latent attention,
the first feed-forward layers dense, the rest routed beside a shared expert."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer, feed_forward, mixture, shared_expert
from .._operators.elementwise import Part
from .._operators.latent import Indexer, LatentShape, latent_attention
from .._trained import build_model

MODEL_TYPES: Final = (
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa",
    "mistral4",
)  # fmt: skip


def build(config: Config) -> LanguageModel:
    """A model with latent attention; with `index_topk` it is sparse."""
    shape = latent_shape(config)
    index = None
    if config.has("index_topk"):
        index = indexer(config, shape.queries)
    layers = config.size("num_hidden_layers")
    if config.has("layer_types"):
        mixer = "indexed_attention" if index else "full_attention"
        config.words("layer_types", (mixer,), layers)
    kinds = layers * ("full",)
    if config.has("indexer_types"):
        kinds = config.words("indexer_types", ("full", "shared"), layers)
    blocks = []
    for kind, feed in zip(kinds, feed_forwards(config), strict=True):
        layer_index = index if kind == "full" else None
        mixer = latent_attention(shape, layer_index, index.chosen if index else 0)
        blocks.append(Layer((*mixer, *feed)))
    return build_model(config, blocks)


def latent_shape(config: Config) -> LatentShape:
    """Ranks and head widths of latent attention."""
    config.has("num_key_value_heads")  # every head has its own, expanded
    config.has("head_dim")
    config.has("qk_head_dim")
    config.flag("attention_bias", False)
    return LatentShape(
        hidden=config.size("hidden_size"),
        heads=config.size("num_attention_heads"),
        nope=config.size("qk_nope_head_dim"),
        rope=config.size("qk_rope_head_dim"),
        values=config.size("v_head_dim"),
        queries=config.size("q_lora_rank", default=0),
        latent=config.size("kv_lora_rank"),
        bias=config.flag("attention_bias", False),
    )


def shared_mixture(config: Config) -> Part:
    """Routed experts beside a shared one, which is as wide as several of them."""
    inner, shared = config.size("moe_intermediate_size"), "mlp.shared_experts"
    width = config.whole("n_shared_experts", 0) * inner
    beside = shared_expert(config.size("hidden_size"), width, shared)
    groups = config.whole("n_group", 1) or 1, config.whole("topk_group", 1) or 1
    return (mixture(config, "n_routed_experts", groups=groups), *beside)


def feed_forwards(config: Config, sparse: Part | None = None) -> list[Part]:
    """What follows the attention of every layer; `sparse`: in its routed layers
    [`shared_mixture`]."""
    layers, hidden = config.size("num_hidden_layers"), config.size("hidden_size")
    first = config.whole("first_k_dense_replace", 0)
    routed = config.every("moe_layer_freq", layers, first)
    if config.has("mlp_layer_types"):
        kinds = config.words("mlp_layer_types", ("dense", "sparse"), layers)
        routed = tuple(kind == "sparse" for kind in kinds)
    sparse = shared_mixture(config) if sparse is None else sparse
    dense = feed_forward(hidden, config.size("intermediate_size"))
    return [sparse if is_routed else dense for is_routed in routed]


def indexer(config: Config, queries: int, ratio: int = 1) -> Indexer:
    """The indexer of a layer; see `Indexer`."""
    return Indexer(
        hidden=config.size("hidden_size"),
        queries=queries,
        heads=config.size("index_n_heads"),
        head_dim=config.size("index_head_dim"),
        chosen=config.size("index_topk"),
        ratio=ratio,
    )
