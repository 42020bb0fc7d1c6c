"""DeepSeek V2 to V3.2 and its relatives (Kimi K2, GLM-5, Mistral 4): latent attention,
the first feed-forward layers dense, the rest routed beside a shared expert."""

from typing import Final

from .._layers.latent import Indexer, LatentShape, latent_attention
from .._layers.layer import Layer
from .._layers.model import Layered, layered
from .._layers.parts import Part, experts, feed_forward, shared_expert
from .._shared.config import Config

MODEL_TYPES: Final = (
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa",
    "mistral4",
)  # fmt: skip


def build(config: Config) -> Layered:
    """A model with latent attention; with `index_topk` it is sparse."""
    shape = latent_shape(config)
    index = _indexer(config, shape)
    layers = config.size("num_hidden_layers")
    if config.has("layer_types"):
        mixer = "indexed_attention" if index else "full_attention"
        config.words("layer_types", (mixer,), layers)
    kinds = layers * ("full",)
    if config.has("indexer_types"):
        kinds = config.words("indexer_types", ("full", "shared"), layers)
    blocks = []
    for kind, feed in zip(kinds, feed_forwards(config), strict=True):
        own = index if kind == "full" else None
        mixer = latent_attention(shape, own, index.chosen if index else 0)
        blocks.append(Layer((*mixer, *feed)))
    return layered(config, blocks)


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


def feed_forwards(config: Config) -> list[Part]:
    """What follows the attention of every layer."""
    layers, hidden = config.size("num_hidden_layers"), config.size("hidden_size")
    first = config.whole("first_k_dense_replace", 0)
    routed = config.every("moe_layer_freq", layers, first)
    if config.has("mlp_layer_types"):
        kinds = config.words("mlp_layer_types", ("dense", "sparse"), layers)
        routed = tuple(kind == "sparse" for kind in kinds)
    inner = config.size("moe_intermediate_size")
    shared = config.whole("n_shared_experts", 0)
    mixture = experts(
        hidden,
        inner,
        config.size("n_routed_experts"),
        config.size("num_experts_per_tok"),
    )
    sparse = (mixture, *shared_expert(hidden, shared * inner, "mlp.shared_experts"))
    dense = feed_forward(hidden, config.size("intermediate_size"))
    return [sparse if is_routed else dense for is_routed in routed]


def _indexer(config: Config, shape: LatentShape) -> Indexer | None:
    if not config.has("index_topk"):
        return None
    return Indexer(
        hidden=shape.hidden,
        queries=shape.queries,
        heads=config.size("index_n_heads"),
        head_dim=config.size("index_head_dim"),
        chosen=config.size("index_topk"),
    )
