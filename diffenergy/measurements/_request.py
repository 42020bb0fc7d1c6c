"""`TableRequest`: how files of measured runs are read."""

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from ..requests import Flag, Request


def _texts(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)


def _file(name: str) -> tuple[str, ...]:
    return (name,)


def _meter(flag: str, name: str) -> Any:
    """The object `meter` of a Python file."""
    if not Path(name).is_file():
        raise ValueError(f"`{flag}` is '{name}', which is no file; check the path.")
    try:
        meter = runpy.run_path(name).get("meter")
    except Exception as error:
        raise ValueError(
            f"`{flag}` is '{name}', which does not run ({error}); correct the file."
        ) from None
    if meter is None:
        raise ValueError(
            f"`{flag}` is '{name}', which defines no `meter`; let it define one, a "
            "subclass of `measurements.Meter`."
        )
    return meter


class TableRequest(Request):
    """How files of measured runs are read."""

    workloads: Annotated[
        str | Sequence[Any] | Mapping[str, Any],
        Flag(
            "Listing files (.jsonl); repeatable.",
            "FILE",
            _texts,
            many=True,
            files=_file,
        ),
    ] = ()
    gpu: Annotated[
        str | None,
        Flag("Replaces the column gpu; GPU of a service.", "NAME", files=_file),
    ] = None
    op: Annotated[str | None, Flag("Replaces the column op.", "OP")] = None
    meter: Annotated[
        Any | None,
        Flag(
            "Python file that defines `meter`, how rows were read [steady state].",
            "FILE.py",
            _meter,
            files=_file,
        ),
    ] = None
