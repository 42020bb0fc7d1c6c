"""`at_points`: one function of workload, GPU and operating point at many of them.

Questions of one structure (shapes of all arrays) are rows of one compiled program,
whatever their numbers. What all of them share, such as the workload of a sweep over
clocks, is handed over once; the rest is stacked.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import jax
import numpy as np

from ..compiling import call_compiled
from ..workload import pad_size
from ._estimate import estimate_once

_ROWS: Final = 64
"""Questions of a call. Fewer of one workload are filled up to the next `pad_size`; of
several always to all of these, as lists make any number of them."""
Question = tuple[Any, ...]
"""The arguments of a function, mostly (workload, GPU, point): trees of arrays."""


class Interrupted(Exception):
    """Ctrl-C came before a question was answered."""

    def __init__(self):
        super().__init__("interrupted before it was computed.")


def at_points(
    questions: Sequence[Question | Exception],
    function: Callable[..., Any] = estimate_once,
    progress: Callable[[int, int], object] | None = None,
    often: bool = False,
) -> list[Any]:
    """`function` of every question, on the host, in the order of the questions.

    A question that is an exception, the reason why it cannot be asked, is its own
    answer. So is `Interrupted` where Ctrl-C ended the work, if any question was
    answered before.

    Args:
        questions: arguments of `function`; an argument that many questions share
            should be the same object in all of them.
        function: of a module, pure [`estimate_once`]; a tree of arrays.
        progress: what to call after each call of a program.
        often: whether the same shapes come often enough for the compiler to optimise.

    Raises:
        KeyboardInterrupt: Ctrl-C before the first answer.
    """
    answers: list[Any] = list(questions)
    valid = [i for i, x in enumerate(questions) if not isinstance(x, Exception)]
    left = dict.fromkeys(valid)
    try:
        for rows, results in _priced(questions, valid, function, not often):
            for i, answer in zip(rows, results, strict=True):
                answers[i] = answer
                del left[i]
            if progress:
                progress(len(valid) - len(left), len(valid))
    except KeyboardInterrupt:
        if len(left) == len(valid):
            raise
        for i in left:
            answers[i] = Interrupted()
    return answers


def stacked(answers: Sequence[Any]) -> Any:
    """Answers of one structure as one, on a leading axis. Raises the first reason why
    there is no answer, `KeyboardInterrupt` for `Interrupted`."""
    for answer in answers:
        if isinstance(answer, Interrupted):
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
    return jax.tree.map(lambda *x: np.stack(x), *answers)


def unstacked(many: Any) -> list[Any]:
    """Split a record along its leading axis, such as an `OperatingPoint` of several."""
    leaves, tree = jax.tree.flatten(many)
    columns = [np.asarray(leaf) for leaf in leaves]
    return [jax.tree.unflatten(tree, row) for row in zip(*columns, strict=True)]


def _priced(
    questions: Sequence[Any],
    valid: Sequence[int],
    function: Callable[..., Any],
    once: bool,
) -> Iterator[tuple[Sequence[int], list[Any]]]:
    """Places of questions and their answers, a call of a program each; those of one
    structure one after the other."""
    for group in _alike(questions, valid):
        columns = zip(*(questions[i] for i in group), strict=True)
        axes = tuple(None if _is_one(column) else 0 for column in columns)
        if not any(axis == 0 for axis in axes):  # one question, or the same again
            results = call_compiled(function, questions[group[0]], once)
            yield group, [jax.tree.map(np.asarray, results)] * len(group)
            continue
        program = _mapped(function, axes)
        full = axes[0] == 0 or len(group) > _ROWS
        size = _ROWS if full else pad_size(len(group))
        for first in range(0, len(group), size):
            rows = group[first : first + size]
            filled = [*rows, *[rows[-1]] * (size - len(rows))]
            columns = zip(*(questions[i] for i in filled), strict=True)
            arguments = tuple(
                column[0] if axis is None else stacked(column)
                for axis, column in zip(axes, columns, strict=True)
            )
            results = call_compiled(program, arguments, once)
            yield rows, unstacked(results)[: len(rows)]


def _alike(questions: Sequence[Any], valid: Sequence[int]) -> Iterable[list[int]]:
    """Places of questions of the same structure."""
    if len(valid) == 1:
        return [[*valid]]
    structures: dict[int, Any] = {}  # by identity: most arguments come many times
    groups: dict[Any, list[int]] = {}
    for i in valid:
        for x in questions[i]:
            if id(x) not in structures:
                structures[id(x)] = _structure(x)
        groups.setdefault(tuple(structures[id(x)] for x in questions[i]), []).append(i)
    return groups.values()


def _structure(x: Any) -> tuple[Any, ...]:
    """Key of the program that a tree of arrays needs: structure, shapes, types."""
    leaves, tree = jax.tree.flatten(x)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def _is_one(column: Sequence[Any]) -> bool:
    """Whether an argument is the same in all questions."""
    return all(x is column[0] for x in column)


@functools.cache
def _mapped(
    function: Callable[..., Any], axes: tuple[int | None, ...]
) -> Callable[..., Any]:
    """`function` over rows, by a name that finds its program (`call_compiled`)."""

    def each(*arguments: Any) -> Any:
        return jax.vmap(function, in_axes=axes)(*arguments)

    each.__module__ = function.__module__
    each.__qualname__ = f"{function.__qualname__} over {axes}"
    return each
