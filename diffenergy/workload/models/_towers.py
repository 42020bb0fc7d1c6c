"""Vision towers: networks that turn images into tokens of a language model, from the
`vision_config` beside its `text_config`.

Parameters are those of the reference implementations (`transformers`), to the last
weight; kernels those of a pass with fused elementwise work.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Final

from .._kernel import Kernel
from ._checkpoint.config import Config
from ._checkpoint.formats import Precision
from ._encoding import EncoderShape, Stage, encoder_layer, encoder_shape, in_16_bit
from ._operators.elementwise import Map, Part, Plain
from ._operators.linear import Linear
from ._operators.memory import number_of
from ._operators.operator import ForwardPass, Norm

# --- `Tower`: the part of a model that turns images into tokens of its language
# model.


@dataclasses.dataclass(frozen=True)
class Tower:
    """A vision tower with its projector.

    `stages`: from patches to tokens; None: its kind is not known. `usual`: tokens of an
    image of 1024 x 1024 pixels, or of the one size that it reads. `tile`: most tokens
    whose patches attend to each other (0: all of an image); more are several tiles.
    `whole`: whether an image is whole tiles. `note`: what is left out, "" if nothing.

    Weights stay in 16 bit whatever the language model's are, as checkpoints keep them.
    """

    name: str
    stages: tuple[Stage, ...] | None
    usual: int = 0
    tile: int = 0
    whole: bool = False
    note: str = ""

    @property
    def parameters(self) -> int | None:
        """Number of parameters, projector included; None: not known."""
        if self.stages is None:
            return None
        return number_of(x for stage in self.stages for x in stage.weights())

    def rows(
        self, images: int, image_tokens: int, precision: Precision
    ) -> list[Kernel]:
        """Kernels of a pass over `images` of `image_tokens` tokens each.

        Raises `ValueError` where the tower is not known, or the tokens are none that
        an image of it can have.
        """
        if self.stages is None:
            raise ValueError(f"`images` is {images}, but {self.note}.")
        rows = []
        for sequences, length in self._tiles(images, image_tokens):
            run = ForwardPass(
                sequences, length, length, precision, fused=True, flash=True
            )
            for stage in self.stages:
                wider = dataclasses.replace(stage, operators=in_16_bit(stage.operators))
                rows += wider.rows(run)
        return rows

    def _tiles(self, images: int, tokens: int) -> Iterator[tuple[int, int]]:
        """(number, tokens) of the tiles of all images that have as many tokens."""
        if not self.tile:
            yield images, tokens
            return
        number, rest = divmod(tokens, self.tile)
        if self.whole and rest:
            raise ValueError(
                f"`image_tokens` is {tokens}, but {self.name} makes {self.tile} tokens "
                f"of an image or tile; give a multiple of {self.tile}."
            )
        if number:
            yield images * number, self.tile
        if rest:
            yield images, rest


# --- SigLIP, the tower of Gemma 3, and SigLIP 2, that of LFM2-VL: learned positions,
# two matrices a feed-forward layer.


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


def gemma3_tower(vision: Config, text: Config, note: str) -> Tower:
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


def lfm2_tower(vision: Config, text: Config, note: str) -> Tower:
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


# --- The tower of Gemma 4: RMSNorms before and behind every part, gated feed-forward
# layers, rotary positions beside learned ones by row and column; means over k x k
# patches are the tokens.

_TOKENS: Final = 280
"""Tokens of an image that a config does not say."""


def gemma4_tower(vision: Config, text: Config, note: str) -> Tower:
    """The tower; offset and scale of `standardize` are buffers, not parameters."""
    p, k = vision.size("patch_size"), vision.size("pooling_kernel_size", default=3)
    shape = encoder_shape(
        vision, norm="rmsnorm", gated=True, bias=False, rotary=True, head_norms="all",
        behind=True,
    )  # fmt: skip
    h = shape.hidden
    tables = 2 * vision.size("position_embedding_size") * h
    pixels = vision.size("num_channels", default=3) * p * p
    patches = (Linear(h, pixels), Map("positions", h, reads=3, parameters=tables))
    tokens = (
        Map("mean", h, reads=k * k),
        Norm("rmsnorm", h, residual=False, weighted=False),
        Linear(text.size("hidden_size"), h),
    )
    stages = (
        Stage(patches, per=k * k),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=k * k),
        Stage(tokens),
    )
    usual = vision.size("default_output_length", default=_TOKENS)
    return Tower(text.name, stages, usual=usual, note=note)


# --- The tower of Llama 4: tiles of one size with a class token each, learned and
# rotary positions; squares of patches side by side are a token.


def llama4_tower(vision: Config, text: Config, note: str) -> Tower:
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


# --- Pixtral, the tower of Mistral Small 3 and Devstral: images of any size, RMSNorm,
# gated feed-forward layers, rotary positions; m x m patches merged to a token.

_SIDE: Final = 1024
"""Pixels of the usual image's side."""


def pixtral_tower(vision: Config, text: Config, note: str) -> Tower:
    """The tower; the merge is a product over the patches of a token side by side."""
    whole = text.outer or text
    p, m = vision.size("patch_size"), whole.size("spatial_merge_size", default=2)
    shape = encoder_shape(
        vision, norm="rmsnorm", fn="silu", gated=True, bias=False, rotary=True
    )
    h = shape.hidden
    pixels = vision.size("num_channels", default=3) * p * p
    before = Norm("rmsnorm", h, residual=False)
    wide = text.size("hidden_size")
    bias = whole.flag("multimodal_projector_bias", False)
    projector = (
        Linear(h, m * m * h),
        Linear(wide, h, bias),
        Map("gelu", wide),
        Linear(wide, wide, bias),
    )
    stages = (
        Stage((Linear(h, pixels), before), per=m * m),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=m * m),
        Stage((Norm("rmsnorm", h),), per=m * m),
        Stage(projector),
    )
    usual = math.ceil(_SIDE / (p * m)) ** 2
    return Tower(text.name, stages, usual=usual, note=note)


