"""Pictures that commands write, and charts that a terminal shows."""

import shutil
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

from . import output
from .options import option

if TYPE_CHECKING:
    from rich.text import Text

Plot = Annotated[
    str | None, option("--plot", "FILE", "Also draw the result, .png or .svg.")
]
_NARROWEST: Final = 40
"""Characters of a terminal below which no chart is drawn."""


def check(plot: str | None, inputs: Iterable[str] = ()) -> None:
    """Raises `ValueError`, before any work is done, if `--plot` cannot be written."""
    if plot is None:
        return
    from ..report import style

    output.writer(plot, dict.fromkeys(style.ENDINGS, str), "--plot")
    style.check_picture(plot, inputs)


def charts(made: Callable[[int], list[str]]) -> list["Text"]:
    """What `made` draws in a given width, if stdout is a terminal that can show it."""
    out = sys.stdout
    if not out.isatty() or "utf" not in (out.encoding or "").lower():
        return []
    from rich.text import Text

    from ..report.chart import WIDTH

    width = min(WIDTH, shutil.get_terminal_size().columns - 1)
    if width < _NARROWEST:
        return []
    return [Text(chart, no_wrap=True, overflow="ignore") for chart in made(width)]
