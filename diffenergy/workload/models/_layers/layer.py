"""A layer of a language model as its operators."""

import dataclasses

from .._network.linear_layer import Linear
from .._network.operators import Cached, Operator, Weights
from .._network.sharding import Split


@dataclasses.dataclass(frozen=True)
class Layer:
    """Operators of a layer in launch order, without the `norms` over the whole width
    that begin its parts (and add the residual)."""

    operators: tuple[Operator, ...]
    norms: int = 2

    def shard(self, split: Split) -> "Layer":
        """The layer as one of several GPUs has it."""
        for operator in self.operators:  # whose errors name heads come first
            if not isinstance(operator, Linear):
                operator.shard(split)
        operators = tuple(x.shard(split) for x in self.operators)
        return dataclasses.replace(self, operators=operators)

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Its weights, each once."""
        return [(w, 1) for x in self.operators for w in x.weights()]

    def all_cached(self) -> list[tuple[Cached, int]]:
        """What it keeps of a sequence."""
        return [(kept, 1) for x in self.operators for kept in x.cached()]
