"""Quantisation methods of checkpoints, read as rules of one kind.

References: transformers `quantizers`, vLLM `model_executor/layers/quantization`,
ModelOpt `export/convert_hf_config.py`, compressed-tensors `quantization/quant_args.py`.

Readers raise `ValueError` without the file and the remedy, which the caller adds.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ....dtypes import stored_bytes
from ..._kernel import as_json

# --- Modules that a checkpoint means by names, globs and regular expressions.

_WRAPPERS: Final = frozenset(
    ("model", "language_model", "text_model", "backbone", "transformer", "llm")
)
"""Modules around the language model, whose names differ between libraries."""

_PREFIXES: Final = (
    "",
    "model.",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "backbone.",
)
"""How checkpoints begin the names of a language model's modules."""

_SYNONYMS: Final = {
    "mixer": ("self_attn", "linear_attn", "mamba", "mlp"),
    "block_sparse_moe": ("mlp",),
    "feed_forward": ("mlp",),
}
"""A checkpoint's name of a layer's part, and the parts that callers mean by it."""


def strip_wrappers(name: str) -> str:
    """`name` without the modules around the language model.

    Towers keep their names, so that their layers are not taken for the model's.

    Example:

    >>> strip_wrappers("model.language_model.layers.3.mlp.up_proj")
    'layers.3.mlp.up_proj'
    """
    head, _, rest = name.partition(".")
    while head in _WRAPPERS and rest:
        name = rest
        head, _, rest = name.partition(".")
    return name


@dataclasses.dataclass(frozen=True)
class Names:
    """A checkpoint's list of modules; `match` says whether one is among them.

    `patterns` are of three kinds:

    - A plain name means that module, everything inside it, and every module whose path
        has these components in a row: "mlp.gate" is `layers.3.mlp.gate`, but not
        `layers.3.mlp.gate_proj`.
    - A glob (`*` any characters) must match from the first component on, up to the
        module or to one that holds it: "model.layers.*.self_attn".
    - `re:` precedes a regular expression that must match from the first character on,
        as compressed-tensors does it.

    Modules around the language model (`model.`, `language_model.`, `backbone.`) count
    on neither side. Substrings of a component, which some libraries take, do not match.

    Raises `ValueError` for a broken regular expression.

    Example:

    >>> Names(("model.layers.*.self_attn",)).match("layers.3.self_attn.q_proj")
    True
    """

    patterns: tuple[str, ...] = ()

    def __post_init__(self):
        for pattern in filter(_is_expression, self.patterns):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise ValueError(
                    f"`{pattern}` is not a regular expression ({error})"
                ) from None

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, module: str) -> bool:
        """Whether a pattern names `module` or a module around it."""
        return any(
            self._plain_match(name)
            or name.startswith(self._beginnings)
            or self._expression_match(name)
            for name in self._spellings(strip_wrappers(module))
        )

    def _spellings(self, name: str) -> Iterator[str]:
        """`name`, and `name` with other words that checkpoints use for the layer's
        part."""
        yield name
        parts = name.split(".", 3)
        if len(parts) < 4 or parts[0] != "layers":
            return
        for word in self._synonyms:
            if parts[2] in _SYNONYMS[word]:
                yield f"layers.{parts[1]}.{word}.{parts[3]}"

    def _plain_match(self, name: str) -> bool:
        parts = name.split(".")
        spans = itertools.combinations(range(len(parts) + 1), 2)
        return any(".".join(parts[i:j]) in self._plain for i, j in spans)

    def _expression_match(self, name: str) -> bool:
        inside = name.startswith(("layers.", "lm_head", "embed_tokens", "norm"))
        prefixes = _PREFIXES if inside else _PREFIXES[:2]
        return any(
            expression.match(prefix + name)
            for expression in self._expressions
            for prefix in prefixes
        )

    @functools.cached_property
    def _synonyms(self) -> tuple[str, ...]:
        return tuple(
            word for word in _SYNONYMS if any(word in text for text in self.patterns)
        )

    @functools.cached_property
    def _plain(self) -> frozenset[str]:
        names = (x for x in self.patterns if not _is_expression(x) and "*" not in x)
        return frozenset(map(strip_wrappers, names))

    @functools.cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """Globs whose only star is the last character."""
        return tuple(strip_wrappers(x[:-1]) for x in self.patterns if _is_beginning(x))

    @functools.cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        """Regular expressions, and globs with a star elsewhere."""
        return tuple(
            re.compile(pattern[3:] if _is_expression(pattern) else _globbed(pattern))
            for pattern in self.patterns
            if _is_expression(pattern) or "*" in pattern and not _is_beginning(pattern)
        )


