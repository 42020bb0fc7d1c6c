"""Vision towers: what turns images into tokens of a language model, from the
`vision_config` beside its `text_config`.

Parameters are those of the reference implementations (`transformers`), to the last
weight; kernels those of a pass with fused elementwise work.
"""

import dataclasses
from collections.abc import Mapping

from .._shared.config import Config
from . import gemma, llama4, pixtral, qwen, siglip
from .tower import Tower

__all__ = ["Tower", "tower_of"]

_KINDS = {
    "gemma3": siglip.gemma3,
    "gemma4": gemma.build,
    "lfm2_vl": siglip.lfm2,
    "llama4": llama4.build,
    "mistral3": pixtral.build,
    "qwen2_5_vl": qwen.windowed,
    "qwen3_vl": qwen.build,
    "qwen3_vl_moe": qwen.build,
    "qwen3_5": qwen.build,
    "qwen3_5_moe": qwen.build,
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
                dataclasses.replace(whole, values={}, asked=set()), config, note
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
