"""Pictures that commands write."""

from collections.abc import Iterable
from typing import Annotated

from . import output
from .options import option

Plot = Annotated[
    str | None, option("--plot", "FILE", "Also draw the result, .png or .svg.")
]


def check(plot: str | None, inputs: Iterable[str] = ()) -> None:
    """Raises `ValueError`, before any work is done, if `--plot` cannot be written."""
    if plot is None:
        return
    from ..report._charts import style

    output.writer(plot, dict.fromkeys(style.ENDINGS, str), "--plot")
    style.check_picture(plot, inputs)
