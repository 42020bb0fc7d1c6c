"""Functions whose derivatives are compiled with our own compiler options.

A `jax.jit` inside somebody else's `jax.grad` may not choose compiler options, and with
XLA's own it compiles three to four times as long. `compiled_whole` calls a primitive
that stays whole under the transformations of JAX: where one of them evaluates it, what
it is by then (a tangent, a pullback, a map of one) is one program, compiled as
`compiler_options(once=True)` says. Its rules are public transformations of the function
itself, so that derivatives of any order and mode are those of the function.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ._options import compiler_options
from ._programs import call_compiled, result_shapes

_MAX_PROGRAMS: Final = 256
"""Functions whose programs are kept; those used longest ago make room."""


def compiled_whole(
    function: Callable[..., Any], arguments: Sequence[Any], persistent: bool = False
) -> Any:
    """`function(*arguments)`, trees of arrays in and out; `function` depends on nothing
    else, and functions that are equal (and hash alike) share their programs.

    Args:
        function: pure, differentiable.
        arguments: trees of arrays.
        persistent: whether programs are those of `call_compiled`, which later processes
            load; `function` is then of a module, so that its name finds them.
    """
    leaves, tree = jax.tree.flatten(tuple(arguments))
    shapes = tuple(ShapedArray(jnp.shape(x), jnp.result_type(x)) for x in leaves)
    width = jnp.result_type(float)
    traced, result = _traced(function, tree, shapes, width, persistent)
    return jax.tree.unflatten(result, _bind(traced, leaves))


@dataclasses.dataclass(frozen=True, eq=False)
class _Function:
    """A function of arrays, with the shapes and types of its results. The same one is
    made once (by the functions below), so that its program is found again."""

    call: Callable[..., list[Array]]
    results: tuple[ShapedArray, ...]
    name: str | None = None
    """Finds its programs in later processes; None: they are this process's alone."""
    run: Callable[..., list[Array]] | None = None
    """Evaluates it by a program that it shares with others."""

    def derived(
        self, call: Callable[..., list[Array]], results: Any, how: str
    ) -> "_Function":
        """What a transformation (`how`) turns this function into."""
        name = self.name and f"{how} of {self.name}"
        if name:
            call.__module__, call.__qualname__ = __name__, name
        return _Function(call, tuple(results), name)


@functools.lru_cache(_MAX_PROGRAMS)
def _traced(
    function: Callable[..., Any],
    tree: Any,
    shapes: tuple[ShapedArray, ...],
    _width: Any,
    persistent: bool,
) -> tuple[_Function, Any]:
    """What `function` does with arguments of these `shapes`, traced at most once, and
    the tree that it gives."""
    leaves = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in shapes]
    abstract = jax.tree.unflatten(tree, leaves)

    @functools.cache
    def trace() -> Any:
        return jax.make_jaxpr(function, return_shape=True)(*abstract)

    # tracing takes seconds, and a process that loads all programs needs none
    result = result_shapes(function, abstract) if persistent else None
    if result is None:
        result = trace()[1]
    forms, shape = jax.tree.flatten(result)
    results = tuple(ShapedArray(x.shape, x.dtype) for x in forms)

    def call(*values: Array) -> list[Array]:
        return jaxpr_as_fun(trace()[0])(*values)

    def run(*values: Array) -> list[Array]:
        arguments = jax.tree.unflatten(tree, values)
        return jax.tree.leaves(call_compiled(function, arguments))

    if not persistent:
        return _Function(call, results), shape
    name = repr((function.__module__, function.__qualname__, str(tree), shapes))
    return _Function(call, results, name, run), shape


@functools.lru_cache(_MAX_PROGRAMS)
def _tangent(function: _Function, moved: tuple[bool, ...]) -> _Function:
    """Tangents of a function's real results. Takes all arguments, then the tangents of
    those that `moved`."""

    def call(*arguments: Array) -> list[Array]:
        values, slopes = arguments[: len(moved)], arguments[len(moved) :]

        def of_moved(*some: Array) -> list[Array]:
            outputs = function.call(*_replaced(values, moved, some))
            return [x for x in outputs if _is_real(x)]

        return jax.jvp(of_moved, tuple(_at(moved, values)), slopes)[1]

    real = (x for x in function.results if _is_real(x))
    return function.derived(call, real, f"tangent {moved}")


