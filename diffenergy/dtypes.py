"""Operand types: names, synonyms and bytes per element; types that weights are stored
in."""

import functools
from collections.abc import Mapping
from typing import Any, Final

DTYPES: Final = (
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "fp8",
    "fp8_block",
    "int8",
    "nvfp4",
    "mxfp4",
    "mxfp8",
)
"""Canonical names; a dtype's code is its index here."""

STORED: Final = (*DTYPES, "int4")
"""Types that weights are stored in: those of arithmetic, and int4, whose weights are
expanded on their way to the matrix pipes."""

SYNONYMS: Final = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "fp8_e4m3": "fp8",
}

BYTES: Final = (
    4.0, 4.0, 2.0, 2.0, 1.0, 1.0 + 4 / 128, 1.0, 0.5 + 1 / 16, 0.5 + 1 / 32,
    1.0 + 1 / 32,
)  # fmt: skip
"""Bytes per element, block scales included (fp8_block: one fp32 per 128; nvfp4: one
byte per 16; mxfp4, mxfp8: one byte per 32)."""

_VALUE_AND_SCALE: Final[Mapping[str, tuple[float, float]]] = {
    "fp8": (1.0, 4.0),
    "fp8_block": (1.0, 4.0),
    "int8": (1.0, 2.0),
    "nvfp4": (0.5, 1.0),
    "mxfp4": (0.5, 1.0),
    "mxfp8": (1.0, 1.0),
    "int4": (0.5, 2.0),
}
"""Bytes of a value and of the scale that a group of them shares."""
_INT4_GROUP: Final = 128
"""Elements a scale of int4 (AWQ, GPTQ)."""


@functools.cache
def stored_bytes(name: str, group: int | float = 0) -> float:
    """Bytes of an element of weights stored as `name`, scales included.

    `group`: elements that share a scale; 0: the type's own (`BYTES`; int4: 128). A
    scale is 16 bits of int4 and int8, fp32 of fp8, one byte of the others; zero points
    (0.5 B a group of AWQ, 0.7 % of its bytes) are left out. Types of 16 bits and more
    have none.

    >>> stored_bytes("int4", 32), stored_bytes("mxfp4")
    (0.5625, 0.53125)
    """
    if name == "int4" and not group:
        group = _INT4_GROUP
    if name not in _VALUE_AND_SCALE or not group:
        return BYTES[code(name)]
    value, scale = _VALUE_AND_SCALE[name]
    return value + scale / group


def code(name: str) -> int:
    """Index of dtype `name` in `DTYPES`; synonyms are accepted.

    Raises `ValueError` naming the allowed types if `name` is unknown.
    """
    plain = canonical(name)
    if plain not in DTYPES:
        raise ValueError(
            f"`dtype` is '{name}'; allowed are {', '.join((*DTYPES, *SYNONYMS))}."
        )
    return DTYPES.index(plain)


def canonical(name: Any) -> Any:
    """Name of a dtype without synonyms and in lower case; what is unknown, or no text,
    stays as it is.

    >>> canonical("BF16"), canonical("Half"), canonical("Q4_K")
    ('bf16', 'fp16', 'Q4_K')
    """
    if not isinstance(name, str):
        return name
    plain = SYNONYMS.get(name.lower(), name.lower())
    return plain if plain in STORED else name
