"""Parts of a network that are frozen, have adapters, or run over other sequences than
the rest."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ..._kernel import Kernel
from .attention import Attention
from .linear import Linear
from .memory import Weights
from .operator import Trainable
from .passes import ForwardPass


@dataclasses.dataclass(frozen=True)
class Within(Trainable):
    """Operators whose sequences are others: `sequences` of `length` tokens in each of a
    pass, such as the first token of every sentence, or the pixels of patches."""

    operators: tuple[Trainable, ...]
    length: int = 1
    sequences: int = 1

    def weights(self) -> tuple[Weights, ...]:
        return tuple(w for x in self.operators for w in x.weights())

    def forward(self, run: ForwardPass) -> list[Kernel]:
        run = self.inside(run)
        return [row for x in self.operators for row in x.forward(run)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        run = self.inside(run)
        return [row for x in reversed(self.operators) for row in x.backward(run)]

    def saved_bytes(self, run: ForwardPass) -> float:
        run = self.inside(run)
        return sum(x.saved_bytes(run) for x in self.operators)

    def inside(self, run: ForwardPass) -> ForwardPass:
        """The pass over its own sequences."""
        sequences = run.sequences * self.sequences
        return dataclasses.replace(
            run, sequences=sequences, q_len=self.length, kv_len=self.length
        )


def freeze(operator: Trainable) -> Trainable:
    """The operator without a gradient of its weights."""
    if isinstance(operator, Within):
        inside = tuple(freeze(x) for x in operator.operators)
        return dataclasses.replace(operator, operators=inside)
    if "frozen" in {field.name for field in dataclasses.fields(operator)}:  # pyright: ignore[reportArgumentType]
        return dataclasses.replace(operator, frozen=True)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return operator


def add_adapters(
    operators: Sequence[Trainable], rank: int, layers: str | None = "all"
) -> tuple[Trainable, ...]:
    """Operators of a layer, frozen, with adapters of `rank` on its linear layers.

    `layers` "attention": those up to the first linear layer behind the attention."""
    stop = len(operators)
    if layers == "attention":
        inside = (i for i, x in enumerate(operators) if isinstance(x, Attention))
        first = next(inside, 0)
        behind = (i for i in range(first, stop) if isinstance(operators[i], Linear))
        stop = next(behind, 0) + 1
    changed = (_with_adapters(x, rank) for x in operators[:stop])
    return (*changed, *(freeze(x) for x in operators[stop:]))


def _with_adapters(operator: Trainable, rank: int) -> Trainable:
    """The operator frozen, with adapters if it is a linear layer."""
    if isinstance(operator, Within):
        inside = tuple(_with_adapters(x, rank) for x in operator.operators)
        return dataclasses.replace(operator, operators=inside)
    if isinstance(operator, Linear):
        return operator.with_adapters(rank)
    return freeze(operator)


def parameters(operators: Iterable[Trainable]) -> int:
    """Number of weights, adapters included."""
    every = list(_each(operators))
    return sum(w.number for x in every for w in x.weights()) + _of_adapters(every)


def trained_weights(operators: Iterable[Trainable]) -> list[Weights]:
    """Weights with a gradient, adapters included."""
    every = list(_each(operators))
    moving = [x for x in every if not getattr(x, "frozen", False)]
    return [*(w for x in moving for w in x.weights()), Weights(_of_adapters(every))]


def frozen_weights(operators: Iterable[Trainable], whole: bool) -> list[Weights]:
    """Published weights without a gradient; `whole`: all are."""
    still = (x for x in _each(operators) if whole or getattr(x, "frozen", False))
    return [w for x in still for w in x.weights()]


def _of_adapters(operators: Iterable[Trainable]) -> int:
    layers = (x for x in operators if isinstance(x, Linear))
    return sum(x.adapters.parameters(x.inputs) for x in layers if x.adapters)


def _each(operators: Iterable[Trainable]) -> Iterator[Trainable]:
    """Each operator; those inside a `Within` one by one."""
    for x in operators:
        yield from _each(x.operators) if isinstance(x, Within) else (x,)