# --- Towers of Qwen3-VL and Qwen3.5: rotary positions beside interpolated learned
# ones, m x m patches merged to a token; in Qwen3-VL mergers of earlier layers too
# (DeepStack). That of Qwen2.5-VL: rotary positions alone, gated layers, windows in
# most of them.

_QWEN_SIDE: Final = 1024
"""Pixels of the usual image's side."""


def qwen3_tower(vision: Config, text: Config, note: str) -> Tower:
    """The tower; a patch is p x p pixels of `temporal_patch_size` frames (an image is
    that many equal ones)."""
    h, heads = vision.size("hidden_size"), vision.size("num_heads")
    p, m = vision.size("patch_size"), vision.size("spatial_merge_size")
    out, square = vision.size("out_hidden_size"), m * m
    pixels = vision.size("in_channels", default=3) * p * p
    pixels *= vision.size("temporal_patch_size")
    table = vision.size("num_position_embeddings") * h
    # four neighbours in the table, weighted, and the patch itself
    patches = (Linear(h, pixels, True), Map("positions", h, reads=5, parameters=table))
    inner = vision.size("intermediate_size")
    shape = EncoderShape(h, heads, h // heads, inner, rotary=True)
    earlier = vision.values.get("deepstack_visual_indexes") or ()
    deep = (
        *_merger(square * h, out, Norm("layernorm", square * h, residual=False)),
        Map("add", out, reads=2),
    )
    stages = (
        Stage(patches, per=square),
        Stage(encoder_layer(shape), vision.size("depth"), per=square),
        Stage(_merger(square * h, out, Norm("layernorm", h, square))),
        *((Stage(deep, len(earlier)),) if earlier else ()),
    )
    return Tower(text.name, stages, usual=(_QWEN_SIDE // (p * m)) ** 2, note=note)


def qwen2_5_tower(vision: Config, text: Config, note: str) -> Tower:
    """The tower of Qwen2.5-VL (arXiv 2502.13923): in all layers but a few patches see
    those of their window of `window_size` pixels alone."""
    h, heads = vision.size("hidden_size"), vision.size("num_heads")
    p, m = vision.size("patch_size"), vision.size("spatial_merge_size")
    pixels = vision.size("in_channels", "in_chans", default=3) * p * p
    pixels *= vision.size("temporal_patch_size")
    inner = vision.size("intermediate_size")
    full = EncoderShape(
        h, heads, h // heads, inner, "rmsnorm", "silu", gated=True, rotary=True
    )
    side = vision.size("window_size") // p
    windowed = dataclasses.replace(full, window=side * side)
    whole = len(vision.numbers("fullatt_block_indexes"))
    out, square = vision.size("out_hidden_size"), m * m
    stages = (
        Stage((Linear(h, pixels),), per=square),
        Stage(encoder_layer(full), whole, per=square),
        Stage(encoder_layer(windowed), vision.size("depth") - whole, per=square),
        Stage(_merger(square * h, out, Norm("rmsnorm", h, square))),
    )
    usual = math.ceil(_QWEN_SIDE / (p * m)) ** 2
    return Tower(text.name, stages, usual=usual, note=note)


def _merger(width: int, out: int, norm: Norm) -> Part:
    """Norm and a feed-forward layer over the patches of a token side by side."""
    return (
        norm,
        Linear(width, width, True),
        Map("gelu", width),
        Linear(out, width, True),
    )


# --- Vision towers

__all__ = ["Tower", "tower_of"]

_KINDS = {
    "gemma3": gemma3_tower,
    "gemma4": gemma4_tower,
    "lfm2_vl": lfm2_tower,
    "llama4": llama4_tower,
    "mistral3": pixtral_tower,
    "qwen2_5_vl": qwen2_5_tower,
    "qwen3_vl": qwen3_tower,
    "qwen3_vl_moe": qwen3_tower,
    "qwen3_5": qwen3_tower,
    "qwen3_5_moe": qwen3_tower,
}
"""Readers by `model_type` of the whole config."""


def tower_of(config: Config) -> Tower | None:
    """The tower beside the language model of `config`; None if it reads text alone.

    A tower that is not known, or that neither the config nor the defaults of the
    reference implementation describe, has no `parameters` and a `note` that says so.
    Beside a known one the `note` tells of an audio tower, which is left out.
    """
    whole = config.outer
    if whole is None or whole.values.get("language_model_only") is True:
        return None
    kind = str(whole.values.get("model_type"))
    has = [
        part
        for part in ("vision", "audio")
        if isinstance(whole.values.get(f"{part}_config"), Mapping)
    ]
    build = _KINDS.get(kind)
    if "vision" not in has and build is not None:
        note = (
            f"{whole.where} has no `vision_config`: the vision tower is that of the "
            "reference implementation's defaults"
        )
        try:
            return build(
                dataclasses.replace(whole, values={}, read_keys=set()), config, note
            )
        except ValueError:  # which has none for what is missing
            note = f"{whole.where} has no `vision_config`: its tower is left out"
            return Tower(kind, None, note=note)
    if not has:
        return None
    if "vision" in has and build is not None:
        note = _left_out("audio", kind) if "audio" in has else ""
        return build(whole.part("vision_config"), config, note)
    return Tower(kind, None, note=_left_out(" and ".join(has), kind))


def _left_out(what: str, kind: str) -> str:
    return (
        f"the {what} tower of `model_type` '{kind}' is not known, and its weights and "
        "kernels are left out"
    )
