"""A page as one HTML file: head, answer, sections with links to them, foot."""

from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import NamedTuple

from ... import __version__
from ...charts import stylesheet
from ...keys import version
from .._format import Entry
from .._tables.lines import BOARD_ONLY
from .markup import embedded, escape, tag


class Part(NamedTuple):
    """A section of the page, and how the top of the page links to it."""

    identity: str
    link: str
    heading: str
    content: str


def document(
    heading: str,
    what: str,
    answer: str,
    parts: Sequence[Part],
    command: str,
    data: tuple[str, Entry],
    title: str | None = None,
    scope: str = BOARD_ONLY,
) -> str:
    """The page, complete in itself: style, script, drawings and data are in it.

    `answer` and contents of `parts` are markup; `command` gives the same figures as
    JSON, which is in the page as `data` (id, content) with its version; `scope`: what
    powers hold.
    """
    name, content = data
    return Template(_asset("page.html")).substitute(
        title=escape(title or heading),
        heading=escape(heading),
        what=escape(what),
        style=_asset("page.css") + stylesheet(),
        script=_asset("page.js"),
        links="".join(tag("a", escape(x.link), href=f"#{x.identity}") for x in parts),
        answer=answer,
        sections="".join(map(_section, parts)),
        command=escape(command),
        board=escape(scope),
        version=escape(__version__),
        data=embedded(name, {"schema": version(), **content}),
    )


def _section(part: Part) -> str:
    label = f"{part.identity}-heading"
    inner = tag("h2", escape(part.heading), id=label)
    return tag("section", inner, part.content, id=part.identity, aria_labelledby=label)


def _asset(name: str) -> str:
    folder = resources.files("diffenergy.report._page")
    return (folder / name).read_text(encoding="utf-8")
