"""Kinds of models that are known by name and not built: what is missing."""

from typing import Final

from ._shared.config import Config

_KINDS: Final = {
    "the scan of Mamba 1, with a state for every channel,": "mamba falcon_mamba jamba",
    "the recurrence of RWKV": "rwkv rwkv5 rwkv6 rwkv7",
    "an encoder-decoder of text": "t5 mt5 umt5 longt5 bart mbart marian m2m_100 "
    "nllb-moe pegasus t5gemma",
    "a speech encoder other than Whisper's": "wav2vec2 wav2vec2-bert wavlm hubert "
    "seamless_m4t seamless_m4t_v2 parakeet_ctc parakeet_encoder moonshine "
    "speech_to_text canary",
    "speech that is made token by token or wave by wave": "bark musicgen speecht5 vits "
    "csm dia",
    "an image encoder that stands alone, other than ViT,": "clip clip_vision_model "
    "siglip siglip_vision_model siglip2 siglip2_vision_model dinov2 dinov3_vit swin "
    "swinv2 convnext convnextv2 beit deit",
    "attention to an image between the layers of text": "mllama idefics flamingo",
}
"""What is missing, and the words of `model_type` (after their first letter's case)."""
_MISSING: Final = {
    kind: what for what, kinds in _KINDS.items() for kind in kinds.split()
}


def unbuilt(config: Config, kind: str) -> str:
    """Why a config of `kind` cannot be loaded, up to the remedy; "" if nothing is known
    of it.

    >>> unbuilt(Config("m", "config.json", {}), "mamba").partition(", and ")[2]
    'the scan of Mamba 1, with a state for every channel, is not built'
    """
    if kind in _MISSING:
        return f"`model_type` is '{kind}', and {_MISSING[kind]} is not built"
    if config.values.get("_class_name") == kind:
        what = "U-Nets are" if kind.startswith("UNet") else "such a network is"
        return (
            f"`_class_name` is '{kind}', and {what} not built; of diffusion models "
            "FluxTransformer2DModel, SD3Transformer2DModel and WanTransformer3DModel "
            "are"
        )
    return ""
