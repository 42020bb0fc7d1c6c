"""Number formats of operands, and of the weights and the KV cache of a checkpoint.

The latter stand in `quantization_config` of the config (older: `compression_config`;
also inside `text_config`), in `hf_quant_config.json` beside it (NVIDIA ModelOpt), or in
both. Each method names its types and the modules that it leaves out in words of its
own (`quantised`); here they become one answer for each module.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..._kernel import as_json
from .config import Config
from .quantised import (
    Format,
    Names,
    Rule,
    cache_words,
    excluded_names,
    is_fp8,
    rules_of,
    stated_cache,
    strip_wrappers,
)

SIDECAR: Final = "hf_quant_config.json"
_STATED: Final = ("quantization_config", "compression_config")
_TEXTS: Final = ("text_config", "language_config", "llm_config")
_FORMATS: Final = {
    "fp8": Format("fp8", "fp8"),
    "fp8_block": Format("fp8_block", "fp8_block"),
    "mxfp8": Format("mxfp8", "mxfp8"),
    "int8": Format("int8", "int8"),
    "int4": Format("int4", "bf16", 128, zero_point=True),
    "nvfp4": Format("nvfp4", "nvfp4"),
    "mxfp4": Format("mxfp4", "mxfp8"),
}
"""How the weights of linear layers are kept and multiplied in types below 16 bit."""


@dataclasses.dataclass(frozen=True)
class Precision:
    """Types of the operands: `linear` products, everything else (`values`), KV cache.

    Types below 16 bit apply to linear layers; attention, norms and activations then run
    in bf16. tf32 is a way to multiply fp32 values. `requested`: format of all linear
    layers by the request, None from 16 bit on; `stored`: each weight has the format of
    its checkpoint instead.
    """

    linear: str
    values: str
    cache: str
    requested: Format | None = None
    stored: bool = False

    def format(self, checkpoint: Format | None, layer: bool = True) -> Format | None:
        """Format of weights that a `checkpoint` stores in one of their own (None: as
        everything else). Only a linear `layer` has the `requested` one."""
        if self.stored:
            return checkpoint
        return self.requested if layer else None

    @property
    def products(self) -> str:
        """Type of products without weights (eager attention)."""
        return "tf32" if self.linear == "tf32" else self.values


def values_dtype(dtype: str) -> str:
    """Type of activations when linear layers run in `dtype`."""
    return "bf16" if dtype in _FORMATS else {"tf32": "fp32"}.get(dtype, dtype)


def precision_of(dtype: str, cache: str) -> Precision:
    """Types of a request that wants all linear layers in `dtype`."""
    return Precision(dtype, values_dtype(dtype), cache, _FORMATS.get(dtype))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Types of the weights and of the KV cache that a checkpoint states.

    `kv_dtype`: "fp8", or None for 16 bit. `statements`: sentences on what was read, and
    where. `unread`: why the types of the weights
    cannot be read, with the remedy; "" if they can. `rules`: the first that matches a
    module holds. `excluded`: modules left in 16 bit, whatever the rules say.
    """

    kv_dtype: str | None
    statements: tuple[str, ...]
    unread: str = ""
    rules: tuple[Rule, ...] = ()
    excluded: Names = Names()

    @property
    def quantised(self) -> bool:
        """Whether any weights are, or may be, in other types than 16 bit."""
        return bool(self.rules or self.unread)

    def format(self, module: str) -> Format | None:
        """Format of the linear layer `module`; None if it stays in 16 bit.

        `module` is a path such as "model.layers.3.self_attn.q_proj" or "lm_head";
        `model.`, `language_model.` and `backbone.` before it may be left out. The names
        inside a layer are those of the checkpoint (Gemma 4 has its experts in
        `layers.N.experts`, beside `layers.N.mlp`), but `mixer` of Nemotron and
        `block_sparse_moe` of Mixtral answer also to `self_attn` and `mlp`. Asked of a
        module twice, it answers from memory.

        Raises `ValueError` if the types could not be read (`unread`).
        """
        if self.unread:
            raise ValueError(self.unread)
        if module not in self._formats:
            self._formats[module] = self._format(strip_wrappers(module))
        return self._formats[module]

    def _format(self, name: str) -> Format | None:
        formats = (rule.format for rule in self.rules if rule.match(name))
        return (
            None if not self.rules or self.excluded.match(name) else next(formats, None)
        )

    @functools.cached_property
    def _formats(self) -> dict[str, Format | None]:
        return {}