def _is_expression(pattern: str) -> bool:
    return pattern.startswith("re:")


def _is_beginning(pattern: str) -> bool:
    """Whether a glob is `name*`; `model.*` is not one: it has no name left bare."""
    name = pattern[:-1]
    return (
        not _is_expression(pattern)
        and pattern.find("*") == len(name)
        and strip_wrappers(name).rstrip(".") not in ("", *_WRAPPERS)
    )


def _globbed(glob: str) -> str:
    """Regular expression of a glob that may end at a module that holds another."""
    return ".*".join(re.escape(text) for text in glob.split("*")) + r"(?:\..*)?\Z"


# --- Formats of linear layers, and rules that say which modules have them.

_FP8_BLOCK_BYTES: Final = 1 + 4 / 128**2
"""Bytes of a stored weight with an fp32 per 128 x 128 of them (activations have one per
128, see `dtypes.BYTES`)."""

_WIDE: Final = frozenset((
    "lm_head", "embed_tokens", "gate", "shared_expert_gate", "weights_proj", "conv1d",
    "bias",
))  # fmt: skip
"""Last names of modules that stay in 16 bit unless they are named: heads, routers, and
the weights of DeepSeek's index heads (vLLM gives them no quantisation)."""

_WIDE_PARTS: Final = frozenset(("router", "compressor", "attn_hc", "ffn_hc"))
"""Parts of a layer that stay in 16 bit likewise: routers; compressors and
hyper-connections of DeepSeek V4, which its checkpoint stores in bf16 or fp32."""


