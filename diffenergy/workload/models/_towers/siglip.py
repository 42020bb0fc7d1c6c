"""SigLIP, the tower of Gemma 3, and SigLIP 2, that of LFM2-VL: learned positions, two
matrices a feed-forward layer."""

from .._layers.encoding import Stage, encoder_layer, encoder_shape
from .._layers.parts import Map, Part
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower


def encoder(vision: Config, positions: int, per: int) -> tuple[Stage, ...]:
    """Patches, layers and the norm behind, `per` patches a token; language models
    leave out the pooling head."""
    shape, p = encoder_shape(vision), vision.size("patch_size")
    h = shape.hidden
    patches = (
        Linear(h, vision.size("num_channels", default=3) * p * p, True),
        Map("positions", h, reads=2, parameters=positions * h),
    )
    return (
        Stage(patches, per=per),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=per),
        Stage((Norm("layernorm", h),), per=per),
    )


def gemma3(vision: Config, text: Config, note: str) -> Tower:
    """SigLIP of Gemma 3: images of one size; means over squares of patches are its
    tokens."""
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


def lfm2(vision: Config, text: Config, note: str) -> Tower:
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
