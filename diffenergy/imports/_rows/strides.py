"""Strides and padding of convolutions of which a trace has sizes alone.

The output's size is that of the next operator that reads it, or of the gradient in the
backward pass. With input, weights and output it gives stride and padding of each axis.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .._launches import Operator
from .operators import CONVOLUTIONS, GRADIENTS, base_name

Call = tuple[float, float, Operator]
"""Start, end (us) and operator."""
Sizes = tuple[int, ...]
_NEAR: Final = 60
"""Calls behind a convolution among which one reads its output."""
_BACKWARD: Final = "convolution_backward"


def inferred(
    threads: Sequence[tuple[Sequence[Call], Sequence[int]]],
) -> dict[int, Operator]:
    """Operators of convolutions with their strides and padding, by `id` of the call.

    `threads`: calls in order of their start, and the number of the call around each
    (-1: none).
    """
    calls: dict[int, Operator] = {}
    equal: dict[Operator, Operator] = {}  # equal calls share one operator
    shapes: dict[int, tuple[Sizes, Sizes, Sizes]] = {}
    for several, around in threads:
        for number, call in _convolutions(several):
            triple = _shapes(several, around, number)
            if triple is not None:
                shapes[id(call)] = triple
    outputs = {(x, w): out for x, w, out in shapes.values()}
    inputs = {(w, out): x for x, w, out in shapes.values()}
    weights = {(x, out): w for x, w, out in shapes.values()}
    for several, _ in threads:
        for _, call in _convolutions(several):
            triple = shapes.get(id(call))
            triple = triple or _paired(call[2], outputs, inputs, weights)
            operator = triple and _with_strides(call[2], *triple)
            if operator:
                calls[id(call)] = equal.setdefault(operator, operator)
    return calls


def _convolutions(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """Convolutions whose stride is not stated, with their numbers."""
    for number, call in enumerate(calls):
        base = base_name(call[2].name)
        if base in GRADIENTS:
            yield number, call
        elif base in CONVOLUTIONS and not call[2].value(CONVOLUTIONS[base].stride):
            yield number, call


def _shapes(
    calls: Sequence[Call], around: Sequence[int], number: int
) -> tuple[Sizes, Sizes, Sizes] | None:
    """Sizes of input, weights and output of a convolution; None where neither its
    arguments nor its neighbours state them all."""
    operator = calls[number][2]
    base = base_name(operator.name)
    if base in GRADIENTS:  # the call around both gradients has all three
        while number >= 0 and not base.endswith(_BACKWARD):
            number = around[number]
            base = base_name(calls[number][2].name) if number >= 0 else ""
        if number < 0:
            return None
        x, out, w = (calls[number][2].sizes(i) for i in range(3))
    elif base == _BACKWARD:
        out, x, w = (operator.sizes(i) for i in range(3))
    else:
        first = CONVOLUTIONS[base].first
        x, w = operator.sizes(first), operator.sizes(first + 1)
        out = _output(calls, number, x, w) if x and w else None
    return (x, w, out) if x and w and out and _steps(x, w, out) else None


def _output(calls: Sequence[Call], number: int, x: Sizes, w: Sizes) -> Sizes | None:
    """Sizes of the output: of the first tensor that a later call reads and that the
    convolution may have written, up to the next convolution."""
    end = calls[number][1]
    for start, _, operator in calls[number + 1 : number + 1 + _NEAR]:
        if start < end:  # within the convolution
            continue
        for index in range(min(len(operator.dims or ()), 3)):
            sizes = operator.sizes(index)
            if sizes and sizes[:2] == (x[0], w[0]) and _steps(x, w, sizes):
                return sizes
        if base_name(operator.name) in CONVOLUTIONS:
            return None
    return None


def _steps(x: Sizes, w: Sizes, out: Sizes) -> list[tuple[int, int]]:
    """(stride, padding) of each axis; none where the sizes are no convolution's."""
    if not len(x) == len(w) == len(out) > 2 or x[1] % max(w[1], 1):
        return []
    if out[:2] != (x[0], w[0]):
        return []
    steps = [_step(*axis) for axis in zip(x[2:], w[2:], out[2:], strict=True)]
    return [step for step in steps if step] if all(steps) else []


def _step(size: int, taps: int, out: int) -> tuple[int, int] | None:
    """(stride, padding) that map `size` to `out` pixels, the usual ones first: half
    the taps of padding at stride 1 or 2, then patches, then none, then any."""
    same = (taps - 1) // 2
    usual = [(1, same), (2, same), (taps, 0), *((s, 0) for s in range(1, taps + 1))]
    any_other = itertools.product(range(1, taps + 1), range(1, taps))
    return next(
        (
            (s, p)
            for s, p in itertools.chain(usual, any_other)
            if size + 2 * p >= taps and (size + 2 * p - taps) // s + 1 == out
        ),
        None,
    )


def _paired(
    operator: Operator,
    outputs: Mapping[Any, Sizes],
    inputs: Mapping[Any, Sizes],
    weights: Mapping[Any, Sizes],
) -> tuple[Sizes, Sizes, Sizes] | None:
    """Sizes of a convolution by those of another one of equal sizes: a gradient with
    its forward pass, a forward pass with another."""
    base = base_name(operator.name)
    if base in GRADIENTS:
        out, other = operator.sizes(1), operator.sizes(2)
        is_input = base.endswith("_input")
        pairs = inputs if is_input else weights
        missing = pairs.get((other, out))
        x, w = (missing, other) if is_input else (other, missing)
    else:
        first = CONVOLUTIONS[base].first
        x, w = operator.sizes(first), operator.sizes(first + 1)
        out = outputs.get((x, w))
    return (x, w, out) if x and w and out else None


def _with_strides(operator: Operator, x: Sizes, w: Sizes, out: Sizes) -> Operator:
    """The operator with its strides as if the trace stated them; a gradient with the
    arguments of the backward pass of both."""
    steps = _steps(x, w, out)
    base = base_name(operator.name)
    dims = operator.dims
    types = operator.types
    if base in GRADIENTS:
        dims, types = (out, x, w), (operator.type(1),) * 3
    places = CONVOLUTIONS[base]
    values = [""] * (max(places[:4]) + 1)
    values[places.stride] = str([s for s, _ in steps])
    values[places.padding] = str([p for _, p in steps])
    values[places.dilation] = "[1]"
    values[places.groups] = str(x[1] // w[1])
    return Operator(operator.name, dims, types, tuple(values))