@dataclasses.dataclass(frozen=True)
class Format:
    """How the weights of a linear layer are stored and multiplied.

    `weights`: type in memory. `products`: type that activations are multiplied in;
    "bf16" for weights that are expanded on the way (weight-only). `group`: elements a
    scale of int4 or int8; 0: one per row, or what the type itself says. `zero_point`:
    whether each group has one beside its 16-bit scale.

    Example:

    >>> Format("int4", "bf16", group=32).weight_bytes
    0.5625
    """

    weights: str
    products: str
    group: int = 0
    zero_point: bool = False

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight, its part of the scales included."""
        if self.weights == "fp8_block":
            return _FP8_BLOCK_BYTES
        if self.weights == "int4" and not self.group:
            return 0.5  # a scale a row
        value = 0.5 if self.weights == "int4" else 1.0
        zeros = value / self.group if self.zero_point else 0.0
        return stored_bytes(self.weights, self.group) + zeros

    def __str__(self) -> str:
        if self.weights == self.products:
            return self.weights
        return f"{self.weights} (multiplied in {self.products})"


@dataclasses.dataclass(frozen=True)
class Rule:
    """A format and the modules that have it; without names every linear layer has it
    but heads and routers."""

    format: Format
    modules: Names = Names()

    def match(self, module: str) -> bool:
        """Whether `module` has the format."""
        if self.modules:
            return self.modules.match(module)
        parts = strip_wrappers(module).split(".")
        wide = parts[-1] in _WIDE or parts[-1].endswith("norm")
        return not wide and _WIDE_PARTS.isdisjoint(parts)


# --- Quantisation methods

_EXCLUSIONS: Final = (
    "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules",
)  # fmt: skip

_FP8: Final = Format("fp8", "fp8")
_FP8_BLOCK: Final = Format("fp8_block", "fp8_block")
_MXFP8: Final = Format("mxfp8", "mxfp8")
_MXFP4: Final = Format("mxfp4", "mxfp8")
_NVFP4: Final = Format("nvfp4", "nvfp4")
_MXFP4_EXPERTS: Final = (Rule(_MXFP4, Names(("experts",))),)

_ALGORITHMS: Final = {
    "FP8": _FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": _FP8,
    "FP8_PB_WO": _FP8_BLOCK,  # vLLM multiplies it in fp8, scales per 128 channels
    "FP8_BLOCK_SCALES": _FP8_BLOCK,
    "MXFP8": _MXFP8,
    "NVFP4": _NVFP4,
    "NVFP4_AWQ": _NVFP4,
    "W4A16_NVFP4": Format("nvfp4", "bf16"),
    "W4A8_NVFP4_FP8": Format("nvfp4", "fp8"),
    "W4A16_MXFP4": Format("mxfp4", "bf16"),
    "W4A8_MXFP4_FP8": Format("mxfp4", "fp8"),
    "W4A8_MXFP4_MXFP8": _MXFP4,
    "W4A16_AWQ": Format("int4", "bf16", 128),
    "W4A16_GPTQ": Format("int4", "bf16", 128),
    "W4A8_AWQ": Format("int4", "fp8", 128),
    "W8A16": Format("int8", "bf16"),
    "W8A8_SQ_PER_CHANNEL": Format("int8", "int8"),
}
"""`quant_algo` of ModelOpt and TensorRT-LLM; groups of int4 unless they are stated."""


def rules_of(raw: Mapping[str, Any], experts: Any = None) -> tuple[Rule, ...]:
    """Rules of the statement `raw`, by its method; `experts`: an `expert_dtype`.

    Example:

    >>> (rule,) = rules_of({"quant_method": "awq", "bits": 4, "group_size": 128})
    >>> rule.format.weights, rule.format.products
    ('int4', 'bf16')
    """
    method = raw.get("quant_method")
    if method is None:
        method = "modelopt" if "quant_algo" in raw else "compressed-tensors"
        if "quant_algo" not in raw and "config_groups" not in raw:
            raise ValueError("`quant_method` is missing in the quantisation")
    name = str(method).lower().replace("_", "-")
    name = "modelopt" if name.startswith("modelopt") else name
    if name not in _METHODS:
        raise _refusal("quant_method", method, _METHODS)
    rules = _METHODS[name](raw)
    return _deepseek_experts(experts) + rules if name == "fp8" else rules


def _deepseek_experts(stated: Any) -> tuple[Rule, ...]:
    """Rule of DeepSeek V4's routed experts, whose type is `expert_dtype`.

    Multiplied in mxfp8 where the GPU has units for it.
    """
    if stated in (None, "fp8"):
        return ()
    if stated != "fp4":
        raise _refusal("expert_dtype", stated, ("fp4", "fp8"))
    return _MXFP4_EXPERTS


def _fp8(raw: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Rule of fp8 or microscaled fp8, by the block of weights that shares a scale."""
    block = raw.get("weight_block_size")
    formats = {"None": _FP8, "[128, 128]": _FP8_BLOCK, "[1, 32]": _MXFP8}
    if str(block) not in formats:
        raise _refusal("weight_block_size", block, ("null", "[128, 128]", "[1, 32]"))
    return (Rule(formats[str(block)]),)


def _modelopt(raw: Mapping[str, Any]) -> tuple[Rule, ...]:
    """ModelOpt: one algorithm, or a table of modules (`quantized_layers`).

    `config_groups` repeats either, less exactly: it counts without an algorithm only.
    """
    algorithm, table = raw.get("quant_algo"), raw.get("quantized_layers")
    if isinstance(table, Mapping) and table:
        return _table(table)
    if raw.get("config_groups") and algorithm in (None, "MIXED_PRECISION"):
        return _compressed_tensors(raw)
    if algorithm == "MIXED_PRECISION":
        raise ValueError("`quantized_layers` is missing beside MIXED_PRECISION")
    return () if algorithm is None else (Rule(_algorithm(raw)),)


