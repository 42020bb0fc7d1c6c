"""The tower of Llama 4: tiles of one size with a class token each, learned and rotary
positions; squares of patches side by side are a token."""

from .._layers.encoding import EncoderShape, Stage, encoder_layer
from .._layers.parts import Map, Plain
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower


def build(vision: Config, text: Config, note: str) -> Tower:
    """The tower; what a config leaves out is as in `Llama4VisionConfig`."""
    h = vision.size("hidden_size", default=768)
    heads = vision.size("num_attention_heads", default=16)
    inner = vision.size("intermediate_size", default=5632)
    p = vision.size("patch_size", default=14)
    side = vision.size("image_size", default=448) // p
    per = round(vision.number("pixel_shuffle_ratio", 0.5) ** -2)
    shape = EncoderShape(h, heads, h // heads, inner, rotary=True)
    layers = vision.size("num_hidden_layers", default=34)
    first = (
        Linear(h, vision.size("num_channels", default=3) * p * p),
        Map("positions", h, reads=2, parameters=(side * side + 1) * h),
        Plain(h),  # the class token
        Norm("layernorm", h, residual=False),
    )
    narrow = vision.size("projector_input_dim", default=4096)
    out = vision.size("projector_output_dim", default=4096)
    adapter = (
        Linear(narrow, inner),
        Map("gelu", narrow),
        Linear(out, out),
        Map("gelu", out),
        Linear(
            text.size("hidden_size"), vision.size("vision_output_dim", default=7680)
        ),
    )
    stages = (
        Stage(first, per=per, extra=1),
        Stage(encoder_layer(shape), layers, per=per, extra=1),
        Stage((Norm("layernorm", h),), per=per, extra=1),
        Stage(adapter),
    )
    tile = side * side // per
    return Tower(text.name, stages, tile, tile, True, note)
