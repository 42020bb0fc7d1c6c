"""`trace`, `trace_listing`: the kernels of a JAX function, from its jaxpr."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import jax
import numpy as np

from ...workload import (
    Kernel,
    Listing,
    Workload,
    assemble,
    merge_kernels,
    normalise_kernel,
)
from .flat import Program, Step, flatten, split_axes
from .moving import FREE, Regions, moving_row
from .opaque import opaque_row
from .products import MATRIX, attentions, matrix_flop, matrix_row

_CUDNN: Final = 91300
"""Version of cuDNN (9.13) where the machine has none."""


def trace(
    fun: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    trips: int | Sequence[int] | None = None,
    fuse: bool | Literal["attention"] = True,
    **kwargs: Any,
) -> Workload:
    """Kernels of a JAX function as a workload that `estimate` takes.

    Nothing runs: the function is traced as `jax.jit` does, through `scan`, `cond`,
    `vmap`, `grad`, `jit`, `checkpoint`. Products and convolutions are rows of their
    own, maps fuse as XLA fuses them. Inside of `shard_map` it is the program of one GPU.

    Args:
        fun: function of arrays, as it would be jitted; one step of training too.
        *args: its arguments: arrays or `jax.ShapeDtypeStruct` in any pytree; what is
            no array (functions, Python numbers) is kept as it is.
        name: of the workload [that of the function].
        trips: how often `while` loops run: of each, in order, or one number for all
            [once, with a note].
        fuse: maps join their neighbours in one kernel, as XLA does; False: each is a
            kernel; "attention": attention written in JAX is one kernel, too.
        **kwargs: more arguments of `fun`.

    Returns:
        The workload. `estimate` of it can be differentiated in every number of the GPU.

    Example:

        >>> import jax.numpy as jnp
        >>> import diffenergy as de
        >>> work = de.trace(lambda x, w: jnp.tanh(x @ w), jnp.ones((8, 4)), jnp.ones((4, 2)))
        >>> work.num_rows
        2
    """  # noqa: E501
    listing = trace_listing(fun, *args, name=name, trips=trips, fuse=fuse, **kwargs)
    return assemble([listing])


def trace_listing(
    fun: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    trips: int | Sequence[int] | None = None,
    fuse: bool | Literal["attention"] = True,
    **kwargs: Any,
) -> Listing:
    """Kernels of a JAX function as a listing, in order of their first run.

    Args:
        fun: function of arrays.
        *args: its arguments (see `trace`).
        name: of the workload [that of the function].
        trips: how often `while` loops run.
        fuse: what joins in one kernel (see `trace`).
        **kwargs: more arguments of `fun`.

    Returns:
        The listing; `kernels` are plain dicts, `notes` say what was assumed.

    Raises:
        ValueError: for a function that launches no kernel, and for one whose arrays
            XLA would have to split over GPUs.
    """
    if fuse not in (True, False, "attention"):
        raise ValueError(
            f"`fuse` is {fuse!r}; allowed are True, False and 'attention'; choose one "
            "of them."
        )
    closed = _jaxpr(fun, args, kwargs)
    program = flatten(closed, trips, matrix_flop)
    label = name or getattr(fun, "__name__", None) or type(fun).__name__
    _refuse_split(program, label, jax.tree.leaves((args, kwargs)))
    notes = dict(program.notes)
    kernels = _rows(program, fuse, notes)
    if not kernels:
        raise ValueError(
            f"`fun` is {label}, which launches no kernel; give a function of arrays."
        )
    return Listing(
        label, mode="forward", kernels=merge_kernels(kernels), dispatch="graph",
        notes=tuple(notes),
    )  # fmt: skip


def _refuse_split(program: Program, label: str, arguments: Sequence[Any]):
    """Refuses a program that XLA splits over GPUs by itself: JAX can lower it without
    these GPUs, but only a compilation for them chooses parts and collectives."""
    split = dict(program.split)
    for x in arguments:
        split |= split_axes(getattr(x, "sharding", None))
    outside = [x for x in program.steps if not x.mesh and x.name not in FREE]
    if split and outside:
        raise ValueError(
            f"`fun` is {label}, whose arrays are split over "
            f"{math.prod(split.values())} GPUs (axis {', '.join(split)}) and whose "
            f"`{outside[0].name}` stands outside of `shard_map`; which parts and "
            "collectives XLA chooses is not known without compiling for these "
            "GPUs; write it with `jax.shard_map`, or give shapes of one GPU's part "
            "without a sharding."
        )


def _jaxpr(fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Jaxpr in which arrays are arguments and all else is as it is."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
    dynamic = [i for i, x in enumerate(leaves) if _is_array(x)]

    def of_arrays(*arrays: Any) -> Any:
        filled = list(leaves)
        for i, x in zip(dynamic, arrays, strict=True):
            filled[i] = x
        positional, named = jax.tree.unflatten(tree, filled)
        results = jax.tree.leaves(fun(*positional, **named))
        return [x for x in results if isinstance(x, jax.Array | np.ndarray)]

    with _as_if_with_cudnn():
        return jax.make_jaxpr(of_arrays)(*(_shape(leaves[i]) for i in dynamic))


@contextlib.contextmanager
def _as_if_with_cudnn() -> Iterator[None]:
    """JAX asks for cuDNN's version before it traces an attention of cuDNN, which a
    machine without a GPU does not have; nothing runs here."""
    try:
        from jax._src.cudnn import fused_attention_stablehlo as attention

        stated = attention.check_cudnn_version
    except (ImportError, AttributeError):  # of a JAX that asks elsewhere
        yield
        return

    def version() -> int:
        try:
            return stated()
        except RuntimeError:
            return _CUDNN

    attention.check_cudnn_version = version
    try:
        yield
    finally:
        attention.check_cudnn_version = stated


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _shape(x: Any) -> Any:
    """Shape and type alone, so that nothing is moved; keys stay as they are."""
    return jax.ShapeDtypeStruct(np.shape(x), x.dtype)


def _rows(
    program: Program, fuse: bool | Literal["attention"], notes: dict[str, None]
) -> list[Kernel]:
    """Rows of all steps; a fused kernel stands where its last step does."""
    calls = attentions(program, notes)
    if calls and fuse == "attention":
        notes[
            "attention written in JAX is priced as one kernel, as `fuse` says; XLA "
            "alone writes its scores to memory"
        ] = None
    elif calls:
        calls = []
        notes[
            "attention written in JAX is priced as XLA runs it: its scores are written "
            "to memory, the softmax is kernels of its own; with fuse='attention' as "
            "one kernel"
        ] = None
    carriers = {x.carrier: x.row for x in calls}
    inside = frozenset(step for x in calls for step in x.inside)
    claimed = inside | frozenset(carriers)
    regions = Regions(program, claimed, bool(fuse))
    last = {number: steps[-1] for number, steps in regions.steps.items()}
    transposed = _moved_transposes(program, regions)
    kernels = []
    for step in program.steps:
        if step in carriers:
            row = carriers[step]
        elif step in inside:
            continue
        elif step in regions.owner:
            number = regions.owner[step]
            row = regions.row(number) if last[number] is step else None
        else:
            row = _row(step, transposed, notes)
        if row is not None and step.count > 0:
            where = f"`{step.name}`"
            kernels.append(normalise_kernel({**row, "count": step.count}, where))
    return kernels


def _row(
    step: Step, transposed: frozenset[Step], notes: dict[str, None]
) -> dict[str, Any] | None:
    """Row of a step that is no part of a fused kernel."""
    if step in transposed:
        return moving_row(dataclasses.replace(step, name="concatenate"))
    if step.name in FREE:
        return None
    if step.name in MATRIX:
        sizes = [x.size for x in (*step.inputs[:2], *step.outputs)]
        return matrix_row(step, notes) if min(sizes) else None
    return moving_row(step) or opaque_row(step, notes)


def _moved_transposes(program: Program, regions: Regions) -> frozenset[Step]:
    """Transposes that move data: those that leave the program. Fused kernels and
    products read their operands where they lie, and products write in either order."""
    products = {x for s in program.steps if s.name in MATRIX for x in s.outputs}
    return frozenset(
        step
        for step in program.steps
        if step.name == "transpose"
        and step.outputs[0] in program.results
        and regions.root(step.inputs[0]) not in products
    )
