"""Compiled programs kept between processes, of commands and of Python.

JAX's own compilation cache still traces and lowers, which takes longer than loading the
finished program. A program is found again by the sources of this package, the versions
of JAX, the processor, and the shapes of its arguments; whatever cannot be loaded is
compiled anew. A program that came out of JAX's own cache does not survive being written
again: ours are compiled apart from it.
"""

import collections
import contextlib
import functools
import hashlib
import operator
import os
import pickle
import platform
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from ..files import write_bytes_atomic
from ._cache_folder import cache_folder
from ._options import compiler_options


class _Program(NamedTuple):
    """A compiled function from the leaves of its arguments to those of its result."""

    run: Callable[[list[Any]], list[jax.Array]]
    result: Any
    """The result with `jax.ShapeDtypeStruct` in place of its arrays."""
    tree: Any
    """Structure of the result."""


class _Argument(NamedTuple):
    """The leaves of an argument, all of them arrays."""

    leaves: list[Any]
    structure: int
    """Number of its tree with the shapes and types of its leaves (`_STRUCTURES`)."""
    is_local: bool
    """Whether its arrays are on the first device, where a loaded program runs."""


_STRUCTURES: dict[Any, int] = {}
"""Structures that arguments of this process have had."""
_RECORDS: dict[int, tuple[weakref.ref[Any], _Argument]] = {}
"""Leaves of the records that were arguments, by identity: a GPU has 200, and to look at
each takes as long as to run the program."""
_LOADED: dict[Any, _Program] = {}
"""Programs of this process: nothing else remembers those that were read."""
_LOCKS: collections.defaultdict[Any, threading.Lock] = collections.defaultdict(
    threading.Lock
)
"""Of each program: threads that want the same one compile it once."""
_CONFIGURED: Final = threading.RLock()
"""Whether JAX caches is one switch for all threads."""

UNUSED_DAYS: Final = 60
"""Days without use after which the file of a program is deleted."""
MOST_MB: Final = 500
"""MB of all files, unless `DIFFENERGY_CACHE_MB` says otherwise; those used longest ago
make room."""


_MANY: Final = threading.Event()
"""Set where programs of this process are called many times."""


def expect_many_calls(many: bool):
    """Whether the programs of this process are compiled for many calls from here on,
    whatever `once` says: twice as long the first time on a machine, and two to four
    times as fast from then on."""
    _MANY.set() if many else _MANY.clear()


def call_compiled(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    once: bool = True,
    **static: Any,
) -> Any:
    """`function(*arguments, **static)`, by a program that is loaded or compiled once a
    process and kept in the user's cache folder, if that can be had.

    Args:
        function: of a module, so that its name finds its program again; what it takes
            and gives are pytrees of arrays.
        arguments: whatever is no array in them makes a program of its own.
        once: as in `compiler_options`.
        static: options of the function, each of which makes a program of its own; they
            are told apart by their `repr`.
    """
    once = once and not _MANY.is_set()
    parts = [_argument(x) for x in arguments]
    leaves = [leaf for part in parts for leaf in part.leaves]
    usual = _is_usual() and all(part.is_local for part in parts)
    options = repr(sorted(static.items())) if static else ""
    places = usual and tuple(map(os.environ.get, ("XDG_CACHE_HOME", "HOME")))
    structures = tuple(part.structure for part in parts)
    key = (function, structures, once, options, _is_wide(), places)
    program = _LOADED.get(key)
    if program is None:
        with _LOCKS[key]:
            program = _LOADED.get(key)
            if program is None:
                tree = jax.tree.structure(arguments)
                folder = cache_folder() if usual else None
                signature = _signature(leaves, tree, once, static)
                path = folder and folder / _file_name(function, signature)
                whole = functools.partial(function, **static) if static else function
                program, results = _answer(whole, leaves, tree, path, once)
                _LOADED[key] = program
                return jax.tree.unflatten(program.tree, results)
    return jax.tree.unflatten(program.tree, program.run(leaves))


def result_shapes(
    function: Callable[..., Any], arguments: tuple[Any, ...], once: bool = True
) -> Any:
    """Result of `call_compiled` with `jax.ShapeDtypeStruct` in place of its arrays,
    from the file of its program; None where there is none. `arguments` may be shapes.
    """
    folder = cache_folder()
    leaves, tree = jax.tree.flatten(arguments)
    if folder is None or not _is_usual() or not all(map(_is_local, leaves)):
        return None
    path = folder / _file_name(function, _signature(leaves, tree, once))
    try:
        return pickle.loads(path.read_bytes())[1]
    except Exception:  # noqa: BLE001  a stale or broken file costs a trace
        return None


