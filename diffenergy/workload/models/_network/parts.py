"""Parts of a network that are trained differently from the rest: frozen, with adapters,
or on other sequences than those around them."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ..._kernel import Kernel
from .._shared.memory import Weights
from .linear_layer import Adapters, Linear
from .operators import Residual, Trainable
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

    def kept(self, run: ForwardPass) -> float:
        run = self.inside(run)
        return sum(x.kept(run) for x in self.operators)

    def inside(self, run: ForwardPass) -> ForwardPass:
        """The pass that its operators have."""
        sequences = run.sequences * self.sequences
        return dataclasses.replace(
            run, sequences=sequences, q_len=self.length, kv_len=self.length
        )


def frozen(operator: Trainable) -> Trainable:
    """The operator whose own weights have no gradient, where it has any that could."""
    if isinstance(operator, Within):
        inside = tuple(frozen(x) for x in operator.operators)
        return dataclasses.replace(operator, operators=inside)
    if "frozen" in {field.name for field in dataclasses.fields(operator)}:  # pyright: ignore[reportArgumentType]
        return dataclasses.replace(operator, frozen=True)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return operator


def adapted(
    operators: Sequence[Trainable],
    rank: int,
    single: Sequence[Trainable] | None = None,
    layers: str | None = "all",
) -> tuple[Trainable, ...]:
    """The same operators of a layer frozen, its linear layers with adapters of `rank`:
    all of them, or those of the attention, which are before the first skip connection.

    `single`: the operators where no product joins several layers: each of these has
    adapters of its own [the same].
    """
    if layers == "attention":
        skip = next(i for i, x in enumerate(operators) if isinstance(x, Residual))
        rest = (frozen(x) for x in operators[skip:])
        return (*adapted(operators[:skip], rank, single), *rest)
    every = _each(operators if single is None else single)
    outputs = (layer.outputs for layer in every if isinstance(layer, Linear))

    def change(x: Trainable) -> Trainable:
        if isinstance(x, Within):
            inside = tuple(change(y) for y in x.operators)
            return dataclasses.replace(x, operators=inside)
        if not isinstance(x, Linear):
            return frozen(x)
        parts: list[int] = []
        while sum(parts) < x.outputs:
            parts.append(next(outputs))
        return dataclasses.replace(
            x, frozen=True, adapters=Adapters(rank, tuple(parts))
        )

    return tuple(change(x) for x in operators)


def parameters(operators: Iterable[Trainable]) -> int:
    """Weights, those of adapters among them."""
    every = list(_each(operators))
    return sum(w.number for x in every for w in x.weights()) + _of_adapters(every)


def trained_weights(operators: Iterable[Trainable]) -> list[Weights]:
    """Those of them that have a gradient."""
    every = list(_each(operators))
    own = [x for x in every if not getattr(x, "frozen", False)]
    return [*(w for x in own for w in x.weights()), Weights(_of_adapters(every))]


def trained_parameters(operators: Iterable[Trainable]) -> int:
    """Their number."""
    return sum(w.number for w in trained_weights(operators))


def frozen_weights(operators: Iterable[Trainable], whole: bool) -> list[Weights]:
    """Published weights without a gradient; `whole`: all are."""
    still = (x for x in _each(operators) if whole or getattr(x, "frozen", False))
    return [w for x in still for w in x.weights()]


def _of_adapters(operators: Iterable[Trainable]) -> int:
    layers = (x for x in operators if isinstance(x, Linear))
    return sum(x.adapters.parameters(x.inputs) for x in layers if x.adapters)


def _each(operators: Iterable[Trainable]) -> Iterator[Trainable]:
    """Every operator, those of a `Within` one by one."""
    for x in operators:
        yield from _each(x.operators) if isinstance(x, Within) else (x,)
