"""Modules that a checkpoint means by names, globs and regular expressions."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator
from typing import Final

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


def bare(name: str) -> str:
    """`name` without the modules around the language model.

    Towers keep their names, so that their layers are not taken for the model's.

    Example:

    >>> bare("model.language_model.layers.3.mlp.up_proj")
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
        """Whether `module` or one that holds it is meant."""
        return any(
            self._plain_match(name)
            or name.startswith(self._beginnings)
            or self._expression_match(name)
            for name in self._spellings(bare(module))
        )

    def _spellings(self, name: str) -> Iterator[str]:
        """`name`, and `name` with the checkpoint's words for a layer's part."""
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
        given = (x for x in self.patterns if not _is_expression(x) and "*" not in x)
        return frozenset(map(bare, given))

    @functools.cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """Globs whose only star is the last character."""
        return tuple(bare(x[:-1]) for x in self.patterns if _is_beginning(x))

    @functools.cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        """Everything else."""
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
        and bare(name).rstrip(".") not in ("", *_WRAPPERS)
    )


def _globbed(glob: str) -> str:
    """Regular expression of a glob that may end at a module that holds another."""
    return ".*".join(re.escape(text) for text in glob.split("*")) + r"(?:\..*)?\Z"
