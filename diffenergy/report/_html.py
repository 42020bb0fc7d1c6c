"""`html`: what a command prints, for a notebook."""

import io
from collections.abc import Iterable
from typing import Any, Final

_WIDTH: Final = 100
_PRE: Final = '<pre style="line-height:1.25;font-family:monospace">{code}</pre>'


def html(parts: Iterable[Any]) -> str:
    """Lines and tables of `rich` as HTML."""
    from rich.console import Console

    console = Console(
        record=True, width=_WIDTH, file=io.StringIO(), markup=False, highlight=False,
        emoji=False, force_jupyter=False,
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return console.export_html(inline_styles=True, code_format=_PRE)