def _table(table: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Rules of a table from modules to algorithms."""
    modules: dict[Format, list[str]] = {}
    for name, entry in table.items():
        if not isinstance(entry, Mapping):
            raise ValueError(f"`{name}` is {as_json(entry)}; allowed is an object")
        if entry.get("quant_algo") is not None:
            modules.setdefault(_algorithm(entry), []).append(name)
    return tuple(Rule(form, Names(tuple(names))) for form, names in modules.items())


def _algorithm(raw: Mapping[str, Any]) -> Format:
    name = str(raw["quant_algo"]).upper()
    if name not in _ALGORITHMS:
        raise _refusal("quant_algo", raw["quant_algo"], _ALGORITHMS)
    form, group = _ALGORITHMS[name], _group(raw)
    if form == _FP8 and raw.get("weight_block_size"):
        return _fp8(raw)[0].format
    if form.weights == "int4":
        zero = raw.get("has_zero_point") is True
        return dataclasses.replace(form, group=group or form.group, zero_point=zero)
    fixed = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}.get(form.weights)
    if group and fixed and group != fixed:
        raise _refusal("group_size", group, (str(fixed),))
    return form


def _gptq(raw: Mapping[str, Any]) -> tuple[Rule, ...]:
    """GPTQ: `dynamic` has other bits for some modules ("+:") and leaves some out."""
    default = _gptq_format(raw)
    rules = [
        Rule(_gptq_format({**raw, **changes}), Names(("re:" + name[2:],)))
        for name, changes in _dynamic(raw).items()
        if name.startswith("+:") and isinstance(changes, Mapping)
    ]
    if raw.get("lm_head") is True:
        rules.append(Rule(default, Names(("lm_head",))))
    inside = raw.get("modules_in_block_to_quantize") or []
    if not isinstance(inside, list):
        raise _refusal("modules_in_block_to_quantize", inside, ("lists of names",))
    lists = [[x] if isinstance(x, str) else x for x in inside]
    names = tuple(name for x in lists if isinstance(x, list) for name in x)
    return (*rules, Rule(default, Names(names)))


def _gptq_format(raw: Mapping[str, Any]) -> Format:
    return _integers(raw, zero_point=raw.get("sym") is False)


def _integers(raw: Mapping[str, Any], zero_point: bool) -> Format:
    """Weight-only integers."""
    bits = raw.get("bits", raw.get("w_bit"))
    if bits not in (4, 8):
        raise _refusal("bits", bits, ("4", "8"))
    group = _group(raw)
    return Format(f"int{int(bits)}", "bf16", group, zero_point and group > 0)


def _compressed_tensors(raw: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Groups of modules; a group that names modules comes before classes of them."""
    sparse = raw.get("sparsity_config")
    kind = sparse.get("format") if isinstance(sparse, Mapping) else None
    if kind not in (None, "dense") or raw.get("format") == "marlin-24":
        raise _refusal("sparsity_config.format", kind or "marlin-24", ("dense",))
    groups = raw.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise ValueError(f"`config_groups` is {as_json(groups)}; allowed is an object")
    named, classes = [], []
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise ValueError(
                f"`config_groups` has {as_json(group)}; allowed are objects"
            )
        if group.get("weights") is not None:
            form = _scheme(group["weights"], group.get("input_activations"))
            targets = _strings(group, "targets") or ()
            names = tuple(x for x in targets if not _CLASS.match(x))
            named += [Rule(form, Names(names))] if names else []
            if any(x.endswith("Linear") for x in targets if x not in names):
                classes.append(Rule(form))
            elif any(x.endswith(("Experts", "MoE")) for x in targets if x not in names):
                classes.append(Rule(form, Names(("experts",))))
    if not named and not classes:
        raise ValueError("`config_groups` has no weights of Linear or named modules")
    return (*named, *classes)


_CLASS: Final = re.compile(r"[A-Z]\w*\Z")
"""A target that is the name of a class, such as Linear."""


def _scheme(weights: Any, inputs: Any) -> Format:
    """Format of a group's `weights` and `input_activations` (None: weight-only)."""
    storage = _storage("weights", weights)
    group = _group(weights) if storage.startswith("int") else 0
    zero_point = group > 0 and weights.get("symmetric") is False
    if inputs is None:
        return Format(storage, "bf16", group, zero_point)
    values = _storage("input_activations", inputs)
    products = "fp8" if values == "fp8_block" else values
    if products not in _PRODUCTS[storage]:
        raise _refusal("input_activations", values, _PRODUCTS[storage])
    products = storage if storage == "fp8_block" else products
    return Format(storage, products, group, zero_point)


_PRODUCTS: Final = {
    "fp8": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("mxfp8",),
    "nvfp4": ("nvfp4", "fp8"),
    "mxfp4": ("mxfp8", "fp8"),
    "int8": ("int8",),
    "int4": ("int8", "fp8"),
}
"""Activations that each storage is multiplied with."""


def _storage(key: str, raw: Any) -> str:
    """Type of the given bits, kind and group size."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"`{key}` is {as_json(raw)}; allowed is an object")
    kind, group = f"{raw.get('type', 'int')}{raw.get('num_bits')}", _group(raw)
    if kind in ("int4", "int8"):
        return kind
    if kind == "float8" and raw.get("strategy") == "block":
        if raw.get("block_structure") not in (None, [128, 128], "128x128"):
            raise _refusal("block_structure", raw["block_structure"], ("[128, 128]",))
        return "fp8_block"
    if key == "input_activations" and (kind, group) == ("float8", 128):
        return "fp8_block"
    if (kind, group) not in _FLOATS:
        raise ValueError(f"`{key}` are {kind} in groups of {group}, which is not read")
    return _FLOATS[kind, group]


_FLOATS: Final = {
    ("float8", 0): "fp8",
    ("float8", 32): "mxfp8",
    ("float4", 16): "nvfp4",
    ("float4", 32): "mxfp4",
}
"""Type by kind, bits and group size."""

_METHODS: Final[dict[str, Callable[[Mapping[str, Any]], tuple[Rule, ...]]]] = {
    "fp8": _fp8,
    "fbgemm-fp8": lambda raw: (Rule(_FP8),),
    "mxfp8": lambda raw: (Rule(_MXFP8),),
    "mxfp4": lambda raw: _MXFP4_EXPERTS,  # gpt-oss, in transformers and vLLM alike
    "modelopt": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "awq": lambda raw: (Rule(_integers(raw, raw.get("zero_point") is not False)),),
    "gptq": _gptq,
}


# Values ---------------------------------------------------------------------------


def _refusal(key: str, value: Any, allowed: Iterable[str]) -> ValueError:
    return ValueError(f"`{key}` is {as_json(value)}; read are {', '.join(allowed)}")


def _group(raw: Mapping[str, Any]) -> int:
    """Elements a scale; 0 if it is one per row (or not stated)."""
    value = raw.get("group_size", raw.get("q_group_size"))
    if value in (None, -1):
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refusal("group_size", value, ("whole numbers of at least 1", "-1"))
    return value


def excluded_names(raw: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Modules left in 16 bit, under any of the keys that list them."""
    lists = [names for key in _EXCLUSIONS if (names := _strings(raw, key)) is not None]
    excluded = (name for name in _dynamic(raw) if name.startswith("-:"))
    lists += [("re:" + name[2:],) for name in excluded]
    return tuple(dict.fromkeys(x for names in lists for x in names)) if lists else None


def _dynamic(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Exceptions of GPTQModel, by pattern."""
    value = raw.get("dynamic") or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"`dynamic` is {as_json(value)}; allowed is an object")
    return value


def _strings(raw: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise ValueError(f"`{key}` is {as_json(value)}; allowed is a list of names")
    return tuple(value)


def stated_cache(raw: Mapping[str, Any]) -> Any:
    """Statement on the KV cache; None if there is none."""
    algorithm = raw.get("kv_cache_quant_algo")
    return raw.get("kv_cache_scheme") if algorithm is None else algorithm


def is_fp8(cache: Any) -> bool:
    """Whether a statement of the KV cache says fp8."""
    if isinstance(cache, Mapping):
        return cache.get("num_bits") == 8 and cache.get("type") == "float"
    return str(cache).upper() == "FP8"


def cache_words(cache: Any) -> str:
    """Sentence on a statement of the KV cache."""
    if is_fp8(cache):
        return "KV cache in fp8"
    return f"KV cache in 16 bit: {as_json(cache)} is not modelled"