@functools.lru_cache(_MAX_PROGRAMS)
def _transposed(
    function: _Function,
    linear: tuple[ShapedArray | None, ...],
    live: tuple[bool, ...],
) -> _Function:
    """Transpose of a function in the arguments that have a shape in `linear`. Takes the
    others, then the cotangents of those results that are `live`."""
    known = [x is None for x in linear]
    results = tuple(x for x in linear if x is not None)

    def call(*arguments: Array) -> list[Array]:
        values = _replaced(linear, known, arguments[: sum(known)])

        def of_linear(*some: Array) -> list[Array]:
            outputs = function.call(*_replaced(values, [not x for x in known], some))
            return _at(live, outputs)

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results]
        pull = jax.linear_transpose(of_linear, *shapes)
        return list(pull(list(arguments[sum(known) :])))

    return function.derived(call, results, f"transpose {linear, live}")


@functools.lru_cache(_MAX_PROGRAMS)
def _mapped(function: _Function, axes: tuple[int | None, ...], size: int) -> _Function:
    """A function at `size` points, which stand on the `axes` of its arguments."""
    call = jax.vmap(function.call, in_axes=axes, axis_size=size)
    results = (ShapedArray((size, *x.shape), x.dtype) for x in function.results)
    return function.derived(call, results, f"map {axes, size}")


def _at(places: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """The `values` at the `places`."""
    return [x for x, here in zip(values, places, strict=True) if here]


def _replaced(
    values: Sequence[Any], places: Sequence[bool], some: Sequence[Any]
) -> list[Any]:
    """`values` with those at the `places` replaced by `some`."""
    new = iter(some)
    return [next(new) if here else x for x, here in zip(values, places, strict=True)]


def _is_real(x: Any) -> bool:
    """Whether an array can have a tangent."""
    return jnp.issubdtype(x.dtype, jnp.inexact)


# --- the primitive and its rules

_estimate: Final = Primitive("estimate")
_estimate.multiple_results = True


def _bind(function: _Function, arguments: Sequence[Any]) -> list[Any]:
    return _estimate.bind(*arguments, function=function)


@functools.lru_cache(_MAX_PROGRAMS)
def _program(function: _Function) -> Any:
    """The compiled function."""
    return jax.jit(function.call, compiler_options=compiler_options(once=True))


@_estimate.def_impl
def _evaluate(*arguments: Any, function: _Function) -> list[Array]:
    if function.run is not None:
        return function.run(*arguments)
    if function.name is not None:
        return call_compiled(function.call, arguments)
    return _program(function)(*arguments)


@_estimate.def_abstract_eval
def _shapes(*_: Any, function: _Function) -> list[ShapedArray]:
    return list(function.results)


def _jvp(
    values: Sequence[Any], slopes: Sequence[Any], *, function: _Function
) -> tuple[list[Any], list[Any]]:
    outputs = _bind(function, values)
    moved = tuple(not isinstance(x, ad.Zero) for x in slopes)
    tangents = iter(_bind(_tangent(function, moved), [*values, *_at(moved, slopes)]))
    none = (ad.Zero(ShapedArray(x.shape, jax.dtypes.float0)) for x in outputs)
    return outputs, [
        next(tangents) if _is_real(x) else zero
        for x, zero in zip(outputs, none, strict=True)
    ]


def _transpose(
    cotangents: Sequence[Any], *arguments: Any, function: _Function
) -> list[Any]:
    linear = tuple(
        ShapedArray(x.aval.shape, x.aval.dtype) if ad.is_undefined_primal(x) else None
        for x in arguments
    )
    live = tuple(not isinstance(x, ad.Zero) for x in cotangents)
    known = _at([x is None for x in linear], arguments)
    transposed = _transposed(function, linear, live)
    outputs = iter(_bind(transposed, [*known, *_at(live, cotangents)]))
    return [None if x is None else next(outputs) for x in linear]


def _map(
    arguments: Sequence[Any], axes: Sequence[int | None], *, function: _Function
) -> tuple[list[Any], list[int]]:
    sizes = (
        x.shape[axis]
        for x, axis in zip(arguments, axes, strict=True)
        if axis is not None
    )
    outputs = _bind(_mapped(function, tuple(axes), next(sizes)), arguments)
    return outputs, [0] * len(outputs)


ad.primitive_jvps[_estimate] = _jvp
ad.primitive_transposes[_estimate] = _transpose
batching.primitive_batchers[_estimate] = _map
mlir.register_lowering(
    _estimate,
    mlir.lower_fun(
        lambda *arguments, function: function.call(*arguments), multiple_results=True
    ),
)
