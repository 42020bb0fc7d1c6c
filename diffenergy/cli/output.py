"""Where results go: tables or JSON on stdout, notes on stderr, files by ending."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Writers = Mapping[str, Callable[[], str]]
"""Text of an output file by the ending of its name."""


class Infeasible(Exception):
    """What was asked for cannot be had; the message says why."""


def one_line(text: str) -> str:
    """`text` with all white space, line breaks too, as single blanks."""
    return " ".join(text.split())


def notes(lines: Iterable[str]):
    """Remarks for people, one a line on stderr."""
    for line in lines:
        print(f"diffenergy: note: {one_line(line)}", file=sys.stderr)


def json_text(content: Any) -> str:
    """JSON; NaN and infinities are errors."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def show(content: Any, as_json: bool, table: Callable[[], Iterable["RenderableType"]]):
    """Prints JSON alone or the table for people."""
    if as_json:
        print(json_text(content), end="")
        return
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    lines = True
    for part in table():
        if lines and not isinstance(part, str):
            console.print()
        lines = isinstance(part, str)
        console.print(part, soft_wrap=lines)
        if not lines:
            console.print()


def writer(out: str | None, writers: Writers, flag: str = "--out") -> str | None:
    """Ending of `out` if it can be written; checked before any work is done."""
    if out is None:
        return None
    ending = next((end for end in writers if out.lower().endswith(end)), None)
    if ending is None:
        raise ValueError(
            f"`{flag}` is '{out}'; allowed are names ending in {', '.join(writers)}."
        )
    folder = Path(out).parent
    if not folder.is_dir():
        raise ValueError(
            f"`{flag}` is '{out}', but there is no folder '{folder}'; make it first."
        )
    if Path(out).is_dir():
        raise ValueError(f"`{flag}` is '{out}', a folder; give the name of a file.")
    return ending


def save(
    out: str | None, writers: Writers, inputs: Iterable[str | os.PathLike[str]] = ()
):
    """Writes the file `out`, whole or not at all, never over one of `inputs`."""
    ending = writer(out, writers)
    if out is None or ending is None:
        return
    from ..files import write_text_atomic

    write_text_atomic(out, writers[ending](), inputs=inputs)


def check_action(command: str, action: str | None, name: str | None):
    """Checks the words behind a command that takes `show NAME` or nothing."""
    if action not in (None, "show"):
        raise ValueError(
            f"`{command}` is followed by '{action}'; allowed is `{command} show NAME`."
        )
    if action and not name:
        raise ValueError(
            f"`{command} show` lacks a name; `diffenergy {command}` lists those known."
        )
