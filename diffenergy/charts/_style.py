"""The house style of every picture: colours, sizes, axes with units, files.

A figure is drawn and saved within `house()`; nothing of it depends on the user's own
settings of matplotlib, and the same figure is the same file, byte by byte.
"""

import contextlib
import io
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..files import check_target, write_bytes_atomic
from ._layout import LOG_STEPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

ENDINGS: Final = (".png", ".svg")
"""Of the files that can be written."""
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
ORANGE: Final = "#E69F00"
PURPLE: Final = "#CC79A7"
SKY: Final = "#56B4E9"
BLACK: Final = "#000000"
GREY: Final = "#8C8C8C"
LIGHT: Final = "#DDDDDD"
"""Grid lines and what stands behind the data."""
PALETTE: Final = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
"""Of Okabe and Ito, apart for colour-blind eyes; grey for their yellow, which is too
pale on white."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Beside each colour of the palette, so that colour is never needed; the last one is
of answers."""
WIDTH: Final = 7.5
"""Inches, of every picture."""
SMALL: Final = 9.0
"""Points of the smallest text in a picture."""
_LINE: Final = 76
"""Characters of a line of the title."""
BAND: Final = 0.25
"""Opacity of an interval that is drawn as an area."""
_SETTINGS: Final[dict[str, Any]] = {
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.titlesize": 11.5,
    "grid.color": LIGHT,
    "grid.linewidth": 0.6,
    "legend.fontsize": SMALL,
    "legend.framealpha": 0.9,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "lines.linewidth": 1.8,
    "savefig.dpi": 150,
    "svg.hashsalt": "diffenergy",
}


@contextlib.contextmanager
def house() -> Iterator[None]:
    """Context and decorator in which matplotlib has the house style."""
    import matplotlib
    from cycler import cycler  # pyright: ignore[reportMissingTypeStubs]

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)  # pyright: ignore[reportArgumentType, reportCallIssue]
        matplotlib.rcParams["axes.prop_cycle"] = cycler(color=PALETTE)
        yield


def canvas(height: float) -> "Figure":
    """An empty figure of the house's width; `height` in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def headline(figure: "Figure", text: str) -> None:
    """Title of the whole figure, on as many lines as it needs."""
    figure.suptitle(textwrap.fill(text, _LINE))


def save_figure(
    path: str,
    draw: Callable[[], "Figure"],
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Writes what `draw` returns to `path` (.png or .svg), whole or not at all.

    Raises `ValueError`, before anything is drawn, if the ending is another, the file
    cannot be written or is one of `inputs`.
    """
    inputs, ending = tuple(inputs), Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"the picture is '{path}'; allowed are names ending in "
            f"{', '.join(ENDINGS)}."
        )
    check_target(path, inputs)
    with house():
        figure, content = draw(), io.BytesIO()
        metadata = {"Date": None, "Creator": None} if ending == ".svg" else {}
        figure.savefig(content, format=ending[1:], metadata=metadata)
    write_bytes_atomic(path, content.getvalue(), inputs=inputs)


def log_ticks(axis: "Axis", most: int = 5) -> None:
    """Few ticks on a logarithmic axis whose limits are set, none of them minor: powers
    of ten, of short axes 2 and 5 times them too."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    subs = next((s for end, s in LOG_STEPS if high / low < end), (1.0,))
    axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axis.set_minor_locator(NullLocator())


def rows_down(axes: "Axes", names: Sequence[str]) -> None:
    """Names rows 0, 1, ... of a horizontal bar chart, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
