"""`Stack`: a network (or the part on one GPU) as blocks of operators: kernels forward
and backward, saved activations, trained weights."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from .._kernel import Kernel
from ._operators.memory import Weights
from ._operators.operator import Norm, Residual, Sum, Trainable
from ._operators.partial import (
    add_adapters,
    freeze,
    frozen_weights,
    parameters,
    trained_weights,
)
from ._operators.passes import ForwardPass, repeat_rows
from ._recompute import rerun

_SUMS = ("reduce_scatter", "all_reduce")
"""Exchanges whose results torchtitan's policy saves."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Operators that run `count` times, one after the other.

    Of layers `inputs`: values a token (of vision models an image) that one reads, 0
    where it is none; `places`: those of the layers in the model, or the number of
    layers before, where they do not follow from the blocks before. `frozen`: they run
    forward alone. `wide`: their products are in 16 bit in a step of a narrower type.
    """

    operators: tuple[Trainable, ...]
    count: int = 1
    inputs: int = 0
    places: tuple[int, ...] = ()
    frozen: bool = False
    wide: bool = False

    def run(self, run: ForwardPass) -> ForwardPass:
        """A pass as these operators have it, in their own type."""
        p = run.precision
        if not self.wide or p.requested is None:
            return run
        own = dataclasses.replace(p, linear=p.values, requested=None)
        return dataclasses.replace(run, precision=own)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Forward kernels of all repetitions, those of a layer together."""
        return repeat_rows(forward_rows(self.operators, self.run(run)), self.count)

    @property
    def parameters(self) -> int:
        """Number of weights of all repetitions, adapters included."""
        return self.count * parameters(self.operators)