def read_checkpoint(config: Config) -> Checkpoint:
    """Types that the config, and the sidecar beside its file, state.

    The config's own statement holds if it can be read. What it leaves open (the KV
    cache, the list of modules in 16 bit) is taken from the sidecar; so is everything if
    the config states nothing or nothing readable.

    Raises `ValueError` if `quantization_config` is no object.
    """
    parts = [
        part for part in (_config_part(config), _sidecar(config)) if part is not None
    ]
    if not parts:
        return Checkpoint(None, ())
    main = max(parts, key=lambda part: (not part.unread, bool(part.rules)))
    readable = [main] if main.unread else [x for x in parts if not x.unread]
    listing = next((part for part in readable if part.excluded is not None), main)
    cache = next((part for part in parts if part.cache is not None), main)
    statements = [main.sentence] if main.rules else []
    if main.rules and listing.excluded:
        statements.append(
            f"16 bit for {len(listing.excluded)} names and patterns of {listing.file}"
        )
    if cache.cache is not None:
        statements.append(f"{cache_words(cache.cache)}, by {cache.file}")
    return Checkpoint(
        "fp8" if is_fp8(cache.cache) else None,
        tuple(statements),
        main.unread,
        main.rules,
        Names(listing.excluded or ()),
    )


# Places ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Part:
    """Statement of one file; None for what it leaves open."""

    file: str
    key: str
    rules: tuple[Rule, ...] = ()
    excluded: tuple[str, ...] | None = None
    cache: Any = None
    unread: str = ""

    @property
    def sentence(self) -> str:
        names = " and ".join(dict.fromkeys(str(rule.format) for rule in self.rules))
        return f"linear layers in {names}, by `{self.key}` of {self.file}"


def _config_part(config: Config) -> _Part | None:
    """Statement of the config, or of its text part."""
    parts = [config.values, *(config.values.get(key) for key in _TEXTS)]
    holders = [part for part in parts if isinstance(part, Mapping)]
    experts = next(filter(None, (x.get("expert_dtype") for x in holders)), None)
    for holder in holders:
        for key in filter(holder.get, _STATED):
            if not isinstance(holder[key], Mapping):
                inside = dataclasses.replace(config, values=holder)
                raise inside.error(key, "an object")
            return _part(config.where, key, holder[key], experts)
    return None


def _sidecar(config: Config) -> _Part | None:
    """Statement of `hf_quant_config.json` beside the config.

    It belongs to `config.json`. Beside a config of another name it counts only if no
    other model config lies in that folder: a collection of configs has no sidecar.
    """
    path = Path(config.where)
    file = path.parent / SIDECAR
    if not file.is_file() or not _belongs(path):
        return None
    raw = _json(file)
    if not isinstance(raw, Mapping):
        return _Part(SIDECAR, "", unread=f"{file} is no JSON object; give `--dtype`.")
    inner = raw.get("quantization", raw)
    if not isinstance(inner, Mapping):
        problem = f"`quantization` is {as_json(inner)}; allowed is an object"
        return _Part(SIDECAR, "", unread=f"{file}: {problem}; give `--dtype`.")
    return _part(str(file), "quantization", {"quant_method": "modelopt", **inner})


def _belongs(path: Path) -> bool:
    others = (x for x in path.parent.glob("*.json") if x.name != path.name)
    return path.name == "config.json" or not any(map(_is_config, others))


def _is_config(file: Path) -> bool:
    """Whether a JSON file is a model config; files above 1 MB are not."""
    raw = _json(file) if file.stat().st_size < 1e6 else None
    return isinstance(raw, Mapping) and "model_type" in raw


def _json(file: Path) -> Any:
    """Content of a JSON file; None if it cannot be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None


def _part(where: str, key: str, raw: Mapping[str, Any], experts: Any = None) -> _Part:
    """Statement `raw` under `key` of the file `where`, read."""
    file, cache = Path(where).name, stated_cache(raw)
    try:
        rules, excluded = rules_of(raw, experts), excluded_names(raw)
        Names(excluded or ())
    except ValueError as error:
        unread = f"{where}: {error}; give `--dtype`."
        return _Part(file, key, cache=cache, unread=unread)
    return _Part(file, key, rules, excluded, cache)
