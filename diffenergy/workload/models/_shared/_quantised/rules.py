"""Formats of linear layers, and rules that say which modules have them."""

import dataclasses
from typing import Final

from .....dtypes import stored_bytes
from .modules import Names, bare

_FP8_BLOCK: Final = 1 + 4 / 128**2
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
            return _FP8_BLOCK
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
        parts = bare(module).split(".")
        wide = parts[-1] in _WIDE or parts[-1].endswith("norm")
        return not wide and _WIDE_PARTS.isdisjoint(parts)
