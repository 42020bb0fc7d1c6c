"""Operand types: names, synonyms and bytes per element."""

from typing import Final

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
)
"""Canonical names; a dtype's code is its index here."""

SYNONYMS: Final = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "fp8_e4m3": "fp8",
}

BYTES: Final = (4.0, 4.0, 2.0, 2.0, 1.0, 1.0 + 4 / 128, 1.0, 0.5 + 1 / 16, 0.5 + 1 / 32)
"""Bytes per element, block scales included (fp8_block: one fp32 per 128; nvfp4: one
byte per 16; mxfp4: one byte per 32)."""


def code(name: str) -> int:
    """Index of dtype `name` in `DTYPES`; synonyms are accepted.

    Raises `ValueError` naming the allowed types if `name` is unknown.
    """
    canonical = SYNONYMS.get(name, name)
    if canonical not in DTYPES:
        raise ValueError(
            f"`dtype` is '{name}'; allowed are {', '.join((*DTYPES, *SYNONYMS))}."
        )
    return DTYPES.index(canonical)
