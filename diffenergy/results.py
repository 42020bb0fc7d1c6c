"""`Result`: what the answers of all rooms can do; `Infeasible`: why there is none.

A room's answer is a frozen dataclass with its `summary`, the JSON that the command
prints too, and the objects behind it. How it reads and looks is told once, by a module
of `report` (`report._views`), which loads on first use.
"""

import importlib
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .files import write_text_atomic
from .keys import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .charts import Chart
    from .report import Block


def finite(value: float | None) -> float | None:
    """`value` as JSON has it: None where it is no number, or infinite."""
    return None if value is None or not math.isfinite(value) else float(value)


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """`text`; also written to `path`, if given, whole or not at all."""
    if path is not None:
        write_text_atomic(path, text)
    return text


def pick(
    charts: "Mapping[str, Chart]", name: str = "", argument: str = "chart"
) -> "Chart":
    """The chart of that name, or the first one; `ValueError` names the `argument` that
    has an unknown name."""
    if name and name not in charts:
        allowed = ", ".join(charts)
        raise ValueError(f"`{argument}` is '{name}'; allowed are {allowed}.")
    return charts[name or next(iter(charts))]


class Infeasible(Exception):
    """No solution keeps the limits; the message names the limit and the least
    value that works.

    `least`: such values by the name of the limit, as far as they are known.
    """

    def __init__(self, message: str, **least: float):
        super().__init__(message)
        self.least = least


class Result:
    """Base of answers. `view`: the module of `report._views` that tells of them, with
    `line`, `blocks` and, where there is something to draw, `charts`."""

    view: ClassVar[str]
    summary: Any
    """JSON: dicts, lists, texts, numbers with their units in the keys, None."""

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The summary as JSON text, with the version of its keys; also written to
        `path`, if given, whole or not at all. Raises `ValueError` if `path` cannot be
        written."""
        return written(json_text(self.summary), path)

    def plot(self, path: str | None = None, chart: str = "") -> "Figure | None":
        """Draws the result: into the file `path` (.png or .svg), or as a figure.

        `chart`: which one of `charts`, by name [the first].

        Raises `ValueError` if there is nothing to draw, no such chart, or `path` cannot
        be written.
        """
        from .charts import save_figure, to_figure

        if path is None:
            return to_figure(pick(self.charts(), chart))
        save_figure(path, lambda: to_figure(pick(self.charts(), chart)))
        return None

    def charts(self) -> "Mapping[str, Chart]":
        """Charts of the result by name; the first one says most. Raises `ValueError` if
        there is nothing to draw."""
        charts = getattr(self._views(), "charts", None)
        if charts is None:
            raise ValueError(
                f"`plot` draws charts, and a {type(self).__name__} has none; leave it "
                "out."
            )
        return charts(self)

    def to_html(
        self, path: str | os.PathLike[str] | None = None, command: str = ""
    ) -> str:
        """A page of the answer that needs no network: lines, tables and charts, and the
        JSON that `command`, a line of a shell, prints; also written to `path`, if
        given, whole or not at all."""
        from .report import build_page

        views = self._views()
        scope = views.scope(self) if hasattr(views, "scope") else ""
        scope = getattr(views, "SCOPE", scope)
        blocks = [*self.blocks(), *(f"note: {x}" for x in getattr(self, "notes", ()))]
        page = build_page(self.line(), blocks, self.summary, command, scope)
        return written(page, path)

    def line(self) -> str:
        """The answer in one line."""
        return self._views().line(self)

    def blocks(self, charts: bool = True) -> "list[Block]":
        """Blocks that the command prints and pages show: lines, tables and charts
        (terminals cannot draw charts)."""
        from .report import Section

        drawn = self._drawn() if charts else []
        more = [Section("Charts", drawn)] if drawn else []
        return [*self._views().blocks(self), *more]

    def _drawn(self) -> "list[Chart]":
        """Charts for a page: those that join others only where they are alone."""
        try:
            charts = list(self.charts().values())
        except ValueError:  # nothing to draw
            return []
        return [x for x in charts if not x.joined] or charts

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.line()}>"

    def _repr_html_(self) -> str:
        from .report import build_fragment

        return build_fragment(self.blocks())

    def _views(self) -> Any:
        return importlib.import_module(f"diffenergy.report._views.{self.view}")
