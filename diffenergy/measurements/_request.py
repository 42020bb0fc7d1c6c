"""`TableRequest`: how files of measured runs are read."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..requests import Flag, Request


def _texts(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)


def _file(name: str) -> tuple[str, ...]:
    return (name,)


class TableRequest(Request):
    """What files of measured runs leave open."""

    workloads: Annotated[
        str | Sequence[Any] | Mapping[str, Any],
        Flag("Listings (.jsonl); repeatable.", "FILE", _texts, many=True, files=_file),
    ] = ()
    gpu: Annotated[
        str | None, Flag("Replaces the column gpu.", "NAME", files=_file)
    ] = None
    op: Annotated[str | None, Flag("Replaces the column op.", "OP")] = None
