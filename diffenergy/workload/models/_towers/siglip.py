"""SigLIP, the tower of Gemma 3, and SigLIP 2, that of LFM2-VL: learned positions, two
matrices a feed-forward layer."""

from typing import Final

from .._layers.encoding import EncoderShape, Stage, encoder_layer
from .._layers.parts import Map, Part
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower

MODEL_TYPES: Final = ("gemma3", "lfm2_vl")


def build(vision: Config, text: Config, note: str) -> Tower:
    """The tower with the projector of its model."""
    if (text.outer or text).text("model_type", "") == "gemma3":
        return _gemma3(vision, text, note)
    return _lfm2(vision, text, note)


def encoder(vision: Config, positions: int, per: int) -> tuple[Stage, ...]:
    """Patches, layers and the norm behind, `per` patches a token; language models
    leave out the pooling head."""
    h, heads = vision.size("hidden_size"), vision.size("num_attention_heads")
    inner, p = vision.size("intermediate_size"), vision.size("patch_size")
    patches = (
        Linear(h, vision.size("num_channels", default=3) * p * p, True),
        Map("positions", h, reads=2, parameters=positions * h),
    )
    shape = EncoderShape(h, heads, h // heads, inner)
    return (
        Stage(patches, per=per),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=per),
        Stage((Norm("layernorm", h),), per=per),
    )


def _gemma3(vision: Config, text: Config, note: str) -> Tower:
    """Images of one size; means over squares of patches are the tokens."""
    whole = text.outer or text
    h, wide = vision.size("hidden_size"), text.size("hidden_size")
    side = vision.size("image_size") // vision.size("patch_size")
    tokens = whole.size("mm_tokens_per_image", default=256)
    per = side * side // tokens
    projector = (
        Map("mean", h, reads=per),
        Norm("rmsnorm", h, residual=False),
        Linear(wide, h),
    )
    stages = (*encoder(vision, side * side, per), Stage(projector))
    return Tower(text.name, stages, tokens, tokens, True, note)


def _lfm2(vision: Config, text: Config, note: str) -> Tower:
    """f x f patches side by side are a token; large images are tiles and a small copy
    of the whole."""
    whole = text.outer or text
    f = whole.size("downsample_factor", default=2)
    width, wide = f * f * vision.size("hidden_size"), text.size("hidden_size")
    inner = whole.size("projector_hidden_size", default=2560)
    bias = whole.flag("projector_bias", True)
    norm = Norm("layernorm", width, residual=False)
    projector: Part = (
        *((norm,) if whole.flag("projector_use_layernorm", True) else ()),
        Linear(inner, width, bias),
        Map("gelu", inner),
        Linear(wide, inner, bias),
    )
    positions = vision.size("num_patches", default=256)
    stages = (*encoder(vision, positions, f * f), Stage(projector))
    most = whole.size("max_image_tokens", default=256)
    return Tower(text.name, stages, most, most, False, note)
