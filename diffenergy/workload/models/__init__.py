"""Model families: a published config becomes the kernels of a phase.

A module of `families` that defines `MODEL_TYPES` and `build(config)` is a
family; adding a file adds it.
"""

import dataclasses
import difflib
import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from .._model_request import BUNDLED, model_names
from ._checkpoint.config import Config, read_config
from ._model import Model
from ._request import Request

__all__ = [
    "Model", "Request", "assumed_model", "load_model", "model_from_config",
    "model_names", "model_types",
]  # fmt: skip

_TUNED: Final = re.compile("-(instruct|chat|it|hf|base)$")
"""Suffixes of checkpoints that do not change the network."""
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
    "a stack whose layers have attention and MLPs of their own sizes, or none "
    "(`block_configs`),": "nemotron-nas deci",
    "attention to an image between the layers of text": "mllama idefics flamingo",
    "a stack whose layers attend to the blocks before them, with experts of a latent "
    "width,": "kimi_k3",
    "a stack whose kinds of attention differ in heads and rotary positions, with a "
    "gate for each head,": "step3p5 step3p7",
}
"""Networks that are not built, and the values of `model_type` that name them."""
_MISSING: Final = {
    kind: what for what, kinds in _KINDS.items() for kind in kinds.split()
}


def model_types() -> list[str]:
    """Supported values of `model_type` in a config, sorted."""
    return sorted(_families(), key=str.lower)


def load_model(name_or_path: str | Path) -> Model:
    """A model that lists its kernels.

    Args:
        name_or_path: a bundled name (`model_names`), the name of such a model on the
            Hugging Face hub (`Qwen/Qwen3-8B`), a Hugging Face `config.json`, or the
            folder that holds one; a folder of such a name comes before the hub's.

    Raises `ValueError` if there is none, its type is unsupported or its config wrong.

    Example:

    >>> load_model("gpt2").parameters()
    124439808
    """
    name = str(name_or_path)
    if bundled := _bundled_name(name):
        return _bundled(bundled)
    path = Path(name_or_path)
    if not path.exists():
        near = difflib.get_close_matches(
            name.split("/")[-1].lower(), model_names(), 3, 0.4
        )
        raise ValueError(
            f"There is no model or file '{name}'; "
            f"{'near' if near else 'bundled'} are {', '.join(near or model_names())}; "
            "else give a Hugging Face `config.json`, its folder or a `.jsonl` listing."
        )
    return model_from_config(read_config(path))


@functools.cache
def _bundled(name: str) -> Model:
    return model_from_config(read_config(BUNDLED / name / "config.json", name))


def assumed_model(name: str) -> dict[str, str]:
    """`{"model": NAME}` of the bundled model that a name resolves to; empty where the
    name is that model's own, and for files.

    >>> assumed_model("meta-llama/Llama-3.1-8B-Instruct"), assumed_model("GPT2")
    ({'model': 'llama-3.1-8b'}, {})
    """
    bundled = _bundled_name(name)
    return {} if bundled in (None, name.lower()) else {"model": bundled}


def _bundled_name(name: str) -> str | None:
    """The bundled model of a name in any case, or of the name that a model has on the
    Hugging Face hub: without its owner it is a bundled name or one of the `_aliases` in
    a bundled config, and then with some of the suffixes `_TUNED`. None where there is
    none, and where a file or folder has that name.
    """
    if name in model_names():
        return name
    if Path(name).exists():
        return None
    bare = name.lower()
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", bare):
        bare = bare.split("/")[1]
    while bare not in _hub_names():
        shorter = _TUNED.sub("", bare)
        if shorter == bare:
            return None
        bare = shorter
    return _hub_names()[bare]


@functools.cache
def _hub_names() -> dict[str, str]:
    """Bundled model of each bundled name and alias."""
    names = {name: name for name in model_names()}
    for name in model_names():
        config = read_config(BUNDLED / name / "config.json", name)
        names |= {alias: name for alias in config.values.get("_aliases", ())}
    return names


def model_from_config(config: Config) -> Model:
    """The model that a config describes; of a multimodal config (nested `text_config`)
    the language model."""
    text = config.values.get("text_config")
    if isinstance(text, Mapping) and config.values.get("model_type") not in _families():
        inner = config.part("text_config")
        named = inner.values.get("model_type") or f"{config.text('model_type')}_text"
        values = {**inner.values, "model_type": named}
        return model_from_config(dataclasses.replace(inner, values=values))
    kind = config.text("model_type")
    if kind not in _families() and f"{kind}_text" in _families():  # not nested
        values = {**config.values, "model_type": f"{kind}_text"}
        flat = dataclasses.replace(config, values=values, outer=config, read_keys=set())
        return model_from_config(flat)
    if kind not in _families() and (why := _unbuilt(config, kind)):
        raise ValueError(
            f"{config.where}: {why}; give a kernel listing (`.jsonl`) of its passes."
        )
    if kind not in _families():
        types = model_types()
        near = difflib.get_close_matches(kind, types, 3, 0.6)
        nearest = f"near are {', '.join(near)}" if near else "none is near"
        raise ValueError(
            f"{config.where}: `model_type` is '{kind}'; of {len(types)} supported ones "
            f"(`diffenergy models` lists them) {nearest}; "
            "other models can be given as a kernel listing (`.jsonl`)."
        )
    return _families()[kind].build(config)


@functools.cache
def _families() -> dict[str, ModuleType]:
    """Module of each supported `model_type`."""
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(__path__, f"{__name__}.")
        if not info.ispkg and "._" not in info.name
    ]
    return {
        kind: module
        for module in modules
        for kind in getattr(module, "MODEL_TYPES", ())
    }


def _unbuilt(config: Config, kind: str) -> str:
    """Reason why a config of `kind` cannot be loaded; "" for an unknown kind.

    >>> _unbuilt(Config("m", "config.json", {}), "mamba").partition(", and ")[2]
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
