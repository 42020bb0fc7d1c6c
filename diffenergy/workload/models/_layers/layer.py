"""A layer of a language model as its operators."""

import dataclasses

from .._network.linear_layer import Gated, Linear
from .._network.operators import Cached, Norm, Operator, Trainable
from .._network.sharding import ModelSplit, Rows
from .._shared.memory import Weights

Trained = tuple[tuple[Trainable, ...], ...]
"""Parts of a layer in training, each with a norm before it and a skip behind it."""
_CONTAINERS = 3
"""Modules that hold others: a layer, its mixer and its feed-forward part."""


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

    def in_training(self) -> Trained | None:
        """Its parts in a training step: one behind one norm, else mixer and feed
        forward, which with 4 norms have others behind them (`normed_behind`); None if
        an operator is not known to train, or if it has other norms.

        The mixer ends with the first linear layer that GPUs divide by its inputs.
        """
        known = [x.in_training() for x in self.operators]
        each = [x for x in known if x is not None]
        if len(each) < len(known) or self.norms not in (1, 2, 4):
            return None
        if self.norms == 1:
            return (tuple(op for x in each for op in x),)
        ends = (
            i + 1
            for i, x in enumerate(self.operators)
            if isinstance(x, Linear) and isinstance(x.split, Rows)
        )
        stop = next(ends, 0)
        if not 0 < stop < len(each):
            return None
        parts = each[:stop], each[stop:]
        return tuple(tuple(op for x in part for op in x) for part in parts)

    @property
    def normed_behind(self) -> bool:
        """Whether norms stand behind its parts beside those before."""
        return self.norms == 4

    @property
    def modules(self) -> int:
        """`nn.Module` calls of one pass, as most modules have them: containers, linear
        layers, norms, activations."""
        trained = [x for part in self.in_training() or () for x in part]
        layers = [x for x in trained if isinstance(x, Linear)]
        linear = sum(len(x.parts or (1,)) + bool(x.activation) for x in layers)
        others = sum(isinstance(x, Norm | Gated) for x in trained)
        return _CONTAINERS + self.norms + linear + others

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Its weights, each once."""
        return [(w, 1) for x in self.operators for w in x.weights()]

    def all_cached(self) -> list[tuple[Cached, int]]:
        """What it keeps of a sequence."""
        return [(kept, 1) for x in self.operators for kept in x.cached()]
