"""Compiled programs kept between runs of the command line.

JAX's own compilation cache still traces and lowers, which takes longer than loading the
finished program. A program is found again by the sources of this package, the versions
of JAX, the processor, and the shapes of its arguments; whatever cannot be loaded is
compiled anew. A program that came out of JAX's own cache does not survive being written
again: ours are compiled apart from it.
"""

import contextlib
import functools
import hashlib
import pickle
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from ..compiling import compiler_options
from ..files import write_bytes_atomic
from ._jax_setup import cache_folder


def run(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    folder: Path | None,
    options: dict[str, bool | int],
) -> list[jax.Array]:
    """Leaves of `function(*arguments)`, by the program in `folder` if it is there."""
    leaves, tree = jax.tree.flatten(arguments)

    def flat(leaves: list[Any]) -> list[Any]:
        return jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves)))

    path = folder and folder / _name(function, str(tree), leaves, options)
    return _answer(flat, leaves, path, options)[1]


class Programs:
    """Programs for functions that are called again and again, each loaded once a
    process.

    A function gives a tree of tuples, lists and dicts of arrays (named tuples too),
    which comes back whole. `options`: of the compiler, by function.
    """

    def __init__(
        self,
        folder: Path | None,
        options: Callable[[Callable[..., Any]], dict[str, bool | int]],
    ):
        self._folder, self._options = folder, options

    def __call__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """`function(*arguments)`."""
        leaves, tree = jax.tree.flatten(arguments)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        options, folder = self._options(function), self._folder
        known = (function, tree, shapes, tuple(options.items()), folder)
        if known in _LOADED:
            return _LOADED[known](leaves)

        def whole(leaves: list[Any]) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        path = folder and folder / _name(function, f"whole {tree}", leaves, options)
        program, found = _answer(whole, leaves, path, options)
        _LOADED[known] = program
        return found


def kept(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """`function(*arguments)`, compiled for a few calls and kept in the user's cache;
    what a function may give: see `Programs`."""
    programs = Programs(cache_folder(), lambda _: compiler_options(once=True))
    return programs(function, arguments)


_LOADED: dict[Any, Callable[..., Any]] = {}
"""Programs of this process: nothing else remembers those that were read."""


def _answer(
    function: Callable[[list[Any]], Any],
    leaves: list[Any],
    path: Path | None,
    options: dict[str, bool | int],
) -> tuple[Callable[..., Any], Any]:
    """Program of `function` and what it gives at `leaves`."""
    if path is None:
        program = jax.jit(function, compiler_options=options)
        return program, program(leaves)
    kept = _load(path)
    if kept is not None:
        try:
            return kept, jax.block_until_ready(kept(leaves))
        except jax.errors.JaxRuntimeError:  # it loads, but lacks a part
            pass
    with _apart_from_jax(path.parent):
        program = jax.jit(function, compiler_options=options).lower(leaves).compile()
    _save(path, program)
    return program, program(leaves)


@contextlib.contextmanager
def _apart_from_jax(folder: Path) -> Iterator[None]:
    """Compiles without JAX's own cache where that is in `folder` too; a cache that the
    caller keeps elsewhere is the caller's, and what cannot be loaded out of ours then
    costs a compilation."""
    if jax.config.jax_compilation_cache_dir != str(folder):  # pyright: ignore[reportAttributeAccessIssue]
        yield
        return
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", str(folder))


def _name(
    function: Callable[..., Any],
    tree: str,
    leaves: list[Any],
    options: dict[str, bool | int],
) -> str:
    """Name of the file of a program."""
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    return f"{_key(function.__qualname__, tree, shapes, options)}.bin"


def _key(*parts: Any) -> str:
    machine = (platform.node(), platform.processor(), platform.machine())
    about = (_sources(), jax.__version__, jax.config.jax_enable_x64, machine, parts)  # pyright: ignore[reportAttributeAccessIssue]
    return hashlib.sha256(repr(about).encode()).hexdigest()


@functools.cache
def _sources() -> tuple[tuple[str, int, int], ...]:
    """Every file of this package: its size, and when it changed."""
    package = Path(__file__).parents[1]
    files = ((x.relative_to(package), x.stat()) for x in sorted(package.rglob("*.py")))
    return tuple((str(name), x.st_size, x.st_mtime_ns) for name, x in files)


def _load(path: Path) -> Any:
    """The program at `path`; None if there is none that this JAX can load."""
    try:
        return serialize_executable.deserialize_and_load(
            *pickle.loads(path.read_bytes())
        )
    except Exception:  # noqa: BLE001  a stale or broken file costs a compilation
        return None


def _save(path: Path, program: Any) -> None:
    """Keep a program; a folder that cannot be written is no error."""
    try:
        write_bytes_atomic(path, pickle.dumps(serialize_executable.serialize(program)))
    except Exception:  # noqa: BLE001
        return
