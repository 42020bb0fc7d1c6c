"""`Result`: what the answers of all rooms can do; `Infeasible`: why there is none.

A room's answer is a frozen dataclass with its `summary`, the JSON that the command
prints too, and the objects behind it. How it reads and looks is told once, by a module
of `report` (`report._views`), which loads on first use.
"""

import importlib
import math
import os
from typing import TYPE_CHECKING, Any, ClassVar

from .files import write_text_atomic
from .keys import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report import Block


def finite(value: float | None) -> float | None:
    """`value` as JSON has it: None where it is no number, or infinite."""
    return None if value is None or not math.isfinite(value) else float(value)


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """`text`; also written to `path`, if given, whole or not at all."""
    if path is not None:
        write_text_atomic(path, text)
    return text


class Infeasible(Exception):
    """What was asked for cannot be had; the message names the limit and the least
    value that works.

    `least`: such values by the name of the limit, as far as they are known.
    """

    def __init__(self, message: str, **least: float):
        super().__init__(message)
        self.least = least


class Result:
    """Base of answers. `view`: the module of `report._views` that tells of them, with
    `line`, `blocks` and, where there is something to draw, `figure`."""

    view: ClassVar[str]
    summary: Any
    """JSON: dicts, lists, texts, numbers with their units in the keys, None."""

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The summary as JSON text, with the version of its keys; also written to
        `path`, if given, whole or not at all. Raises `ValueError` if `path` cannot be
        written."""
        return written(json_text(self.summary), path)

    def plot(self, path: str | None = None) -> "Figure | None":
        """Draws the answer: into the file `path` (.png or .svg), or as a figure.

        Raises `ValueError` if the answer is nothing to draw or `path` cannot be
        written.
        """
        from .report import save_figure

        if path is None:
            return self.figure()
        save_figure(path, self.figure)
        return None

    def figure(self) -> "Figure":
        """The picture, in the house's style; see `plot`."""
        draw = getattr(self._views(), "figure", None)
        if draw is None:
            raise ValueError(f"a {type(self).__name__} is nothing to draw.")
        return draw(self)

    def to_html(
        self, path: str | os.PathLike[str] | None = None, command: str = ""
    ) -> str:
        """A page of the answer that needs no network: lines, tables and charts, and the
        JSON that `command`, a line of a shell, prints; also written to `path`, if
        given, whole or not at all."""
        from .report import build_page

        scope = getattr(self._views(), "SCOPE", None)
        blocks = [*self.blocks(), *(f"note: {x}" for x in getattr(self, "notes", ()))]
        page = build_page(self.line(), blocks, self.summary, command, scope)
        return written(page, path)

    def line(self) -> str:
        """The answer in one line."""
        return self._views().line(self)

    def blocks(self) -> "list[Block]":
        """What the command prints and pages show: lines, tables, charts."""
        return list(self._views().blocks(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.line()}>"

    def _repr_html_(self) -> str:
        from .report import build_fragment

        return build_fragment(self.blocks())

    def _views(self) -> Any:
        return importlib.import_module(f"diffenergy.report._views.{self.view}")