@dataclasses.dataclass(frozen=True)
class Stack:
    """`blocks` of a network in order, and its `loss` where it has its end.

    `norm`: with which every layer and the end begin, and which fused stacks run behind
    the layer before, whose `skip` it adds (None: nothing is joined so). The first
    `frozen` layers, and all before them, have no gradients. `further`: networks that
    predict tokens beyond the next from what the layers make.
    """

    blocks: tuple[Block, ...]
    loss: Trainable | None = None
    norm: Norm | None = None
    skip: Residual | None = None
    frozen: int = 0
    further: tuple["Stack", ...] = ()

    @property
    def each(self) -> tuple["Stack", ...]:
        """This network and the networks for further tokens."""
        return (self, *(y for x in self.further for y in x.each))

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return sum(x.count for x in self.blocks if x.inputs)

    @property
    def parameters(self) -> int:
        """Number of all weights, adapters included."""
        return sum(x.parameters for x in self.blocks)

    # --- Kernels

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the forward pass and of the loss."""
        return [row for x in self.each for row in x._forward(run)]

    def _forward(self, run: ForwardPass) -> list[Kernel]:
        norm = self.norm if run.fused else None
        blocks = self._joined(norm) if norm else self.blocks
        rows = [row for block in blocks for row in block.forward(run)]
        return [*rows, *(self.loss.forward(run) if self.loss else [])]

    def _joined(self, norm: Norm) -> list[Block]:
        """Blocks as fused stacks launch them: norms add the skip connection of the
        layer before. The first has none, then each layer ends with the norm of the
        next, the last with the final one, or with the sum that goes to the next GPU."""
        after = [x for x in self.blocks if x.operators[:1] == (norm,)]
        before = [x for x in self.blocks if x.operators[:1] != (norm,)]
        if not after:
            return before
        ends = not after[-1].inputs
        moved = [
            dataclasses.replace(
                x, operators=(*x.operators[1:], *((norm,) if ends and x.inputs else ()))
            )
            for x in after
        ]
        if not ends and self.skip:
            moved += [Block((norm,), self.layers - 1)] if self.layers > 1 else []
            moved += [Block((Sum(self.skip.width, self.skip.parts),))]
        return [*before, Block((_alone(norm),)), *moved]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of all gradients; a layer's forward kernels first if its activations
        were not saved."""
        return [row for x in reversed(self.each) for row in x._backward(run)]

    def _backward(self, run: ForwardPass) -> list[Kernel]:
        rows = backward_rows((self.loss,), run) if self.loss else []
        for block, trained in reversed(list(self._trained())):
            own = block.run(run)
            again = _again(block.operators, own) if block.inputs else []
            back = backward_rows(block.operators, own)
            rows += repeat_rows([*again, *back], trained) if trained else []
        return rows

    # --- Memory

    def saved_bytes(self, run: ForwardPass) -> tuple[float, float]:
        """Bytes of activations, without the logits, that a micro-batch leaves between
        its forward and its backward pass, and those that are there once beside: of the
        layer that runs again (arXiv 2205.05198, full recomputation)."""
        parts = [x._saved_bytes(run) for x in self.each]
        return sum(left for left, _ in parts), max(again for _, again in parts)

    def _saved_bytes(self, run: ForwardPass) -> tuple[float, float]:
        every = most = 0.0
        shared, step = self.skip.parts if self.skip else 1, run
        for block, trained in self._trained():
            run = block.run(step)
            left = layer = sum(x.saved_bytes(run) for x in block.operators)
            if block.inputs and run.recompute in ("selective-op", "full"):
                left = run.tokens // shared * block.inputs * run.element_bytes
            if block.inputs and run.recompute == "selective-op":
                left += sum(x.selective_bytes(run) for x in block.operators)
            again = layer if left < layer else 0.0
            if block.inputs:
                modules = rerun(block.operators, run)[1]
                left, again = left - modules, again + modules
            every += trained * left
            most = max(most, again if trained else 0.0)
        return every, most

    def logits(self, run: ForwardPass) -> float:
        """Bytes of the logits of a micro-batch, of all tokens that are predicted."""
        return sum((x.loss.saved_bytes(run) for x in self.each if x.loss), 0.0)

    # --- What is trained

    def _trained(self) -> Iterator[tuple[Block, int]]:
        """Each block, and how many of it are trained."""
        for block, places in self._placed():
            number = sum(place >= self.frozen for place in places)
            yield block, 0 if block.frozen else number

    def _placed(self) -> Iterator[tuple[Block, Sequence[int]]]:
        """Each block with the places of its layers, or the number of layers before
        it."""
        before = 0
        for block in self.blocks:
            if block.inputs:
                yield block, block.places or range(before, before + block.count)
                before += block.count
            else:
                yield block, block.places or block.count * (before,)

    @property
    def trained_weights(self) -> list[tuple[Weights, int]]:
        """Weights that have a gradient, and how often they occur."""
        moving = [(x.operators, n) for x, n in self._trained() if n]
        return [(w, n) for operators, n in moving for w in trained_weights(operators)]

    @property
    def frozen_weights(self) -> list[tuple[Weights, int]]:
        """Published weights without a gradient, and how often they occur."""
        return [
            (w, times)
            for x, n in self._trained()
            for times, all_of_them in ((x.count - n, True), (n, False))
            for w in frozen_weights(x.operators, all_of_them)
            if times
        ]

    def largest_trained_layer(self) -> int:
        """Number of weights with a gradient in the layer that has most."""
        return max(
            (
                sum(w.number for w in trained_weights(x.operators))
                for x, n in self._trained()
                if n and x.inputs
            ),
            default=0,
        )

    def with_wide_ends(self, number: int, layers: int) -> "Stack":
        """With products in 16 bit in the first and the last `number` of all `layers`
        of the model."""
        blocks: list[Block] = []
        for x, places in self._placed():
            ends = [i for i in places if min(i, layers - 1 - i) < number]
            if not x.inputs or not ends:
                blocks.append(x)
                continue
            inside = [i for i in places if i not in set(ends)]
            for own, wide in ((inside, False), (ends, True)):
                if own:
                    count, of = len(own), tuple(own)
                    part = dataclasses.replace(x, count=count, places=of, wide=wide)
                    blocks.append(part)
        return dataclasses.replace(self, blocks=tuple(blocks))

    def with_adapters(self, rank: int, layers: str | None, head: bool) -> "Stack":
        """With adapters of `rank` on linear layers of its layers (`adapted`); what is
        before them runs forward alone, what follows them is frozen unless it is a new
        `head`."""
        blocks = []
        for x, places in self._placed():
            operators = x.operators
            if x.inputs:
                operators = add_adapters(operators, rank, layers)
            elif not head:
                operators = tuple(freeze(operator) for operator in operators)
            still = not x.inputs and places[0] == 0
            blocks.append(dataclasses.replace(x, operators=operators, frozen=still))
        norm: Norm | None = freeze(self.norm) if self.norm else None  # pyright: ignore
        return dataclasses.replace(self, blocks=tuple(blocks), norm=norm)


def _again(operators: Sequence[Trainable], run: ForwardPass) -> list[Kernel]:
    """Forward kernels of a layer that run once more before its gradients."""
    if run.recompute not in ("selective-op", "full"):
        modules, _ = rerun(operators, run)
        alone = (_alone(x) if isinstance(x, Norm) else x for x in modules)
        return forward_rows(alone, run)
    first = (_alone(x) if isinstance(x, Norm) else x for x in operators[:1])
    rows = forward_rows((*first, *operators[1:]), run)
    if run.recompute == "full":
        return rows
    halves = {name: 0.5 for name in ("gemm", "moe")}
    return [
        row | {"count": halves.get(row["op"], 1)}
        for row in rows
        if row["op"] != "context_attention" and row.get("collective") not in _SUMS
    ]


def _alone(norm: Norm) -> Norm:
    """The norm without the sum of a skip connection."""
    return dataclasses.replace(norm, residual=False)


def forward_rows(operators: Iterable[Trainable], run: ForwardPass) -> list[Kernel]:
    """Forward rows of operators, one row a launch: all of a layer have one count."""
    return [row for x in operators for row in _one_by_one(x.forward(run))]


def backward_rows(operators: Sequence[Trainable], run: ForwardPass) -> list[Kernel]:
    """Backward rows of operators, the last operator first, one row a launch."""
    return [row for x in reversed(operators) for row in _one_by_one(x.backward(run))]


def _one_by_one(rows: Sequence[Kernel]) -> list[Kernel]:
    return [{**row, "count": 1} for row in rows for _ in range(row["count"])]
