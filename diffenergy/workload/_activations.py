"""What a training program stores between the passes, and what it runs again instead."""

from typing import Any, Final, NamedTuple

MODULES: Final = ("core", "norm", "act", "up", "mlp", "experts")
"""Parts of a layer that a backward pass may run again by themselves (`_recompute`)."""
RECOMPUTE: Final = ("none", "selective", "selective-op", "full")
"""What of a layer runs again before its gradients: nothing; attention that is not fused
(arXiv 2205.05198); half of the products and all else but fused attention (torchtitan's
policy by operator); everything."""
RECOMPUTED: Final = f"{', '.join(RECOMPUTE)}, or {'+'.join(MODULES)} in part"
"""Words that `recompute` may have."""


class TrainingStorage(NamedTuple):
    """How a training program keeps what its backward pass reads. `activations`: type of
    gate and up, and of rows that reach experts; `moments`: of AdamW's; `results`:
    whether those of experts are kept, which are weighted behind their last product
    (programs before 2025)."""

    activations: str = "bf16"
    moments: str = "fp32"
    results: bool = False


def is_recompute(text: Any) -> bool:
    """Whether a text says what a backward pass runs again."""
    return text in RECOMPUTE or bool(modules_of(str(text)))


def modules_of(recompute: str) -> tuple[str, ...]:
    """Modules of words joined by +; none of a word for whole layers, or of a text that
    says nothing.

    >>> modules_of("norm+up")
    ('norm', 'up')
    """
    words = tuple(recompute.split("+"))
    known = set(words) <= set(MODULES) and len(set(words)) == len(words)
    return words if known else ()
