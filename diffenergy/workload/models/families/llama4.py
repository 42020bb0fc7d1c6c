"""Llama 4: attention within chunks, every fourth layer over everything and without
rotation; routed experts beside a shared one, in every layer or every other."""

import dataclasses
from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    CHUNKED,
    FULL,
    Layer,
    attention,
    attention_shape,
    feed_forward,
    layer_kinds,
    mixture,
    shared_expert,
)
from .._trained import build_model

MODEL_TYPES: Final = ("llama4_text",)
_FULL_EVERY: Final = 4


def build(config: Config) -> LanguageModel:
    """Llama 4 of its text config."""
    norms = "bare" if config.flag("use_qk_norm", True) else ""
    shape = attention_shape(config, norms=norms)
    inner, chunk = config.size("intermediate_size"), config.size("attention_chunk_size")
    step = config.size("interleave_moe_layer_step", default=1)
    routed = mixture(
        config, "num_local_experts", inner="intermediate_size", prefix="feed_forward"
    )
    shared = shared_expert(shape.hidden, inner, "feed_forward.shared_expert")
    dense = feed_forward(
        shape.hidden,
        config.size("intermediate_size_mlp", default=inner),
        "feed_forward",
    )
    blocks = []
    kinds = layer_kinds(config, FULL, CHUNKED, pattern=_FULL_EVERY)
    for i, kind in enumerate(kinds):
        whole = kind == FULL  # its queries and keys are neither rotated nor normalised
        layer_shape = dataclasses.replace(
            shape,
            chunk=0 if whole else chunk,
            rotary=not whole,
            norms="" if whole else norms,
        )
        feed = (routed, *shared) if not (i + 1) % step else dense
        blocks.append(Layer((*attention(layer_shape), *feed)))
    config.ignore("moe_layers", "no_rope_layers", "for_llm_compressor")
    return build_model(config, blocks)
