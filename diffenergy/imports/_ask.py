"""`read`: kernel listings of a trace, graph or report of any kind."""

import contextlib
import dataclasses
import gc
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..hardware import read_gpu
from ..requests import accepts
from ..workload import Dispatch, Listing, load_model
from ._kind import kind_of, not_readable
from ._launches import Graph, Trace
from ._request import ImportRequest
from ._result import ImportResult, of_graph, of_trace
from ._rows import replay, sharing
from ._rows.assign import listing_of, match_rows

_READERS: Final = {
    "kineto": ("kineto", "a profiler's trace"),
    "onnx": ("onnx_graph", "an ONNX graph"),
    "nsys_sqlite": ("nsys", "a report of Nsight Systems"),
    "nsys_csv": ("nsys", "a report of Nsight Systems"),
    "ncu": ("ncu", "a table of Nsight Compute"),
    "chakra": ("chakra", "a Chakra trace"),
}
"""Kinds of files that are imported: module of `_files` that reads one, and its name."""
_ENDINGS: Final = (
    ".gz", ".onnx", ".sqlite", ".csv", ".et", ".json", ".pb", ".trace", ".db",
)  # fmt: skip
"""Endings of files that may be imported; others are looked at, too."""


def is_listing(path: str) -> bool:
    """Whether `path` is an existing file that `read` imports: a trace, a graph or a
    report; decided by its content.

    A kernel listing, a model's config and measured runs are none.
    """
    if not Path(path).is_file():
        return False
    return kind_of(path) in _READERS


def refuse_file(path: str, *kinds: str) -> None:
    """Raises `ValueError`, with what to do, if `path` is a file of one of these kinds:
    "listing" (of kernels), "measurements" (a table), or "program" (all that `read`
    imports)."""
    if not Path(path).is_file():
        return
    kind = kind_of(path)
    advice = {
        "measurements": "a table; measured runs are for `evaluate` and `fit`.",
        "listing": "a kernel listing; give it to `estimate`, or here as `--workloads`.",
    }
    if kind in _READERS:
        what = f"{_READERS[kind][1]}; give it to `import`, `estimate` or `evaluate`."
        kind, advice = "program", {"program": what}
    if kind in advice and kind in kinds:
        raise ValueError(f"{path} is {advice[kind]}")


class _Read(ImportRequest):
    """A file and how it is read."""

    path: str = dataclasses.field(kw_only=False)


@accepts(_Read, "import")
def read(request: _Read) -> ImportResult:
    """Kernel listings of a file: a PyTorch or Chrome trace, an ONNX graph, a report of
    Nsight Systems (SQLite, CSV) or Nsight Compute (CSV), a Chakra trace.

    `path`: the file, packed by gzip or not; its content decides the kind.

    Raises:
        ValueError: for a file that cannot be read, in one sentence.
    """
    path, progress = request.path, request.progress
    kind = kind_of(path)
    if kind not in _READERS:
        raise _not_imported(path, kind)
    named = None if request.gpu is None else read_gpu(request.gpu).name
    request = dataclasses.replace(request, gpu=named)
    _check(request, kind, path)
    module = importlib.import_module(f".._files.{_READERS[kind][0]}", __name__)
    with _uncollected():
        content: Trace | Graph = module.read(path, request)
        if progress:
            size = Path(path).stat().st_size
            progress(size, size)
        if isinstance(content, Graph):
            return of_graph(path, content, named)
        return _result_of_trace(path, content, request)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without searches for cycles, of which events have none: the millions of records
    that stay cause one after another, a third of the time of a large trace."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def import_listing(path: str, **options: Any) -> list[Listing]:
    """Kernel listings of a file of any kind, one a GPU; `options` as of `read`.

    Args:
        path: a trace, graph or report (see `read`).
        **options: `gpu`, `model`, `phase`, `window`, `dims`, `stack`.

    Raises:
        ValueError: for a file that cannot be read, in one sentence.
    """
    return read(path, **options).listings


def _result_of_trace(path: str, trace: Trace, request: ImportRequest) -> ImportResult:
    """Result of a trace: launches with their times."""
    listed = None
    if request.model is not None and replay.is_replay(trace.launches):
        dims = request.dims or {}
        listed = replay.align(trace.launches, request.model, dims, trace.world)
        trace = dataclasses.replace(trace, notes=(*trace.notes, *listed.notes))
    elif request.model is not None:
        sharing.sizes_of(request.model)
        if request.dims:
            raise ValueError(
                f"`dim` is given, but the operators of {path} state its sizes; leave "
                "it out."
            )
    matches = match_rows(trace, request.model, listed)
    name = Path(path).name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    devices = sorted({launch.device for launch in trace.launches})
    several = len(devices) > 1
    called = sum(launch.operator is not None for launch in trace.launches)
    most = called > len(trace.launches) / 2  # launched by operators, so one by one
    dispatch: Dispatch | None = "eager" if most else None
    listings = [
        dataclasses.replace(
            listing_of(
                f"{name}/gpu{device}" if several else name,
                trace, matches, device, request.phase,
            ),
            dispatch=dispatch,
        )
        for device in devices
    ]  # fmt: skip
    return of_trace(path, trace, matches, listings, request.gpu)


def _check(request: ImportRequest, kind: str, path: str):
    """Raises `ValueError` for options that a file of this kind does not take."""
    if request.window is not None and kind != "kineto":
        raise ValueError(
            f"`window` is given, but {path} has no times to choose from; leave it out."
        )
    for name in ("dims", "stack"):
        named = set(getattr(request, name) or ())
        if name == "dims" and request.model and named <= {*replay.DIMS}:
            continue  # of a replayed graph
        if named and kind != "onnx":
            word = "dim" if name == "dims" else name
            raise ValueError(
                f"`{word}` is given, but {path} is no graph; leave it out."
            )
    if request.model is not None:
        if kind == "onnx":
            raise ValueError(
                "`model` is given, but a graph has its own sizes; leave it out."
            )
        load_model(request.model)


def _not_imported(path: str, kind: str | None) -> ValueError:
    """Error for a file of a kind that is not imported."""
    advice = {
        "listing": "a kernel listing already; give it to `estimate`.",
        "config": "a model's config; give it to `estimate`.",
        "measurements": "a table, but no report of Nsight; measured runs are for "
        "`evaluate` and `fit`.",
    }
    return (
        ValueError(f"{path} is {advice[kind]}")
        if kind in advice
        else not_readable(path)
    )
