"""A layer of a language model as its operators."""

import dataclasses

from .._network.linear_layer import Linear
from .._network.operators import Cached, Operator, Trainable
from .._network.sharding import ModelSplit, Rows
from .._shared.memory import Weights

Halves = tuple[tuple[Trainable, ...], tuple[Trainable, ...]]
"""Operators behind the two norms of a layer in training."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """Operators of a layer in launch order, without the `norms` over the whole width
    that begin its parts (and add the residual)."""

    operators: tuple[Operator, ...]
    norms: int = 2

    def shard(self, split: ModelSplit) -> "Layer":
        """The layer as one of several GPUs has it."""
        for operator in self.operators:  # whose errors name heads come first
            if not isinstance(operator, Linear):
                operator.shard(split)
        operators = tuple(x.shard(split) for x in self.operators)
        return dataclasses.replace(self, operators=operators)

    def in_training(self) -> Halves | None:
        """Its operators in a training step; None if one is not known to train, or if it
        has other norms than one before its mixer and one before its feed-forward part.

        The mixer ends with the first linear layer that GPUs divide by its inputs.
        """
        ends = (
            i + 1
            for i, x in enumerate(self.operators)
            if isinstance(x, Linear) and isinstance(x.split, Rows)
        )
        stop, known = next(ends, 0), [x.in_training() for x in self.operators]
        if self.norms != 2 or not 0 < stop < len(known):
            return None
        halves: list[tuple[Trainable, ...]] = []
        for part in (known[:stop], known[stop:]):
            each = [x for x in part if x is not None]
            if len(each) < len(part):
                return None
            halves.append(tuple(op for x in each for op in x))
        return halves[0], halves[1]

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Its weights, each once."""
        return [(w, 1) for x in self.operators for w in x.weights()]

    def all_cached(self) -> list[tuple[Cached, int]]:
        """What it keeps of a sequence."""
        return [(kept, 1) for x in self.operators for kept in x.cached()]