def _signature(
    leaves: list[Any], tree: Any, once: bool, static: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    """What tells programs of one function apart."""
    shapes = tuple((x.shape, x.dtype) for x in leaves)
    return tree, shapes, once, *([repr(sorted(static.items()))] if static else [])


def _is_wide() -> bool:
    """Whether JAX computes in 64 bit."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def _argument(x: Any) -> _Argument:
    """An argument as leaves; a record, which does not change, is looked at once."""
    number = id(x)
    record, argument = _RECORDS.get(number, (None, None))
    if argument is not None and record is not None and record() is x:
        return argument
    plain, tree = jax.tree.flatten(x)
    leaves = [leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf) for leaf in plain]
    form = (tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    structure = _STRUCTURES.setdefault(form, len(_STRUCTURES))
    argument = _Argument(leaves, structure, all(map(_is_local, leaves)))
    if isinstance(x, eqx.Module) and all(map(operator.is_, plain, leaves)):
        forget = functools.partial(_RECORDS.pop, number)
        _RECORDS[number] = (weakref.ref(x, lambda _: forget(None)), argument)
    return argument


def _is_usual() -> bool:
    """Whether JAX compiles as it does by default: a loaded program cannot be
    debugged."""
    c: Any = jax.config
    debugged = c.jax_disable_jit or c.jax_debug_nans
    return not debugged and c.jax_default_device is None


def _is_local(x: Any) -> bool:
    """Whether an array is on the first device."""
    elsewhere = isinstance(x, jax.Array) and not isinstance(x, Tracer)
    return not elsewhere or x.devices() == {jax.devices()[0]}


def _program(run: Callable[[list[Any]], list[jax.Array]], result: Any) -> _Program:
    return _Program(run, result, jax.tree.structure(result))


def _answer(
    function: Callable[..., Any],
    leaves: list[Any],
    tree: Any,
    path: Path | None,
    once: bool,
) -> tuple[_Program, list[jax.Array]]:
    """Program of `function`, and the leaves of what it gives at those of `tree`."""
    old = path and _load(path)
    if old:
        try:
            return old, jax.block_until_ready(old.run(leaves))
        except jax.errors.JaxRuntimeError:  # it loads, but lacks a part
            pass
    results = []

    def flat(leaves: list[Any]) -> list[Any]:
        outputs, shape = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
        forms = [
            jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in outputs
        ]
        results.append(jax.tree.unflatten(shape, forms))
        return outputs

    run = jax.jit(flat, compiler_options=compiler_options(once))
    if path is None:
        outputs = run(leaves)
        return _program(run, results[0]), outputs
    with _apart_from_jax(path.parent):
        run = run.lower(leaves).compile()
    _save(path, run, results[0])
    return _program(run, results[0]), run(leaves)


@contextlib.contextmanager
def _apart_from_jax(folder: Path) -> Iterator[None]:
    """Compiles without JAX's own cache where that is in `folder` too; a cache that the
    caller keeps elsewhere is the caller's, and what cannot be loaded out of ours then
    costs a compilation."""
    with _CONFIGURED:
        shared = jax.config.jax_compilation_cache_dir == str(folder)  # pyright: ignore[reportAttributeAccessIssue]
        if shared:
            try:
                jax.config.update("jax_compilation_cache_dir", None)
                compilation_cache.reset_cache()
                yield
            finally:
                jax.config.update("jax_compilation_cache_dir", str(folder))
    if not shared:
        yield


def _file_name(function: Callable[..., Any], signature: tuple[Any, ...]) -> str:
    """Name of a program's file."""
    tree, *rest = signature
    parts = (function.__module__, function.__qualname__, str(tree), *rest)
    about = (_sources(), jax.__version__, _is_wide(), _machine(), parts)
    return f"{hashlib.sha256(repr(about).encode()).hexdigest()}.bin"


@functools.cache
def _machine() -> tuple[str, ...]:
    """The host and the device that programs run on."""
    host = (platform.node(), platform.processor(), platform.machine())
    return *host, jax.default_backend(), jax.devices()[0].device_kind


@functools.cache
def _sources() -> str:
    """Digest of every source file of this package: the same in another checkout and
    after a change is taken back."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(package)} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _load(path: Path) -> _Program | None:
    """The program at `path`; None if there is none that this JAX can load."""
    try:
        program, result = pickle.loads(path.read_bytes())
        os.utime(path)  # when it was used last
        return _program(serialize_executable.deserialize_and_load(*program), result)
    except Exception:  # noqa: BLE001  a stale or broken file costs a compilation
        return None


def _save(path: Path, program: Any, result: Any) -> None:
    """Keep a program; a folder that cannot be written is no error."""
    try:
        content = serialize_executable.serialize(program)
        write_bytes_atomic(path, pickle.dumps((content, result)))
        _make_room(path.parent)
    except Exception:  # noqa: BLE001
        return


def _make_room(folder: Path) -> None:
    """Deletes files of programs that nothing has used for `UNUSED_DAYS`, and those used
    longest ago beyond the MB of all."""
    try:
        left = 1e6 * float(os.environ.get("DIFFENERGY_CACHE_MB", MOST_MB))
    except ValueError as error:
        warnings.warn(
            f"`DIFFENERGY_CACHE_MB`: {error}; give a number of MB, such as 500",
            stacklevel=2,
        )
        left = 1e6 * MOST_MB
    oldest = time.time() - 86400 * UNUSED_DAYS
    with os.scandir(folder) as entries:
        files = [(x.stat(), x.path) for x in entries if x.name.endswith(".bin")]
    for about, path in sorted(files, key=lambda x: -x[0].st_mtime):
        left -= about.st_size
        if left < 0 or about.st_mtime < oldest:
            with contextlib.suppress(OSError):  # another process has deleted it
                os.unlink(path)
