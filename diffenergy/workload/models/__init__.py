"""Model families: a published config becomes the kernels of a phase.

A module of a room of this package that defines `MODEL_TYPES` and `build(config)` is a
family; adding a file adds it.
"""

import dataclasses
import difflib
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from ._shared.base import Model, Request
from ._shared.config import Config, read_config
from ._unbuilt import unbuilt

__all__ = [
    "Model", "Request", "load_model", "model_from_config", "model_names", "model_types",
]  # fmt: skip

_BUNDLED: Final = Path(__file__).parents[2] / "data" / "models"


def model_names() -> list[str]:
    """Names of the bundled models."""
    return list(_bundled())


@functools.cache
def _bundled() -> tuple[str, ...]:
    return tuple(sorted(file.parent.name for file in _BUNDLED.glob("*/config.json")))


def model_types() -> list[str]:
    """What `model_type` of a config may be, sorted."""
    return sorted(_families(), key=str.lower)


def load_model(name_or_path: str | Path) -> Model:
    """A model that lists its kernels.

    Args:
        name_or_path: a bundled name (`model_names`), a Hugging Face `config.json`, or
            the folder that holds one.

    Raises `ValueError` if there is none, its type is unsupported or its config wrong.

    Example:

    >>> load_model("gpt2").parameters()
    124439808
    """
    name = str(name_or_path)
    if name in _bundled():
        return model_from_config(read_config(_BUNDLED / name / "config.json", name))
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


def model_from_config(config: Config) -> Model:
    """The model that a config describes: of one that reads more than text (a nested
    `text_config`) its language model."""
    text = config.values.get("text_config")
    if isinstance(text, Mapping) and config.values.get("model_type") not in _families():
        inner = config.part("text_config")
        named = inner.values.get("model_type") or f"{config.text('model_type')}_text"
        values = {**inner.values, "model_type": named}
        return model_from_config(dataclasses.replace(inner, values=values))
    kind = config.text("model_type")
    if kind not in _families() and f"{kind}_text" in _families():  # not nested
        values = {**config.values, "model_type": f"{kind}_text"}
        flat = dataclasses.replace(config, values=values, outer=config, asked=set())
        return model_from_config(flat)
    if kind not in _families() and (why := unbuilt(config, kind)):
        raise ValueError(
            f"{config.where}: {why}; give a kernel listing (`.jsonl`) of its passes."
        )
    if kind not in _families():
        known = model_types()
        near = difflib.get_close_matches(kind, known, 3, 0.4)
        raise ValueError(
            f"{config.where}: `model_type` is '{kind}'; of {len(known)} supported ones "
            f"(`diffenergy models` lists them) near are {', '.join(near) or 'none'}; "
            "other models can be given as a kernel listing (`.jsonl`)."
        )
    return _families()[kind].build(config)


@functools.cache
def _families() -> dict[str, ModuleType]:
    """Module of each supported `model_type`."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(__path__, f"{__name__}.")
        if not found.ispkg and "._" not in found.name
    ]
    return {
        kind: module
        for module in modules
        for kind in getattr(module, "MODEL_TYPES", ())
    }
