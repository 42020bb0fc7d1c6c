"""A layer of a language model as its operators."""

import dataclasses

from .._network.operators import Operator


@dataclasses.dataclass(frozen=True)
class Layer:
    """Operators of a layer in launch order, without the `norms` over the whole width
    that begin its parts (and add the residual)."""

    operators: tuple[Operator, ...]
    norms: int = 2
