"""Where results go: tables or JSON on stdout, notes on stderr, files by ending."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..keys import json_text

if TYPE_CHECKING:
    from ..report import Block


def one_line(text: str) -> str:
    """`text` on one line, with single blanks."""
    return " ".join(text.split())


def notes(lines: Iterable[str]):
    """Prints remarks on stderr, one per line."""
    for line in lines:
        print(f"diffenergy: note: {one_line(line)}", file=sys.stderr)


def show(content: Any, as_json: bool, blocks: "Callable[[], Iterable[Block]]"):
    """Prints JSON alone, or lines and tables for people."""
    if as_json:
        print(json_text(content), end="")
        return
    from rich.console import Console

    from ..report import to_rich

    class Piped(Console):
        def on_broken_pipe(self):  # rich would end the process with 1 by itself
            raise

    console = Piped(markup=False, highlight=False, emoji=False)
    lines = True
    for part in to_rich(blocks()):
        if lines and not isinstance(part, str):
            console.print()
        lines = isinstance(part, str)
        console.print(part, soft_wrap=lines)
        if not lines:
            console.print()


def check_ending(path: str, endings: Sequence[str], flag: str):
    """Raises `ValueError` for a file that cannot be written, or has no such ending."""
    if not path.lower().endswith(tuple(endings)):
        raise ValueError(
            f"`{flag}` is '{path}'; allowed are names ending in "
            f"{', '.join(dict.fromkeys(endings))}."
        )
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(
            f"`{flag}` is '{path}', but there is no folder '{folder}'; make it first."
        )
    if Path(path).is_dir():
        raise ValueError(f"`{flag}` is '{path}', a folder; give the name of a file.")
